from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.common.errors import StorageFailure
from broker.common.identifiers import TopicIdPartition
from broker.common.metadata_topic import MetadataRecord as Event
from broker.metadata.configs_image import ConfigResourceType
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.replication.partition import Partition
from broker.schemas.cluster_metadata import ConfigRecord, MetadataRecord
from broker.schemas.remote_metadata_partitioner import combined_event_partition_of, metadata_partition_of
from broker.wal.follow import wal_interval_map
from broker.wal.follow.wal_interval_map import WalIntervalMap
from broker.wal.follow.wal_partitions import Placement, WalPartitions
from broker.wal.remote_wal_manager import RemoteWalManager
from tests.support.builders import LOCAL_BROKER_ID, ReplicaWorld, batch, topic_uuid
from tests.support.tiered_partition import tier
from tests.support.tiered_topics import TIERED, TIERING
from tests.unit.wal.wal_world import BUCKET, entry

OTHER = LOCAL_BROKER_ID + 1
PAIR = (LOCAL_BROKER_ID, OTHER)
WAL = {"remote.wal.enable": "true"}
COUNT = 50
OWN_OBJECTS = frozenset({combined_event_partition_of(LOCAL_BROKER_ID, COUNT)})
T0 = TopicIdPartition(topic_uuid("t"), "t", 0)
SWITCHED_ON = {
    "remote.wal.storage.system.enable": "true",
    "remote.wal.storage.manager.class.name": "LocalWalStorageManager",
    "rwsm.config.bucket": BUCKET,
    "broker.rack": "a",
}


class Wal:
    """The path of one led partition."""

    def __init__(self) -> None:
        self.log_start_moves = 0

    def appended(self, size_bytes: int) -> None: ...
    def awaited(self) -> None: ...
    def serves_records(self, replica_id: int, fetch_offset: int) -> bool:
        return False

    def count_fallback(self, replica_id: int, size_bytes: int) -> None: ...
    def log_start_moved(self) -> None:
        self.log_start_moves += 1


class Uploads:
    def __init__(self) -> None:
        self.active: dict[TopicIdPartition, int] = {}
        self.activations = 0

    def activate(self, partition: Partition) -> Wal:
        self.active[TopicIdPartition(partition.topic_id, *partition.topic_partition)] = partition.leader_epoch
        self.activations += 1
        return Wal()

    def deactivate(self, partition: TopicIdPartition) -> None:
        del self.active[partition]


class Republishing:
    def __init__(self) -> None:
        self.begun: list[tuple[int, WalIntervalMap]] = []
        self.ended: list[TopicIdPartition] = []

    def begin(self, partition: Partition, known: WalIntervalMap) -> None:
        self.begun.append((partition.leader_epoch, known))

    def end(self, partition: TopicIdPartition) -> None:
        self.ended.append(partition)


class Topic:
    lag = 0

    def __init__(self) -> None:
        self.partition_count: int | None = COUNT
        self.assigned: frozenset[int] = frozenset()
        self.unhurried: frozenset[int] = frozenset()
        self.read_anew: list[int] = []

    def assign(self, partitions: Collection[int], *, unhurried: Collection[int] = ()) -> None:
        self.assigned, self.unhurried = frozenset(partitions), frozenset(unhurried)

    def read_again(self, partition: int) -> None:
        assert partition in self.assigned
        self.read_anew.append(partition)

    def append(self, partition: int, values: Sequence[bytes], *, may_linger: bool = False) -> Any:
        raise AssertionError("the manager appends nothing itself")

    async def end_offset(self, partition: int) -> int:
        raise AssertionError("the manager asks for no end")

    def position(self, partition: int) -> int | None:
        return None

    def running(self) -> AbstractAsyncContextManager[object]:
        return nullcontext()


class Reader:
    """Takes slices instead of bytes."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.begun: list[int] = []

    def begins(self, metadata_partitions: Collection[int]) -> None:
        self.begun.extend(metadata_partitions)

    def read(
        self, metadata_partition: int, records: Sequence[Event], partitions: WalPartitions
    ) -> set[TopicIdPartition]:
        return partitions.add(self.entries)


class World(ReplicaWorld):
    """Replicas, and the manager told after them."""

    def __init__(self, directory: Path, properties: dict[str, str] | None = None) -> None:
        super().__init__(directory, {**SWITCHED_ON, **(properties or {})})
        self.partitions = WalPartitions(
            lambda partition: WalIntervalMap(BUCKET, 3_600_000, lambda bucket: True),
            lambda partition: Placement.ELSEWHERE,
        )
        self.topic, self.uploads, self.republishing, self.reader = Topic(), Uploads(), Republishing(), Reader()
        self.refollowed: list[Partition] = []
        self.woken: list[set[TopicIdPartition]] = []
        self.manager = RemoteWalManager(
            LOCAL_BROKER_ID,
            hosted=self.replicas.hosted_partition,
            partitions=self.partitions,
            topic=self.topic,
            reader=self.reader,  # type: ignore[arg-type]
            uploads=self.uploads,
            republishing=self.republishing,
            refollow=self._refollow,
            wake=lambda partitions: self.woken.append(set(partitions)),
            config=self.config,
        )

    def _refollow(self, partitions: Iterable[Partition]) -> None:
        self.refollowed += partitions

    def replay(self, *records: MetadataRecord) -> None:
        delta = MetadataDelta(self.metadata.image)
        for record in records:
            delta.replay(record)
        super().replay(*records)
        for partition in self.replicas.partitions():
            if partition.local_log is None:
                continue
            partition.log.update_config(self.topic_config(partition.topic_partition.topic))
        self.tell(delta, self.metadata.image)

    def tell(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.manager.on_metadata(delta, image)

    def fill_disk(self) -> None:
        self.logs.failure = StorageFailure("the disk is full")
        self.replicas._hosted._set_offline(T0.topic_partition)

    def free_disk(self) -> None:
        self.logs.failure = None
        self.replicas.reopen_offline()
        for log in self.logs.all():
            log.update_config(self.topic_config(log.topic_partition.topic))
        self.manager.settle()

    def set_config(self, value: str | None) -> None:
        self.replay(
            ConfigRecord(
                resource_type=int(ConfigResourceType.TOPIC), resource_name="t", name="remote.wal.enable", value=value
            )
        )


class StartingWorld(World):
    """A broker that starts: the manager is told of nothing before `release`, and then of all at once."""

    is_released = False

    def tell(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if self.is_released:
            super().tell(delta, image)

    def release(self) -> None:
        self.is_released = True
        self.tell(MetadataDelta.between(MetadataImage.EMPTY, self.metadata.image), self.metadata.image)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.register_brokers(LOCAL_BROKER_ID, OTHER)
    return made


def test_a_leader_with_followers_uploads(world: World) -> None:
    world.create_topic(replicas=PAIR, configs=WAL)
    assert world.uploads.active == {T0: 0}
    assert isinstance(world.partition().leader_wal, Wal)
    assert [epoch for epoch, _ in world.republishing.begun] == [0]


def test_a_topic_without_the_setting_is_replicated_as_ever(world: World) -> None:
    world.create_topic(replicas=PAIR)
    assert world.uploads.active == {}
    assert world.partition().leader_wal is None
    assert len(world.partitions) == 0
    assert world.topic.assigned == OWN_OBJECTS


def test_a_leader_without_followers_uploads_nothing_until_it_has_one(world: World) -> None:
    world.create_topic(replicas=(LOCAL_BROKER_ID,), configs=WAL)
    assert world.uploads.active == {}
    world.place(replicas=PAIR, adding_replicas=(OTHER,))
    assert world.uploads.active == {T0: 0}


def test_a_change_of_the_isr_is_no_new_term(world: World) -> None:
    world.create_topic(replicas=PAIR, configs=WAL)
    before = world.partition().leader_wal
    world.place(isr=(LOCAL_BROKER_ID,))
    assert world.uploads.activations == 1
    assert world.partition().leader_wal is before


def test_each_epoch_it_leads_begins_anew(world: World) -> None:
    world.create_topic(replicas=PAIR, configs=WAL)
    before = world.partition().leader_wal
    world.place(leader_epoch=1)
    assert world.uploads.active == {T0: 1}
    assert world.partition().leader_wal is not before
    assert [epoch for epoch, _ in world.republishing.begun] == [0, 1]


def test_a_follower_uploads_nothing_and_keeps_what_is_known(world: World) -> None:
    world.create_topic(replicas=PAIR, configs=WAL)
    known = world.partitions.map_of(T0)
    world.place(leader=OTHER, leader_epoch=1)
    assert world.uploads.active == {}
    assert world.republishing.ended == [T0]
    assert world.partition().leader_wal is None
    assert world.partitions.map_of(T0) is known


def test_what_is_deleted_is_forgotten(world: World) -> None:
    world.create_topic(replicas=PAIR, configs=WAL)
    world.delete_topic()
    assert world.uploads.active == {}
    assert len(world.partitions) == 0
    assert world.topic.assigned == OWN_OBJECTS


def test_it_reads_what_all_brokers_announce_and_what_is_said_of_its_partitions(world: World) -> None:
    world.create_topic(replicas=PAIR, configs=WAL)
    of_brokers = {combined_event_partition_of(broker_id, COUNT) for broker_id in PAIR}
    of_partition = metadata_partition_of(T0.topic_id, 0, COUNT)
    assert world.topic.assigned == of_brokers | {of_partition}
    assert world.topic.unhurried == OWN_OBJECTS | {of_partition}  # what it tells itself, or has been told of the object
    assert len(OWN_OBJECTS) < len(world.topic.unhurried) < len(world.topic.assigned)
    assert sorted(world.reader.begun) == sorted(world.topic.assigned)
    world.register_brokers(7)
    assert combined_event_partition_of(7, COUNT) in world.topic.assigned
    assert sorted(world.reader.begun) == sorted(world.topic.assigned)  # each once: the others are read on


def test_the_topic_may_come_into_being_later(world: World) -> None:
    world.topic.partition_count = None
    world.create_topic(replicas=PAIR, configs=WAL)
    assert world.topic.assigned == OWN_OBJECTS
    world.topic.partition_count = COUNT
    world.manager.settle()
    assert metadata_partition_of(T0.topic_id, 0, COUNT) in world.topic.assigned


def test_a_new_topic_has_no_history_to_read(world: World) -> None:
    world.create_topic("first", replicas=PAIR, configs=WAL)
    world.create_topic(replicas=PAIR, configs=WAL)
    assert world.topic.read_anew == []


def test_what_comes_here_later_reads_what_was_announced_before(world: World) -> None:
    """Its metadata partition is read for another user partition already."""
    world.topic.partition_count = 1
    world.create_topic("first", replicas=PAIR, configs=WAL)
    world.create_topic(replicas=(OTHER,), leader=OTHER, configs=WAL)
    world.place(replicas=(OTHER, LOCAL_BROKER_ID), leader=OTHER)
    assert world.topic.read_anew == [0]
    assert world.reader.begun[-2:] == [0, 0]  # what is told once more is told once more to all, and is history


def test_without_slice_events_the_objects_of_all_leaders_are_read_again(tmp_path: Path) -> None:
    world = World(tmp_path, {"remote.wal.metadata.slice.events.enable": "false"})
    world.register_brokers(LOCAL_BROKER_ID, OTHER)
    world.create_topic("first", replicas=PAIR, configs=WAL)
    world.create_topic(replicas=(OTHER,), leader=OTHER, configs=WAL)
    world.place(replicas=(OTHER, LOCAL_BROKER_ID), leader=OTHER)
    assert {combined_event_partition_of(broker_id, COUNT) for broker_id in PAIR} <= set(world.topic.read_anew)
    assert len(world.topic.read_anew) == len(set(world.topic.read_anew))
    assert set(world.topic.read_anew) <= world.topic.assigned


@pytest.mark.parametrize("has_slice_events", [True, False])
def test_what_comes_here_reads_all_of_what_nothing_here_was_read_for_before(
    tmp_path: Path, has_slice_events: bool
) -> None:
    """An earlier run may have read it, for partitions that have left."""
    world = World(tmp_path, {"remote.wal.metadata.slice.events.enable": str(has_slice_events).lower()})
    world.register_brokers(*PAIR)
    world.create_topic(replicas=(OTHER,), leader=OTHER, configs=WAL)
    assert world.topic.assigned == OWN_OBJECTS
    world.place(replicas=(OTHER, LOCAL_BROKER_ID), leader=OTHER)
    of_partition = {metadata_partition_of(T0.topic_id, 0, COUNT)}
    of_brokers = {combined_event_partition_of(broker_id, COUNT) for broker_id in PAIR}
    assert world.topic.read_anew == sorted(of_partition if has_slice_events else of_partition | of_brokers)


def test_what_came_here_while_the_broker_was_down_reads_all_and_what_was_here_does_not(tmp_path: Path) -> None:
    world = StartingWorld(tmp_path)
    world.register_brokers(*PAIR)
    world.create_topic("old", replicas=PAIR, configs=WAL)
    world.append(batch(b"a"), topic="old")
    world.create_topic(replicas=PAIR, leader=OTHER, configs=WAL)
    of_old, of_new = (metadata_partition_of(topic_uuid(name), 0, COUNT) for name in ("old", "t"))
    assert of_old != of_new
    world.release()
    assert {of_old, of_new} <= world.topic.assigned
    assert world.topic.read_anew == [of_new]


def test_nothing_is_read_before_the_metadata_is_told(tmp_path: Path) -> None:
    """What tells of partitions that are not known to be here is lost, the broker's own objects above all."""
    world = StartingWorld(tmp_path)
    world.register_brokers(*PAIR)
    world.create_topic(replicas=PAIR, configs=WAL)
    world.manager.settle()
    assert world.topic.assigned == frozenset()
    world.release()
    assert world.topic.assigned > OWN_OBJECTS


def test_it_is_switched_on_and_off_while_in_use(world: World) -> None:
    world.create_topic(replicas=PAIR)
    world.set_config("true")
    assert world.uploads.active == {T0: 0}
    world.set_config(None)
    assert world.uploads.active == {}
    assert world.partition().leader_wal is None
    assert world.refollowed == []


def test_a_follower_looks_for_its_leader_anew_when_it_is_switched(world: World) -> None:
    world.create_topic(replicas=PAIR, leader=OTHER)
    world.set_config("true")
    assert world.refollowed == [world.partition()]
    world.set_config("true")
    assert world.refollowed == [world.partition()]
    world.set_config("false")
    assert world.refollowed == [world.partition(), world.partition()]


def test_what_is_announced_wakes_the_followers_of_it(world: World) -> None:
    world.create_topic(replicas=PAIR, leader=OTHER, configs=WAL)
    world.reader.entries = [replace(entry(0, 9), partition=T0)]
    world.manager.on_records(0, [])
    world.manager.on_records(0, [])  # the same again
    assert world.woken == [{T0}]


def test_a_leader_keeps_no_slices_of_what_all_have(world: World) -> None:
    world.create_topic(replicas=PAIR, isr=(LOCAL_BROKER_ID,), configs={**WAL, "min.insync.replicas": "1"})
    world.append(batch(b"a"), batch(b"b"))
    assert world.partition().log.high_watermark == 2
    known = world.partitions.map_of(T0)
    assert known is not None
    world.manager.on_records(0, [])
    world.reader.entries = [replace(entry(0, 0), partition=T0)]
    world.manager.on_records(0, [])
    world.reader.entries = [replace(entry(1, 1), partition=T0)]
    world.manager.on_records(0, [])
    assert len(known) == 0
    assert [(run.start_offset, run.end_offset) for run in known.coverage.runs] == [(0, 2)]


def test_a_leader_whose_high_watermark_stands_still_keeps_a_few_slices_and_reads_nothing_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal_interval_map, "ENTRIES_MAX", 5)
    monkeypatch.setattr(wal_interval_map, "PASSED_MAX", 2)
    world.create_topic(replicas=PAIR, configs=WAL)
    known = world.partitions.map_of(T0)
    assert known is not None
    for offset in range(20):
        world.append(batch(b"a"))
        world.reader.entries = [replace(entry(offset, offset), partition=T0)]
        world.manager.on_records(0, [])
        world.manager.settle()
    assert world.partition().log.high_watermark == 0
    assert (len(known), world.topic.read_anew) == (2, [])


def test_log_starts_that_moved_are_taken_over(world: World) -> None:
    world.create_topic(replicas=PAIR, isr=(LOCAL_BROKER_ID,), configs={**WAL, "min.insync.replicas": "1"})
    world.append(batch(b"a"), batch(b"b"))
    partition = world.partition()
    partition.log.maybe_increment_log_start_offset(1, "test")
    world.manager.settle()
    known = world.partitions.map_of(T0)
    assert known is not None and known.log_start_offset == 1
    assert isinstance(partition.leader_wal, Wal) and partition.leader_wal.log_start_moves == 1
    world.manager.settle()
    assert partition.leader_wal.log_start_moves == 1


def test_a_partition_that_cannot_be_settled_is_told_once_until_it_can_be(world: World) -> None:
    world.create_topic(replicas=PAIR, isr=(LOCAL_BROKER_ID,), configs={**WAL, "min.insync.replicas": "1"})
    known, log = world.partitions.map_of(T0), world.partition().log
    assert known is not None

    def settled(is_possible: bool) -> list[str]:
        world.append(batch(b"a"))
        log.maybe_increment_log_start_offset(log.log_end_offset, "test")
        with pytest.MonkeyPatch.context() as patch, capture_logs() as logged:
            if not is_possible:
                patch.setattr(WalIntervalMap, "log_start_moved", refuse)
            world.manager.settle()
        return [each["log_level"] for each in logged if each["event"] == "wal_partition_not_settled"]

    assert [settled(False), settled(False), settled(True), settled(False)] == [["warning"], ["debug"], [], ["warning"]]
    world.delete_topic()
    world.create_topic(replicas=PAIR, isr=(LOCAL_BROKER_ID,), configs={**WAL, "min.insync.replicas": "1"})
    log = world.partition().log
    assert settled(False) == ["warning"]


def refuse(known: WalIntervalMap, log_start_offset: int) -> None:
    raise StorageFailure("the disk does not answer")


def test_what_leaves_the_disk_for_tiered_storage_is_no_loss_to_those_that_follow(tmp_path: Path) -> None:
    world = World(tmp_path, dict(TIERING))
    configs = {**WAL, **TIERED, "min.insync.replicas": "1"}
    world.create_topic(replicas=PAIR, isr=(LOCAL_BROKER_ID,), configs=configs)
    world.append(batch(b"a"), batch(b"b"))
    partition = world.partition()
    tier(partition.log, 1)
    world.manager.settle()
    known = world.partitions.map_of(T0)
    assert known is not None and (known.log_start_offset, partition.log.log_start_offset) == (1, 0)
    assert isinstance(partition.leader_wal, Wal) and partition.leader_wal.log_start_moves == 1


def test_a_leader_whose_disk_is_back_uploads_again(world: World) -> None:
    world.create_topic(replicas=PAIR, configs=WAL)
    partition = world.partition()
    partition.leader_wal = None
    world.manager.settle()
    assert isinstance(partition.leader_wal, Wal)
    assert world.uploads.activations == 2


@pytest.mark.parametrize("leader", PAIR)
def test_a_replica_whose_disk_is_full_keeps_what_is_known_until_space_is_freed(world: World, leader: int) -> None:
    world.create_topic(replicas=PAIR, leader=leader, configs=WAL)
    known = world.partitions.map_of(T0)
    world.fill_disk()
    world.place(replicas=PAIR, leader=leader, leader_epoch=1)
    assert world.partition().is_offline
    assert world.partitions.map_of(T0) is known
    assert world.uploads.active == {}
    world.free_disk()
    assert world.partitions.map_of(T0) is known
    assert world.uploads.active == ({T0: 1} if leader == LOCAL_BROKER_ID else {})


@pytest.mark.parametrize("leader", PAIR)
def test_a_replica_that_was_never_online_is_settled_when_its_log_can_be_opened(world: World, leader: int) -> None:
    world.topic.partition_count = 1
    world.create_topic("first", replicas=PAIR, configs=WAL)
    world.logs.failure = StorageFailure("the disk is full")
    world.create_topic(replicas=PAIR, leader=leader, configs=WAL)
    assert world.partitions.map_of(T0) is None
    world.free_disk()
    assert world.partitions.map_of(T0) is not None
    assert (T0 in world.uploads.active) == (leader == LOCAL_BROKER_ID)
    assert world.topic.read_anew == [0]


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_switch_while_a_disk_is_full_holds_when_it_is_not_any_more(world: World, value: str) -> None:
    world.create_topic(replicas=PAIR, configs={"remote.wal.enable": "false" if value == "true" else "true"})
    world.fill_disk()
    world.set_config(value)
    world.free_disk()
    assert (T0 in world.uploads.active) == (value == "true")
    assert (world.partitions.map_of(T0) is not None) == (value == "true")


def test_what_is_deleted_while_a_disk_is_full_does_not_come_back(world: World) -> None:
    world.create_topic(replicas=PAIR, configs=WAL)
    world.fill_disk()
    world.place(replicas=PAIR, leader_epoch=1)
    world.delete_topic()
    world.free_disk()
    assert (world.uploads.active, len(world.partitions)) == ({}, 0)
