"""What ListOffsets tells of logs that begin in remote storage (KIP-405, KIP-1005, KIP-1075)."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.log.log_segment import TimestampAndOffset
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import decode_request, decode_response, encode_request, encode_response
from broker.replication.delayed_delete_records import DeleteRecordsResult
from broker.server.handlers.list_offsets import list_offsets
from tests.support.builders import NOW_MS, ReplicaWorld, batch
from tests.support.replica_cluster import ReplicaCluster
from tests.support.replica_requests import CONTEXT, schema
from tests.support.scripted_remote_log import ScriptedRemoteLog
from tests.support.sim_loop import SimLoop, simulate
from tests.support.tiered_partition import TIERED_BROKER, TIERED_TOPIC, tier

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
NONE = ErrorCode.none


class Told(NamedTuple):
    """A partition's answer."""

    error: ErrorCode
    timestamp: int
    offset: int
    epoch: int


class World:
    """Two brokers and the remote storage of both; topics have one partition, and a segment for each record."""

    def __init__(self, directory: Path) -> None:
        self.remote = ScriptedRemoteLog()
        self.cluster = ReplicaCluster(directory, broker_ids=(1, 2), properties=TIERED_BROKER, remote_log=self.remote)

    def create(self, name: str = "t", **configs: str) -> None:
        self.cluster.create_topic(name, replicas=(1, 2), configs={**TIERED_TOPIC, **configs})

    @property
    def leader(self) -> ReplicaWorld:
        return self.cluster.brokers[self.cluster.leader()]

    async def append(self, *timestamps: int, topic: str = "t") -> None:
        """Each record is committed, and the log rolled after it."""
        leader = self.cluster.brokers[self.cluster.leader(topic)]
        for timestamp in timestamps:
            leader.append(batch(f"{timestamp}", timestamp=timestamp), topic=topic)
            leader.partition(topic).log.roll()
        await self.cluster.until_caught_up(topic)

    def tier(self, next_offset: int, topic: str = "t") -> None:
        """What is below is in remote storage, and in no file of the leader's disk."""
        log = self.cluster.partition(self.cluster.leader(topic), topic).log
        tier(log, next_offset)
        log.delete_old_segments()
        assert log.segments.first.base_offset == next_offset

    async def ask(self, *asked: tuple[str, int], version: int = 10, timeout_ms: int = 1000) -> list[Told]:
        """Topics and timestamps, asked of the leader of "t"."""
        classes = schema(ApiKey.LIST_OFFSETS, version)
        entity = classes.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            timeout=timedelta(milliseconds=timeout_ms),
            topics=tuple(
                classes.ListOffsetsTopic(
                    name=topic,
                    partitions=(
                        classes.ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=-1),
                    ),
                )
                for topic, timestamp in asked
            ),
        )
        request = decode_request(encode_request(ApiKey.LIST_OFFSETS, version, 7, "test", entity)[4:])
        answer = list_offsets(request, CONTEXT, self.leader.replicas)
        if asyncio.isfuture(answer):
            answer = await answer
        data = b"".join(encode_response(ApiKey.LIST_OFFSETS, version, 7, answer))
        response = decode_response(ApiKey.LIST_OFFSETS, version, data[4:])[1]
        return [
            Told(each.error_code, each.timestamp, each.offset, each.leader_epoch)
            for topic in response.topics
            for each in topic.partitions
        ]

    async def epoch_and_offset(self, timestamp: int) -> tuple[int, int]:
        """Of a special timestamp of topic t."""
        (told,) = await self.ask(("t", timestamp))
        assert (told.error, told.timestamp) == (NONE, -1)
        return told.epoch, told.offset

    async def delete_records(self, offset: int) -> DeleteRecordsResult:
        deleted: asyncio.Future[list[DeleteRecordsResult]] = asyncio.get_running_loop().create_future()
        self.leader.replicas.delete_records(
            {TopicPartition("t", 0): offset}, timeout_ms=10_000, on_complete=deleted.set_result
        )
        (result,) = await deleted
        return result


def tell(directory: Path, story: Callable[[World], Awaitable[None]]) -> None:
    async def run(loop: SimLoop) -> None:
        world = World(directory)
        try:
            await story(world)
        finally:
            await world.cluster.stop()

    simulate(run)


def first_of(*records: TimestampAndOffset) -> Callable[[int, int], TimestampAndOffset | None]:
    """Remote storage that has these and no others."""

    def find(timestamp: int, starting_offset: int) -> TimestampAndOffset | None:
        found = (each for each in records if each.timestamp >= timestamp and each.offset >= starting_offset)
        return next(found, None)

    return find


def starts(world: World, broker_id: int) -> tuple[int, int]:
    log = world.cluster.partition(broker_id).log
    return log.log_start_offset, log.local_log_start_offset


def test_23_delete_records_into_the_remote_part(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.create()
        await world.append(*range(NOW_MS, NOW_MS + 60, 10))
        world.tier(4)
        deleted = await world.delete_records(3)
        assert (deleted.error, deleted.low_watermark) == (NONE, 3)
        assert await world.epoch_and_offset(EARLIEST) == (0, 3)
        assert await world.epoch_and_offset(EARLIEST_LOCAL) == (0, 4)
        assert await world.epoch_and_offset(LATEST_TIERED) == (0, 3)
        assert (starts(world, 1), starts(world, 2)) == ((3, 4), (3, 3))
        assert (await world.delete_records(2)).low_watermark == 3  # as Kafka: nothing to do
        assert (await world.delete_records(7)).error is ErrorCode.offset_out_of_range
        assert (await world.delete_records(-1)).low_watermark == 6
        assert (starts(world, 1), starts(world, 2)) == ((6, 6), (6, 6))

    tell(tmp_path, story)


def test_23_delete_records_waits_for_followers_whose_disks_begin_later(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.create()
        await world.append(*range(NOW_MS, NOW_MS + 60, 10))
        world.tier(4)
        tier(world.cluster.partition(2).log, 5)
        world.cluster.cut.add((2, 1))
        deleting = asyncio.ensure_future(world.delete_records(3))
        await asyncio.sleep(5)
        assert not deleting.done() and (starts(world, 1), starts(world, 2)) == ((3, 4), (0, 5))
        world.cluster.cut.clear()
        assert (await deleting).low_watermark == 3
        assert starts(world, 2) == (3, 5)
        world.cluster.cut.add((2, 1))
        assert (await world.delete_records(4)).error is ErrorCode.request_timed_out
        assert starts(world, 1) == (4, 4)  # it stays moved

    tell(tmp_path, story)


def test_24_the_special_offsets_before_and_after_delete_records(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.create()
        await world.append(NOW_MS, NOW_MS + 1, NOW_MS + 2)
        world.cluster.elect(2)
        await world.append(NOW_MS + 3, NOW_MS + 4, NOW_MS + 5)
        world.tier(4)
        assert await world.epoch_and_offset(EARLIEST) == (0, 0)
        assert await world.epoch_and_offset(EARLIEST_LOCAL) == (1, 4)
        assert await world.epoch_and_offset(LATEST_TIERED) == (1, 3)
        assert await world.epoch_and_offset(LATEST) == (1, 6)
        assert (await world.delete_records(4)).low_watermark == 4
        assert await world.epoch_and_offset(EARLIEST) == (1, 4)
        assert await world.epoch_and_offset(EARLIEST_LOCAL) == (1, 4)
        assert await world.epoch_and_offset(LATEST_TIERED) == (-1, 3)
        assert await world.epoch_and_offset(LATEST) == (1, 6)

    tell(tmp_path, story)


def test_25_old_timestamps_are_found_in_remote_storage_and_new_ones_here(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.create()
        await world.append(*range(NOW_MS, NOW_MS + 60, 10))
        world.tier(3)
        world.remote.offsets = first_of(*(TimestampAndOffset(NOW_MS + 10 * each, each, 0) for each in range(3)))
        assert await world.ask(("t", 0)) == [Told(NONE, NOW_MS, 0, 0)]
        assert await world.ask(("t", NOW_MS + 11)) == [Told(NONE, NOW_MS + 20, 2, 0)]
        assert await world.ask(("t", NOW_MS + 21)) == [Told(NONE, NOW_MS + 30, 3, 0)]
        assert await world.ask(("t", NOW_MS + 50)) == [Told(NONE, NOW_MS + 50, 5, 0)]
        assert await world.ask(("t", NOW_MS + 51)) == [Told(NONE, -1, -1, -1)]
        assert world.remote.asked()[:2] == [("t", 0, 0), ("t", NOW_MS + 11, 0)]

    tell(tmp_path, story)


def test_25_what_was_deleted_is_found_nowhere(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.create()
        await world.append(*range(NOW_MS, NOW_MS + 60, 10))
        world.tier(4)
        world.remote.offsets = first_of(*(TimestampAndOffset(NOW_MS + 10 * each, each, 0) for each in range(4)))
        assert (await world.delete_records(2)).low_watermark == 2
        assert await world.ask(("t", NOW_MS)) == [Told(NONE, NOW_MS + 20, 2, 0)]
        assert world.remote.asked() == [("t", NOW_MS, 2)]

    tell(tmp_path, story)


def test_26_what_is_in_both_tiers_is_looked_for_here(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.create()
        await world.append(*range(NOW_MS, NOW_MS + 60, 10))
        log = world.leader.partition().log
        log.update_highest_remote_offset(4)
        assert await world.ask(("t", NOW_MS)) == [Told(NONE, NOW_MS, 0, 0)]
        assert world.remote.asked() == []
        world.tier(1)
        world.remote.offsets = first_of(TimestampAndOffset(NOW_MS, 0, 0))  # of what it alone has
        assert await world.ask(("t", NOW_MS + 10)) == [Told(NONE, NOW_MS + 10, 1, 0)]
        assert log.highest_remote_offset == 4

    tell(tmp_path, story)


@pytest.mark.parametrize(("timestamp", "version"), [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8)])
def test_27_a_version_that_does_not_know_a_special_timestamp(tmp_path: Path, timestamp: int, version: int) -> None:
    async def story(world: World) -> None:
        world.create()
        world.create("u")
        await world.append(NOW_MS)
        old = await world.ask(("t", timestamp), ("u", EARLIEST), version=version)
        assert old == [Told(ErrorCode.unsupported_version, -1, -1, -1), Told(NONE, -1, 0, 0)]
        (new,) = await world.ask(("t", timestamp), version=version + 1)
        assert new.error is NONE

    tell(tmp_path, story)


def test_27_a_topic_that_is_not_tiered_has_one_start_and_nothing_tiered(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.create(**{"remote.storage.enable": "false"})
        await world.append(NOW_MS, NOW_MS + 1)
        await world.delete_records(1)
        assert await world.epoch_and_offset(EARLIEST) == (0, 1)
        assert await world.epoch_and_offset(EARLIEST_LOCAL) == (0, 1)
        assert await world.epoch_and_offset(LATEST_TIERED) == (-1, -1)
        assert await world.ask(("t", 0)) == [Told(NONE, NOW_MS + 1, 1, 0)]
        assert world.remote.asked() == []

    tell(tmp_path, story)


def test_28_remote_storage_that_hangs_costs_its_own_partition_an_answer(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        for name in "tuv":
            world.create(name)
            await world.append(*range(NOW_MS, NOW_MS + 60, 10), topic=name)
        world.tier(3, "t")
        world.tier(3, "u")
        began = asyncio.get_running_loop().time()
        asking = asyncio.ensure_future(world.ask(("t", NOW_MS), ("u", NOW_MS), ("v", NOW_MS), timeout_ms=2500))
        await world.cluster.until(lambda: len(world.remote.questions) == 2)
        world.remote.questions[1].answer.set_result(TimestampAndOffset(NOW_MS, 0, 0))
        assert await asking == [
            Told(ErrorCode.request_timed_out, -1, -1, -1),
            Told(NONE, NOW_MS, 0, 0),
            Told(NONE, NOW_MS, 0, 0),
        ]
        assert asyncio.get_running_loop().time() - began == pytest.approx(2.5)
        assert world.remote.questions[0].answer.cancelled()
        lookups = world.leader.replicas.remote_offset_lookups
        assert (lookups.expired_partitions, lookups.purgatory.expired_count) == (1, 1)

    tell(tmp_path, story)


def test_a_leader_that_is_deposed_while_remote_storage_is_asked(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.create()
        await world.append(NOW_MS, NOW_MS + 10)
        world.tier(1)
        asking: asyncio.Task[Any] = asyncio.ensure_future(world.ask(("t", NOW_MS)))
        await world.cluster.until(lambda: len(world.remote.questions) == 1)
        world.cluster.elect(2)
        assert await asking == [Told(ErrorCode.not_leader_or_follower, -1, -1, -1)]
        assert world.remote.questions[0].answer.cancelled()

    tell(tmp_path, story)
