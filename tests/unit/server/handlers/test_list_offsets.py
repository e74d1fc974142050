import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.common.errors import ErrorCode, ReplicaNotAvailableError
from broker.log.log_segment import TimestampAndOffset
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import decode_request, encode_request
from broker.server.handlers.list_offsets import list_offsets
from tests.support.builders import NOW_MS, batch, settle
from tests.support.replica_requests import CONTEXT, RequestWorld, schema
from tests.support.sim_loop import SimLoop, simulate
from tests.support.tiered_partition import TieredWorld, tier


def request_of(version: int, *asked: tuple[str, int, int], **options: Any) -> Any:
    """(topic, partition, timestamp) each."""
    classes = schema(ApiKey.LIST_OFFSETS, version)
    return classes.ListOffsetsRequest(
        replica_id=options.get("replica_id", -1),
        isolation_level=options.get("isolation_level", 0),
        timeout=timedelta(milliseconds=options.get("timeout_ms", 1000)),
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


async def ask(world: RequestWorld, version: int, *asked: tuple[str, int, int], **options: Any) -> list[Any]:
    """The partitions' answers in order."""
    entity = request_of(version, *asked, **options)
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


# Timestamps of logs that begin in remote storage


def tiered_world(directory: Path) -> TieredWorld:
    """Of topics t and u offset 0 is in remote storage alone, 1 and 2 are here; topic n is not tiered."""
    world = TieredWorld(directory, NOW_MS, NOW_MS + 10, NOW_MS + 20)
    world.create_tiered_topic("u", NOW_MS, NOW_MS + 10, NOW_MS + 20)
    world.create_topic("n")
    world.append(batch("a", timestamp=NOW_MS), topic="n")
    for topic in "tu":
        tier(world.partition(topic).log, 1)
    return world


def told(answers: list[Any]) -> list[tuple[ErrorCode, int, int]]:
    return [(each.error_code, each.timestamp, each.offset) for each in answers]


@pytest.mark.parametrize("version", range(1, 11))
def test_a_timestamp_waits_for_remote_storage(tmp_path: Path, version: int) -> None:
    async def story(loop: SimLoop) -> None:
        world = tiered_world(tmp_path)
        asking = asyncio.ensure_future(
            ask(
                world,
                version,
                ("t", 0, NOW_MS),
                ("n", 0, NOW_MS),
                ("u", 0, NOW_MS + 15),
                ("t", 1, NOW_MS),
                ("u", 7, -1),
            )
        )
        await settle()
        assert world.remote.asked() == [("t", NOW_MS, 0), ("u", NOW_MS + 15, 0)] and not asking.done()
        world.answer(None)
        world.answer(TimestampAndOffset(NOW_MS, 0, 0), question=0)
        answers = await asking
        assert told(answers) == [
            (ErrorCode.none, NOW_MS, 0),
            (ErrorCode.none, NOW_MS, 0),
            (ErrorCode.none, NOW_MS + 20, 2),
            (ErrorCode.unknown_topic_or_partition, -1, -1),
            (ErrorCode.unknown_topic_or_partition, -1, -1),
        ]
        if version >= 4:
            assert [each.leader_epoch for each in answers] == [0, 0, 0, -1, -1]

    simulate(story)


def test_what_needs_no_remote_storage_is_answered_at_once(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        world = tiered_world(tmp_path)
        entity = request_of(10, *(("t", 0, -1 - index) for index in range(5)))
        for asked in (entity, request_of(10, ("n", 0, NOW_MS), ("t", 0, -3))):
            request = decode_request(encode_request(ApiKey.LIST_OFFSETS, 10, 7, "test", asked)[4:])
            assert not asyncio.isfuture(list_offsets(request, CONTEXT, world.replicas))
        assert world.remote.questions == []

    simulate(story)


def test_a_duplicate_is_not_looked_for(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        world = tiered_world(tmp_path)
        answers = await ask(world, 10, ("t", 0, NOW_MS), ("t", 0, NOW_MS + 1))
        assert [each.error_code for each in answers] == [ErrorCode.invalid_request] * 2
        assert world.remote.questions == []

    simulate(story)


@pytest.mark.parametrize(
    ("version", "timeout_ms", "seconds"), [(10, 1500, 1.5), (10, 0, 30.0), (10, -5, 30.0), (9, 1500, 30.0)]
)
def test_how_long_remote_storage_is_waited_for(tmp_path: Path, version: int, timeout_ms: int, seconds: float) -> None:
    async def story(loop: SimLoop) -> None:
        world = tiered_world(tmp_path)
        began = loop.time()
        answers = await ask(world, version, ("t", 0, NOW_MS), ("n", 0, NOW_MS), timeout_ms=timeout_ms)
        assert loop.time() - began == pytest.approx(seconds)
        assert told(answers) == [(ErrorCode.request_timed_out, -1, -1), (ErrorCode.none, NOW_MS, 0)]
        assert world.remote.questions[0].answer.cancelled()

    simulate(story)


def test_remote_storage_that_refuses_is_not_waited_for(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        world = tiered_world(tmp_path)
        world.remote.refusal = ReplicaNotAvailableError("not yet")
        answers = await ask(world, 10, ("t", 0, NOW_MS))
        assert told(answers) == [(ErrorCode.replica_not_available, -1, -1)] and loop.time() == 0

    simulate(story)


def test_a_client_that_goes_takes_its_questions_along(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        world = tiered_world(tmp_path)
        entity = request_of(10, ("t", 0, NOW_MS), ("u", 0, NOW_MS))
        request = decode_request(encode_request(ApiKey.LIST_OFFSETS, 10, 7, "test", entity)[4:])
        answer = list_offsets(request, CONTEXT, world.replicas)
        answer.cancel()
        await settle()
        assert all(question.answer.cancelled() for question in world.remote.questions)
        assert len(world.replicas.remote_offset_lookups.purgatory) == 0

    simulate(story)
