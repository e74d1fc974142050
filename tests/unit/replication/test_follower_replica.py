from pathlib import Path

import pytest

from broker.common.errors import CorruptMessageError, NotLeaderOrFollowerError, OffsetOutOfRangeError
from broker.common.identifiers import TopicPartition
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.log.log_append import UnexpectedAppendOffsetError
from broker.log.producer_snapshot import encode_snapshot
from broker.records.record_batch import batches
from broker.replication.fetch_params import FetchPartition
from broker.replication.remote_log import RemoteLogState
from tests.unit.replication.follower_world import FollowerWorld, records


class Listener:
    def __init__(self) -> None:
        self.high_watermarks: list[int] = []

    def on_high_watermark_updated(self, topic_partition: TopicPartition, offset: int) -> None:
        self.high_watermarks.append(offset)

    def on_becoming_follower(self, topic_partition: TopicPartition) -> None: ...
    def on_deleted(self, topic_partition: TopicPartition) -> None: ...


class Watcher:
    def __init__(self) -> None:
        self.told = 0

    def on_partition_changed(self, request: FetchPartition) -> None:
        self.told += 1


def test_what_is_appended_is_told(tmp_path: Path) -> None:
    world = FollowerWorld(tmp_path)
    first, second = records(0, "a", "b"), records(2, "c")
    info = world.replica().append(first + second)
    assert (info.last_offset, info.valid_bytes) == (2, len(first) + len(second))
    assert world.partition().log.log_end_offset == 3


def test_offsets_of_the_leader_count_as_far_as_the_log_goes(tmp_path: Path) -> None:
    world = FollowerWorld(tmp_path)
    replica, partition = world.replica(), world.partition()
    listener, watcher = Listener(), Watcher()
    partition.add_listener(listener)
    partition.watch_fetch(FetchPartition("t", 0, 0, 100), watcher, is_from_follower=False)
    replica.append(records(0, "a", "b", "c"))
    replica.update_offsets(9, 0)
    replica.update_offsets(9, 0)
    assert partition.log.high_watermark == 3
    replica.update_offsets(2, 1)  # a new leader may know less
    assert (partition.log.high_watermark, partition.log.log_start_offset) == (2, 1)
    assert listener.high_watermarks == [3, 2]
    assert watcher.told == 3  # twice for the high watermark, once for the start
    with pytest.raises(OffsetOutOfRangeError):
        replica.update_offsets(2, 3)


def test_between_high_watermark_and_log_start_nobody_looks(tmp_path: Path) -> None:
    """Records that the leader has deleted would be served below a high watermark they never had here."""
    world = FollowerWorld(tmp_path)
    replica, partition = world.replica(), world.partition()
    seen = []

    class Looking(Listener):
        def on_high_watermark_updated(self, topic_partition: TopicPartition, offset: int) -> None:
            seen.append((partition.log.log_start_offset, offset))

    partition.add_listener(Looking())
    replica.append(records(0, "a", "b", "c"))
    replica.update_offsets(3, 2)
    assert seen == [(2, 3)]


def test_batches_are_appended_at_the_log_end_and_nowhere_else(tmp_path: Path) -> None:
    world = FollowerWorld(tmp_path)
    replica, log = world.replica(), world.partition().log
    info = replica.append_batches(list(batches(records(0, "a", "b") + records(2, "c"))))
    assert (info.last_offset, log.log_end_offset, log.latest_epoch) == (2, 3, 0)
    assert replica.append_batches([]).valid_bytes == 0
    for offset in (2, 4):  # known already, and a gap
        with pytest.raises(UnexpectedAppendOffsetError):
            replica.append_batches(list(batches(records(offset, "x"))))
    assert log.log_end_offset == 3


def test_an_empty_log_restarts_below_its_start_and_keeps_it(tmp_path: Path) -> None:
    world = FollowerWorld(tmp_path)
    replica, log = world.replica(), world.partition().log
    replica.truncate_fully_and_start_at(2)
    around_the_start = list(batches(records(1, "a", "b", "c")))
    with pytest.raises(UnexpectedAppendOffsetError):
        replica.append_batches(around_the_start, restart_at=2)
    assert replica.append_batches(around_the_start, restart_at=1).last_offset == 3
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2, 2, 4)
    with pytest.raises(UnexpectedAppendOffsetError):  # there are records now
        replica.append_batches(around_the_start, restart_at=1)
    replica.truncate_fully_and_start_at(9)
    with pytest.raises(UnexpectedAppendOffsetError):  # ends below the start
        replica.append_batches(list(batches(records(7, "a"))), restart_at=7)
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)


def test_cutting_tells_who_reads_here(tmp_path: Path) -> None:
    world = FollowerWorld(tmp_path)
    replica, watcher = world.replica(), Watcher()
    replica.append(records(0, "a") + records(1, "b"))
    world.partition().watch_fetch(FetchPartition("t", 0, 0, 100), watcher, is_from_follower=False)
    replica.truncate_to(5)
    assert watcher.told == 0
    replica.truncate_to(1)
    assert (world.partition().log.log_end_offset, watcher.told) == (1, 1)
    replica.truncate_fully_and_start_at(7)
    assert (world.partition().log.log_start_offset, watcher.told) == (7, 2)


def test_a_permission_ends_with_its_epoch_and_with_leadership(tmp_path: Path) -> None:
    world = FollowerWorld(tmp_path)
    old = world.replica()
    world.place(leader=2, leader_epoch=1)
    new = world.replica()
    assert (old.is_valid, new.is_valid) == (False, True)
    with pytest.raises(NotLeaderOrFollowerError):
        old.append(records(0, "a"))
    world.place(leader=1, leader_epoch=2)
    with pytest.raises(NotLeaderOrFollowerError):
        new.truncate_to(0)
    with pytest.raises(NotLeaderOrFollowerError):
        new.truncate_fully_and_start_at(0)
    with pytest.raises(NotLeaderOrFollowerError):
        new.restore_from_remote(RemoteLogState(9, (), encode_snapshot(())), 0)
    with pytest.raises(NotLeaderOrFollowerError):
        new.update_offsets(0, 0)


def test_an_empty_log_takes_the_whole_batch_the_leader_begins_in(tmp_path: Path) -> None:
    world = FollowerWorld(tmp_path)
    replica = world.replica()
    replica.truncate_fully_and_start_at(2)
    replica.append(records(0, "a", "b", "c"))
    log = world.partition().log
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)
    with pytest.raises(UnexpectedAppendOffsetError):  # the log is not empty now
        replica.append(records(1, "x", "y", "z"))


def test_a_log_that_ends_where_the_leaders_begins_takes_the_whole_batch_too(tmp_path: Path) -> None:
    """All of it is deleted on the leader, and what was cut off last was another leader's half of these offsets."""
    world = FollowerWorld(tmp_path)
    replica = world.replica()
    replica.append(records(0, "a", "b"))
    with pytest.raises(UnexpectedAppendOffsetError):
        replica.append(records(1, "x", "y", "z"), 1)
    replica.append(records(1, "x", "y", "z"), 2)
    log = world.partition().log
    assert (log.log_start_offset, log.log_end_offset) == (1, 4)


def test_a_batch_of_an_older_epoch_than_the_newest_is_corruption(tmp_path: Path) -> None:
    world = FollowerWorld(tmp_path)
    world.place(leader=2, leader_epoch=5)
    replica = world.replica()
    replica.append(records(0, "a", epoch=3))
    with pytest.raises(CorruptMessageError):
        replica.append(records(1, "b", epoch=2))
    with pytest.raises(CorruptMessageError):
        replica.append(records(1, "b", epoch=4) + records(2, "c", epoch=3))
    assert world.partition().log.log_end_offset == 1
    assert [tuple(entry) for entry in world.partition().log.leader_epochs.entries] == [(3, 0)]


def test_a_log_that_begins_behind_remote_storage_keeps_what_came_before_the_records(tmp_path: Path) -> None:
    world = FollowerWorld(tmp_path)
    replica = world.replica()
    replica.append(records(0, "a"))
    request = FetchPartition("t", 0, 0, 100)
    watcher = Watcher()
    world.partition().watch_fetch(request, watcher, is_from_follower=False)
    replica.restore_from_remote(RemoteLogState(90, (EpochEntry(0, 20),), encode_snapshot(())), 20)
    log = world.partition().log
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (20, 90, 90)
    assert (log.high_watermark, log.latest_epoch) == (90, 0)
    assert watcher.told == 1  # who reads here looks again
