from pathlib import Path
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.server.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from tests.support.builders import batch
from tests.support.replica_requests import RequestWorld, schema
from tests.support.sim_loop import SimLoop, simulate
from tests.support.tiered_partition import TieredWorld, tier


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_an_epoch_ended(tmp_path: Path, version: int) -> None:
    async def story(loop: SimLoop) -> None:
        world = RequestWorld(tmp_path)
        world.create_topic("t", leader_epoch=1)
        world.append(batch("a"))
        world.place(leader=1, leader_epoch=4)
        world.append(batch("b"))
        classes = schema(ApiKey.OFFSET_FOR_LEADER_EPOCH, version)

        def asked(partition: int, epoch: int, current: int = -1) -> Any:
            return classes.OffsetForLeaderPartition(
                partition=partition, leader_epoch=epoch, current_leader_epoch=current
            )

        entity = classes.OffsetForLeaderEpochRequest(
            replica_id=-2,
            topics=(
                classes.OffsetForLeaderTopic(
                    topic="t", partitions=(asked(0, 3), asked(0, 4, 4), asked(0, 9), asked(0, 4, 3), asked(7, 1))
                ),
            ),
        )
        response = await world.call(offset_for_leader_epoch, ApiKey.OFFSET_FOR_LEADER_EPOCH, version, entity)
        (topic,) = response.topics
        assert topic.topic == "t"
        assert [(each.error_code, each.leader_epoch, each.end_offset) for each in topic.partitions] == [
            (ErrorCode.none, 1, 1),
            (ErrorCode.none, 4, 2),
            (ErrorCode.none, -1, -1),
            (ErrorCode.fenced_leader_epoch, -1, -1),
            (ErrorCode.unknown_topic_or_partition, -1, -1),
        ]

    simulate(story)


@pytest.mark.parametrize(("replica_id", "epoch", "end_offset"), [(-1, 0, 0), (-2, 0, 0), (2, -1, -1)])
def test_the_floor_is_for_consumers(tmp_path: Path, replica_id: int, epoch: int, end_offset: int) -> None:
    async def story(loop: SimLoop) -> None:
        world = RequestWorld(tmp_path)
        world.create_topic("t", leader_epoch=1)
        world.append(batch("a"))
        classes = schema(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4)
        asked = classes.OffsetForLeaderPartition(partition=0, leader_epoch=0, current_leader_epoch=-1)
        entity = classes.OffsetForLeaderEpochRequest(
            replica_id=replica_id, topics=(classes.OffsetForLeaderTopic(topic="t", partitions=(asked,)),)
        )
        response = await world.call(offset_for_leader_epoch, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, entity)
        (answer,) = response.topics[0].partitions
        assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (ErrorCode.none, epoch, end_offset)

    simulate(story)


def test_epochs_of_records_in_remote_storage(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        world = TieredWorld(tmp_path, 0, 10)
        for epoch in (2, 5):
            world.place(leader=1, leader_epoch=epoch)
            world.partition().log.roll()
            world.append(batch("a"), batch("b"))
        world.partition().log.roll()
        tier(world.partition().log, 6)
        world.partition().log.delete_old_segments()
        classes = schema(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4)

        async def ends() -> list[tuple[int, int]]:
            asked = tuple(
                classes.OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=5)
                for epoch in (0, 1, 2, 3, 5)
            )
            entity = classes.OffsetForLeaderEpochRequest(
                replica_id=2, topics=(classes.OffsetForLeaderTopic(topic="t", partitions=asked),)
            )
            response = await world.call(offset_for_leader_epoch, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, entity)
            return [(each.leader_epoch, each.end_offset) for each in response.topics[0].partitions]

        assert await ends() == [(0, 2), (0, 2), (2, 4), (2, 4), (5, 6)]
        world.partition().delete_records_on_leader(3)
        assert await ends() == [(-1, -1), (-1, -1), (2, 4), (2, 4), (5, 6)]

    simulate(story)
