"""The coordinators' writer over real replicas and files."""

from pathlib import Path

import pytest

from broker.common.chance import Chance
from broker.common.disk import InlineDiskExecutor
from broker.common.errors import (
    ErrorCode,
    MessageTooLargeError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    StorageFailure,
    UnknownTopicOrPartitionError,
)
from broker.common.identifiers import CONSUMER_OFFSETS_TOPIC, TopicPartition
from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.coordinator.group.group_messages import OffsetCommitRequest, OffsetFetchRequest, OffsetToCommit
from broker.coordinator.partition_writer import PartitionWriter
from broker.coordinator.snapshot_writer import CHECK_INTERVAL_SECONDS
from broker.log.flush_plan import FlushPlan
from broker.metrics.coordinator_metrics import CoordinatorMetrics
from broker.metrics.registry import MetricsRegistry
from broker.server.partition_writer import LogEndOffsets, ReplicaPartitionWriter
from tests.support.builders import ReplicaWorld, batch, values_of
from tests.support.group_world import after
from tests.support.sim_loop import SimLoop, simulate

TP = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)


def make(world: ReplicaWorld) -> PartitionWriter:
    return ReplicaPartitionWriter(world.replicas, InlineDiskExecutor())


def keyed(*values: str) -> bytearray:
    return batch(*values, keys=[b"k"] * len(values))


@pytest.fixture
def world(tmp_path: Path) -> ReplicaWorld:
    world = ReplicaWorld(tmp_path)
    world.register_brokers(1, 2)
    return world


def offsets_topic(world: ReplicaWorld, **keywords: object) -> None:
    configs = {"cleanup.policy": "compact", "internal.segment.bytes": "1000"}
    world.create_topic(CONSUMER_OFFSETS_TOPIC, configs=configs, **keywords)  # type: ignore[arg-type]


def test_appends_are_read_back(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        offsets_topic(world)
        writer = make(world)
        seen: list[int] = []
        writer.register_listener(TP, seen.append, lambda: pytest.fail("nothing was lost"))
        assert writer.append(TP, keyed("a", "b")) == 2
        assert writer.append(TP, keyed("c")) == 3
        assert seen == [2, 3]
        assert (writer.log_start_offset(TP), writer.log_end_offset(TP), writer.high_watermark(TP)) == (0, 3, 3)
        assert values_of(await writer.read(TP, 0, 1_000_000)) == [b"a", b"b", b"c"]
        assert values_of(await writer.read(TP, 2, 1)) == [b"c"]
        assert await writer.read(TP, 3, 1000) == b""
        assert writer.config(TP).segment_bytes == 1000
        with pytest.raises(OffsetOutOfRangeError):
            await writer.read(TP, 4, 1000)

    simulate(story)


def test_a_listener_that_left_hears_nothing(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        offsets_topic(world)
        writer = make(world)
        seen: list[int] = []
        listener = seen.append
        writer.register_listener(TP, listener, lambda: pytest.fail("nothing was lost"))
        writer.unregister_listener(TP, listener)
        writer.unregister_listener(TP, listener)
        writer.append(TP, keyed("a"))
        assert seen == []

    simulate(story)


def test_a_replica_that_the_disk_refuses_is_lost_once(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        offsets_topic(world)
        writer = make(world)
        seen: list[int] = []
        writer.register_listener(TP, seen.append, lambda: seen.append(-1))
        world.replicas.partition(TP).stop(ErrorCode.kafka_storage_error, is_deleted=False)
        writer.unregister_listener(TP, seen.append)
        assert seen == [-1]

    simulate(story)


def test_45_the_high_watermark_waits_for_the_followers(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        offsets_topic(world, replicas=(1, 2))
        writer = make(world)
        assert writer.append(TP, keyed("a")) == 1
        assert writer.high_watermark(TP) == 0

    simulate(story)


def test_45_too_few_replicas_are_for_the_high_watermark_to_tell(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        configs = {"min.insync.replicas": "2"}
        world.create_topic(CONSUMER_OFFSETS_TOPIC, replicas=(1, 2), isr=(1,), configs=configs)
        writer = make(world)
        assert writer.append(TP, keyed("a")) == 1
        assert writer.high_watermark(TP) == 0

    simulate(story)


def test_refusals(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        writer = make(world)
        with pytest.raises(UnknownTopicOrPartitionError):
            writer.append(TP, keyed("a"))
        with pytest.raises(NotLeaderOrFollowerError):
            writer.register_listener(TP, print, print)
        world.create_topic(CONSUMER_OFFSETS_TOPIC, configs={"max.message.bytes": "100"})
        with pytest.raises(MessageTooLargeError):
            writer.append(TP, keyed("a" * 200))
        assert writer.log_end_offset(TP) == 0
        world.place(CONSUMER_OFFSETS_TOPIC, replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=1)
        for ask in (writer.log_end_offset, writer.log_start_offset, writer.high_watermark):
            with pytest.raises(NotLeaderOrFollowerError):
                ask(TP)
        with pytest.raises(NotLeaderOrFollowerError):
            writer.append(TP, keyed("a"))

    simulate(story)


def test_older_segments_go_after_what_replaces_them_is_durable(
    world: ReplicaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[tuple[int, int]] = []
    run = FlushPlan.run

    def record(plan: FlushPlan) -> None:
        flushed.append((plan.offset, world.partition(CONSUMER_OFFSETS_TOPIC).log.log_start_offset))
        run(plan)

    monkeypatch.setattr(FlushPlan, "run", record)

    async def story(loop: SimLoop) -> None:
        offsets_topic(world)
        writer = make(world)
        for index in range(40):
            writer.append(TP, keyed(f"value {index}"))
        log = world.partition(CONSUMER_OFFSETS_TOPIC).log
        assert log.segment_count > 2
        size_bytes = log.size_bytes
        await writer.delete_records_before(TP, 39)
        assert (log.log_start_offset, log.segment_count) == (39, 1)
        assert flushed == [(40, 0)] and log.size_bytes < size_bytes
        assert values_of(await writer.read(TP, 39, 1000)) == [b"value 39"]

    simulate(story)


def test_nothing_goes_when_the_device_fails(world: ReplicaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(plan: FlushPlan) -> None:
        raise StorageFailure("device")

    async def story(loop: SimLoop) -> None:
        offsets_topic(world)
        writer = make(world)
        for index in range(40):
            writer.append(TP, keyed(f"value {index}"))
        run = FlushPlan.run
        monkeypatch.setattr(FlushPlan, "run", fail)
        with pytest.raises(StorageFailure):
            await writer.delete_records_before(TP, 39)
        monkeypatch.setattr(FlushPlan, "run", run)
        with pytest.raises(StorageFailure, match="a flush has failed"):  # what later flushes say is not believed
            await writer.delete_records_before(TP, 39)
        assert world.partition(CONSUMER_OFFSETS_TOPIC).log.log_start_offset == 0

    simulate(story)


def test_ends_of_logs_for_the_lag(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("t")
        world.append(batch("a", "b"))
        ends = LogEndOffsets(world.replicas)
        assert (ends("t", 0), ends("t", 1), ends("unknown", 0)) == (2, None, None)

    simulate(story)


def coordinator(world: ReplicaWorld, loop: SimLoop) -> GroupCoordinator:
    writer, metrics = make(world), CoordinatorMetrics(MetricsRegistry())
    groups = GroupCoordinator(world.config, world.clock, Chance(1), writer, metrics, log_bytes_max=3000)
    groups.on_metadata(None, world.metadata.image)
    return groups


async def commit(groups: GroupCoordinator, offset: int) -> ErrorCode:
    offsets = (OffsetToCommit("t", 0, offset, -1, ""),)
    request = OffsetCommitRequest(group_id="g", generation=-1, member_id="", offsets=offsets)
    return (await groups.commit_offsets(request))[0].error


async def fetch(groups: GroupCoordinator) -> int:
    result = await groups.fetch_offsets(OffsetFetchRequest(group_id="g", topics={"t": (0,)}))
    assert result.error is ErrorCode.none
    return result.topics["t"][0].offset


def test_a_coordinator_over_files(world: ReplicaWorld) -> None:
    """Commits, a snapshot that drops old segments, and another coordinator that reads the same log."""

    async def story(loop: SimLoop) -> None:
        offsets_topic(world)
        groups = coordinator(world, loop)
        await groups.startup()
        await after(0)
        for offset in range(60):
            assert await commit(groups, offset) is ErrorCode.none
        log = world.partition(CONSUMER_OFFSETS_TOPIC).log
        assert log.segment_count > 3
        await after(int(CHECK_INTERVAL_SECONDS * 1000))
        assert (log.log_start_offset, log.segment_count) == (60, 1)
        await groups.shutdown()
        again = coordinator(world, loop)
        await again.startup()
        await after(0)
        assert await fetch(again) == 59
        assert await commit(again, 60) is ErrorCode.none
        assert await fetch(again) == 60
        await again.shutdown()

    simulate(story)
