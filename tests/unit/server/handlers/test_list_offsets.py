from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.server.handlers.list_offsets import list_offsets
from tests.support.builders import NOW_MS, batch
from tests.support.replica_requests import RequestWorld, schema
from tests.support.sim_loop import SimLoop, simulate


async def ask(world: RequestWorld, version: int, *asked: tuple[str, int, int], **options: Any) -> list[Any]:
    """(topic, partition, timestamp) each; the partitions' answers in order."""
    classes = schema(ApiKey.LIST_OFFSETS, version)
    entity = classes.ListOffsetsRequest(
        replica_id=options.get("replica_id", -1),
        isolation_level=options.get("isolation_level", 0),
        timeout=timedelta(milliseconds=1000),
        topics=tuple(
            classes.ListOffsetsTopic(
                name=topic,
                partitions=(
                    classes.ListOffsetsPartition(
                        partition_index=partition,
                        timestamp=timestamp,
                        current_leader_epoch=options.get("epoch", -1),
                    ),
                ),
            )
            for topic, partition, timestamp in asked
        ),
    )
    response = await world.call(list_offsets, ApiKey.LIST_OFFSETS, version, entity)
    return [partition for topic in response.topics for partition in topic.partitions]


@pytest.fixture
def world(tmp_path: Path) -> RequestWorld:
    world = RequestWorld(tmp_path)
    world.create_topic("t", leader_epoch=2)
    world.append(batch("a", timestamp=NOW_MS), batch("b", timestamp=NOW_MS + 9))
    return world


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version(world: RequestWorld, version: int) -> None:
    async def story(loop: SimLoop) -> None:
        answers = [(await ask(world, version, ("t", 0, timestamp)))[0] for timestamp in (-1, -2, NOW_MS + 1)]
        assert [each.offset for each in answers] == [2, 0, 1]
        assert [each.timestamp for each in answers] == [-1, -1, NOW_MS + 9]
        assert [each.error_code for each in answers] == [ErrorCode.none] * 3
        if version >= 4:
            assert [each.leader_epoch for each in answers] == [2, 2, 2]

    simulate(story)


def test_errors_stand_beside_answers(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        answers = await ask(world, 7, ("t", 0, -1), ("x", 0, -1), ("t", 5, -1), ("t", 6, -9))
        assert [each.error_code for each in answers] == [
            ErrorCode.none,
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.unknown_topic_or_partition,
        ]
        assert [(each.offset, each.timestamp, each.leader_epoch) for each in answers[1:]] == [(-1, -1, -1)] * 3
        (unknown_timestamp,) = await ask(world, 7, ("t", 0, -4))
        assert unknown_timestamp.error_code is ErrorCode.unsupported_version
        (fenced,) = await ask(world, 7, ("t", 0, -1), epoch=1)
        assert fenced.error_code is ErrorCode.fenced_leader_epoch

    simulate(story)


def test_a_partition_asked_twice_is_refused(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        answers = await ask(world, 7, ("t", 0, -1), ("t", 0, -2))
        assert [each.error_code for each in answers] == [ErrorCode.invalid_request] * 2

    simulate(story)


def test_read_committed_ends_at_the_last_stable_offset(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world.append(batch("c", producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True))
        (uncommitted,) = await ask(world, 7, ("t", 0, -1))
        (committed,) = await ask(world, 7, ("t", 0, -1), isolation_level=1)
        assert (uncommitted.offset, committed.offset) == (3, 2)

    simulate(story)
