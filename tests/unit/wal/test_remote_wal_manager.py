from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.common.identifiers import TopicIdPartition
from broker.metadata.configs_image import ConfigResourceType
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.replication.partition import Partition
from broker.schemas.cluster_metadata import ConfigRecord, MetadataRecord
from broker.schemas.remote_metadata_partitioner import combined_event_partition_of, metadata_partition_of
from broker.wal.announce.metadata_topic import MetadataRecord as Event
from broker.wal.follow.wal_interval_map import WalIntervalMap
from broker.wal.follow.wal_partitions import Placement, WalPartitions
from broker.wal.remote_wal_manager import RemoteWalManager
from tests.support.builders import LOCAL_BROKER_ID, ReplicaWorld, batch, topic_uuid
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
            partition.log.update_config(self.topic_config(partition.topic_partition.topic))
        self.tell(delta, self.metadata.image)

    def tell(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.manager.on_metadata(delta, image)

    def set_config(self, value: str | None) -> None:
        self.replay(
            ConfigRecord(
                resource_type=int(ConfigResourceType.TOPIC), resource_name="t", name="remote.wal.enable", value=value
            )
        )


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
    assert world.topic.assigned == of_brokers | {metadata_partition_of(T0.topic_id, 0, COUNT)}
    assert world.topic.unhurried == {metadata_partition_of(T0.topic_id, 0, COUNT)} - of_brokers != set()
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


def test_without_slice_events_the_objects_of_all_leaders_are_read_again(tmp_path: Path) -> None:
    world = World(tmp_path, {"remote.wal.metadata.slice.events.enable": "false"})
    world.register_brokers(LOCAL_BROKER_ID, OTHER)
    world.create_topic("first", replicas=PAIR, configs=WAL)
    world.create_topic(replicas=(OTHER,), leader=OTHER, configs=WAL)
    world.place(replicas=(OTHER, LOCAL_BROKER_ID), leader=OTHER)
    assert {combined_event_partition_of(broker_id, COUNT) for broker_id in PAIR} <= set(world.topic.read_anew)


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


def test_a_leader_whose_disk_is_back_uploads_again(world: World) -> None:
    world.create_topic(replicas=PAIR, configs=WAL)
    partition = world.partition()
    partition.leader_wal = None
    world.manager.settle()
    assert isinstance(partition.leader_wal, Wal)
    assert world.uploads.activations == 2
