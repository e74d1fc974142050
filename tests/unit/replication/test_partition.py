from pathlib import Path

import pytest

from broker.common.errors import (
    ErrorCode,
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    StorageFailure,
    UnknownLeaderEpochError,
)
from broker.common.identifiers import TopicPartition
from broker.replication.fetch_params import FetchIsolation, FetchPartition
from broker.replication.partition import Partition
from tests.support.builders import ReplicaWorld, batch, registration
from tests.support.recording_leader_wal import RecordingLeaderWal

T = TopicPartition("t", 0)


def replicated(tmp_path: Path, **topic: object) -> ReplicaWorld:
    world = ReplicaWorld(tmp_path)
    world.register_brokers(1, 2, 3)
    world.create_topic(**{"replicas": (1, 2, 3), **topic})  # type: ignore[arg-type]
    return world


def follower_fetches(world: ReplicaWorld, broker_id: int, offset: int, log_start_offset: int = 0) -> None:
    partition = world.partition()
    partition.update_follower_fetch_state(
        broker_id,
        fetch_offset=offset,
        log_start_offset=log_start_offset,
        leader_log_end_offset=partition.log.log_end_offset,
        replica_epoch=10 + broker_id,
    )


class Listener:
    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def on_high_watermark_updated(self, topic_partition: TopicPartition, offset: int) -> None:
        self.events.append(("high_watermark", offset))

    def on_becoming_follower(self, topic_partition: TopicPartition) -> None:
        self.events.append(("follower",))

    def on_deleted(self, topic_partition: TopicPartition) -> None:
        self.events.append(("deleted", str(topic_partition)))


class Watcher:
    def __init__(self) -> None:
        self.told: list[FetchPartition] = []

    def on_partition_changed(self, request: FetchPartition) -> None:
        self.told.append(request)


def test_a_new_leader_begins_its_epoch_at_its_end(tmp_path: Path) -> None:
    world = replicated(tmp_path, leader_epoch=3)
    world.append(batch("a", "b"))
    world.place(leader=1, leader_epoch=4)
    partition = world.partition()
    assert (partition.leader_epoch, partition.partition_epoch, partition.leader_epoch_start_offset) == (4, 1, 2)
    assert [tuple(entry) for entry in partition.log.leader_epochs.entries] == [(3, 0), (4, 2)]
    assert partition.remote_replicas.keys() == {2, 3}


def test_the_same_epoch_with_a_higher_partition_epoch_changes_the_assignment_only(tmp_path: Path) -> None:
    world = replicated(tmp_path)
    follower_fetches(world, 2, 0)
    kept = world.partition().remote_replicas[2]
    world.append(batch("a"))
    world.place(replicas=(1, 2, 4), isr=(1, 2), adding_replicas=(4,), removing_replicas=(3,))
    partition = world.partition()
    assert partition.leader_epoch_start_offset == 0
    assert partition.remote_replicas[2] is kept
    assert partition.remote_replicas.keys() == {2, 4}
    assert partition.is_reassigning
    assert not partition.is_under_replicated  # a replica that is being added does not count


def test_becoming_leader_is_told_once(tmp_path: Path) -> None:
    world = replicated(tmp_path)
    partition = Partition(T, world.partition().topic_id, world.replicas.context, world.partition().topic_stats)
    assert partition.make_leader(registration())
    assert not partition.make_leader(registration(leader_epoch=1))
    assert not partition.make_leader(registration(leader_epoch=2, partition_epoch=-1))
    assert partition.leader_epoch == 1


def test_becoming_follower_tells_whether_the_epoch_is_new(tmp_path: Path) -> None:
    world = replicated(tmp_path)
    partition = world.partition()
    listener = Listener()
    partition.add_listener(listener)
    assert partition.make_follower(registration(leader=2, leader_epoch=1, partition_epoch=1))
    assert not partition.make_follower(registration(leader=2, leader_epoch=1, partition_epoch=2))
    assert not partition.make_follower(registration(leader=3, leader_epoch=9, partition_epoch=1))
    assert (partition.leader_id, partition.leader_epoch, partition.is_leader, partition.isr) == (2, 1, False, ())
    assert partition.remote_replicas == {}
    assert listener.events == [("follower",)]


def test_epochs_of_clients_are_checked(tmp_path: Path) -> None:
    world = replicated(tmp_path, leader_epoch=5)
    partition = world.partition()
    assert partition.leader_log(-1) is partition.log
    assert partition.leader_log(5) is partition.log
    with pytest.raises(FencedLeaderEpochError):
        partition.leader_log(4)
    with pytest.raises(UnknownLeaderEpochError):
        partition.leader_log(6)
    partition.is_leader = False
    with pytest.raises(NotLeaderOrFollowerError):
        partition.leader_log(5)
    assert partition.leader_log(5, must_lead=False) is partition.log


def test_what_an_isolation_may_see(tmp_path: Path) -> None:
    world = replicated(tmp_path)
    world.append(batch("a"))
    world.append(batch("b", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    follower_fetches(world, 2, 2)
    follower_fetches(world, 3, 2)
    world.append(batch("c"))
    partition = world.partition()
    assert partition.fetch_limit(FetchIsolation.LOG_END) == 3
    assert partition.fetch_limit(FetchIsolation.HIGH_WATERMARK) == 2
    assert partition.fetch_limit(FetchIsolation.TXN_COMMITTED) == 1
    assert partition.last_stable_offset_lag == 1


def test_listeners_and_watchers_hear_of_the_high_watermark(tmp_path: Path) -> None:
    world = replicated(tmp_path, replicas=(1, 2))
    partition, listener, consumer, follower = world.partition(), Listener(), Watcher(), Watcher()
    asked, copied = FetchPartition("t", 0, 0, 1), FetchPartition("t", 0, 0, 1)
    partition.add_listener(listener)
    partition.watch_fetch(asked, consumer, is_from_follower=False)
    partition.watch_fetch(copied, follower, is_from_follower=True)
    world.append(batch("a"))
    assert (listener.events, consumer.told, follower.told) == ([], [], [copied])
    follower_fetches(world, 2, 1)
    assert (listener.events, consumer.told, follower.told) == ([("high_watermark", 1)], [asked], [copied, copied])
    partition.unwatch_fetch(asked)
    partition.remove_listener(listener)
    world.append(batch("b"))
    follower_fetches(world, 2, 2)
    assert (len(listener.events), len(consumer.told)) == (1, 1)


def test_a_stopped_partition_tells_everybody(tmp_path: Path) -> None:
    world = replicated(tmp_path)
    partition, listener, watcher = world.partition(), Listener(), Watcher()
    request = FetchPartition("t", 0, 0, 1)
    request.hosted = partition
    partition.add_listener(listener)
    partition.watch_fetch(request, watcher, is_from_follower=False)
    partition.stop(ErrorCode.kafka_storage_error, is_deleted=False)
    assert (listener.events, watcher.told, request.hosted) == ([("deleted", "t-0")], [request], None)
    assert partition.is_offline
    with pytest.raises(StorageFailure):
        _ = partition.log


def test_gauges_of_the_isr(tmp_path: Path) -> None:
    world = replicated(tmp_path, isr=(1, 2), configs={"min.insync.replicas": "2"})
    partition = world.partition()
    assert (partition.is_under_replicated, partition.is_at_min_isr, partition.is_under_min_isr) == (True, True, False)
    world.place(isr=(1,))
    assert (partition.is_under_replicated, partition.is_at_min_isr, partition.is_under_min_isr) == (True, False, True)
    world.place(leader=2, leader_epoch=1)
    assert (partition.is_under_replicated, partition.is_at_min_isr, partition.is_under_min_isr) == (
        False,
        False,
        False,
    )


def test_the_low_watermark_counts_alive_replicas(tmp_path: Path) -> None:
    world = replicated(tmp_path)
    world.append(batch("a", "b", "c"))
    assert world.partition().low_watermark == -1  # two alive replicas have not said theirs
    follower_fetches(world, 2, 3, log_start_offset=2)
    follower_fetches(world, 3, 3, log_start_offset=1)
    assert world.partition().low_watermark == 0
    assert world.partition().delete_records_on_leader(-1) == 3
    assert world.partition().low_watermark == 1
    world.register_brokers(3, fenced=True)
    assert world.partition().low_watermark == 2


@pytest.mark.parametrize("offset", [4, -2])
def test_records_above_the_high_watermark_are_not_deleted(tmp_path: Path, offset: int) -> None:
    world = ReplicaWorld(tmp_path)
    world.create_topic()
    world.append(batch("a", "b", "c"))
    with pytest.raises(OffsetOutOfRangeError):
        world.partition().delete_records_on_leader(offset)
    assert world.partition().log.log_start_offset == 0


BUCKET = {
    "remote.wal.storage.system.enable": "true",
    "remote.wal.storage.manager.class.name": "LocalWalStorageManager",
    "rwsm.config.bucket": "file:///tmp/bucket",
    "broker.rack": "zone-a",
}


@pytest.mark.parametrize(
    ("properties", "name", "configs", "is_through_bucket"),
    [
        (BUCKET, "t", {"remote.wal.enable": "true"}, True),
        ({}, "t", {"remote.wal.enable": "true"}, False),
        (BUCKET, "t", {}, False),
        (BUCKET, "t", {"remote.wal.enable": "true", "cleanup.policy": "compact"}, False),
        (BUCKET, "t", {"remote.wal.enable": "true", "cleanup.policy": "compact,delete"}, False),
        (BUCKET, "__consumer_offsets", {"remote.wal.enable": "true"}, False),
        (BUCKET, "__remote_wal_log_metadata", {"remote.wal.enable": "true"}, False),
    ],
)
def test_which_partitions_go_through_a_bucket(
    tmp_path: Path, properties: dict[str, str], name: str, configs: dict[str, str], is_through_bucket: bool
) -> None:
    world = ReplicaWorld(tmp_path, properties)
    world.create_topic(name, configs=configs)
    partition = world.partition(name)
    assert partition.is_through_bucket is is_through_bucket
    partition.stop(ErrorCode.kafka_storage_error, is_deleted=False)
    assert not partition.is_through_bucket


def test_who_watches_is_told_when_the_bucket_comes_and_goes(tmp_path: Path) -> None:
    world = replicated(tmp_path)
    partition, watcher, request = world.partition(), Watcher(), FetchPartition("t", 0, 0, 100)
    partition.watch_fetch(request, watcher, is_from_follower=True)
    partition.leader_wal = RecordingLeaderWal()
    partition.leader_wal = None
    assert watcher.told == [request, request]


def test_appends_are_timed_while_there_is_a_path_through_a_bucket(tmp_path: Path) -> None:
    world = replicated(tmp_path)
    world.append(batch("a"))
    assert world.partition().append_seconds == 0
    world.partition().leader_wal = RecordingLeaderWal()
    world.append(batch("b"))
    assert world.partition().append_seconds > 0
