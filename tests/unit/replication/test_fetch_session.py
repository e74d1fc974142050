from pathlib import Path
from uuid import UUID

import pytest

from broker.common.identifiers import ZERO_UUID
from broker.replication.fetch_params import FetchParams, FetchPartition, FetchPartitionResult
from broker.replication.fetch_session import FetchSession, next_epoch, partition_key
from tests.support.builders import ReplicaWorld, batch
from tests.support.recording_leader_wal import RecordingLeaderWal

CONSUMER = FetchParams(version=12)


@pytest.mark.parametrize(("epoch", "following"), [(0, 1), (1, 2), (2**31 - 1, 1), (-1, -1), (-7, -1)])
def test_epochs_wrap_and_close(epoch: int, following: int) -> None:
    assert next_epoch(epoch) == following


def test_keys_are_ids_where_there_are_ids() -> None:
    topic_id = UUID(int=500)
    assert partition_key("t", topic_id, 3) == (topic_id, 3)
    assert partition_key("t", ZERO_UUID, 3) == ("t", 3)
    assert partition_key(None, ZERO_UUID, 3) == (ZERO_UUID, 3)


class SessionWorld:
    """A session over a topic of several partitions, fetched by hand."""

    def __init__(self, tmp_path: Path, partitions: int, *, params: FetchParams = CONSUMER) -> None:
        self.world = ReplicaWorld(tmp_path)
        self.world.register_brokers(1, 2)
        replicas = (1, 2) if params.is_from_follower else (1,)
        self.world.create_topic(partitions=partitions, replicas=replicas)
        self.params = params
        self.session = FetchSession(7, replica_id=params.replica_id, uses_topic_ids=False, created_ms=0)
        for index in range(partitions):
            self.session.add(FetchPartition("t", index, 0, 10_000, log_start_offset=0))

    def read(self) -> list[FetchPartitionResult]:
        reader = self.world.replicas._reader
        results = reader.locate(self.params, self.session.partitions_to_read(), is_first_read=True)[0]
        return list(results)

    def fetch(self) -> list[int]:
        """Read and answer; the partitions that are told."""
        return [result.partition for result in self.session.select_told(self.read())]


def test_an_idle_session_reads_nothing(tmp_path: Path) -> None:
    """The first fetch tells every partition, the second finds that nothing changed, then there is nothing to read."""
    story = SessionWorld(tmp_path, 50)
    assert story.fetch() == list(range(50))
    assert story.fetch() == []
    assert story.session.dirty_count == 0
    assert story.session.partitions_to_read() == ()


def test_only_what_changed_is_read_and_told(tmp_path: Path) -> None:
    story = SessionWorld(tmp_path, 50)
    story.fetch(), story.fetch()
    story.world.append(batch("a"), partition=17)
    story.world.append(batch("a"), partition=5)
    assert [each.partition for each in story.session.partitions_to_read()] == [17, 5]
    assert story.fetch() == [17, 5]


def test_records_stay_dirty_until_the_client_has_moved_on(tmp_path: Path) -> None:
    story = SessionWorld(tmp_path, 2)
    story.fetch(), story.fetch()
    story.world.append(batch("a"))
    assert story.fetch() == [0]
    assert story.fetch() == [0]  # the client has not said that it took them
    story.session.add(FetchPartition("t", 0, 1, 10_000))
    assert story.fetch() == []
    assert story.session.dirty_count == 0


def test_served_partitions_move_to_the_end_of_the_order(tmp_path: Path) -> None:
    story = SessionWorld(tmp_path, 3)
    story.fetch(), story.fetch()
    for index in range(3):
        story.world.append(batch("a" * 100), partition=index)
    story.params = FetchParams(version=12, max_bytes=100)
    assert [result.partition for result in story.read() if result.size_bytes] == [0]
    story.fetch()
    assert [result.partition for result in story.read() if result.size_bytes] == [1]
    story.fetch()
    assert [result.partition for result in story.read() if result.size_bytes] == [2]


def test_an_error_is_told_each_time_and_its_end_once_more(tmp_path: Path) -> None:
    story = SessionWorld(tmp_path, 1)
    story.fetch(), story.fetch()
    story.world.delete_topic()
    assert story.fetch() == [0]
    assert story.fetch() == [0]
    story.world.create_topic(incarnation=1)
    assert story.fetch() == [0]
    assert story.fetch() == []


def test_the_high_watermark_alone_is_told(tmp_path: Path) -> None:
    follower = FetchParams(version=17, replica_id=2, replica_epoch=12)
    story = SessionWorld(tmp_path, 1, params=follower)
    story.fetch(), story.fetch()
    story.world.append(batch("a"))
    assert story.fetch() == [0]
    story.session.add(FetchPartition("t", 0, 1, 10_000, log_start_offset=0))
    assert story.fetch() == []  # this fetch moves the high watermark, after it was answered
    assert story.session.dirty_count == 1
    assert story.fetch() == [0]
    assert story.fetch() == []


def test_forgotten_partitions_are_not_watched(tmp_path: Path) -> None:
    story = SessionWorld(tmp_path, 2)
    story.fetch(), story.fetch()
    story.session.forget([("t", 0), ("t", 9)])
    story.world.append(batch("a"), partition=0)
    assert (len(story.session), story.session.dirty_count) == (1, 0)
    story.session.close()
    story.world.append(batch("a"), partition=1)
    assert story.session.dirty_count == 0


def test_a_change_between_read_and_answer_is_not_lost(tmp_path: Path) -> None:
    story = SessionWorld(tmp_path, 1)
    story.fetch(), story.fetch()
    story.world.append(batch("a"))
    story.session.add(FetchPartition("t", 0, 1, 10_000))
    results = story.read()
    story.world.append(batch("b"))
    story.session.select_told(results)
    assert story.session.dirty_count == 1
    assert story.fetch() == [0]


def test_an_idle_follower_was_caught_up_when_it_last_asked(tmp_path: Path) -> None:
    """A follower whose partitions are not read stays in sync: the time of its last fetch counts for all of them."""
    follower = FetchParams(version=17, replica_id=2, replica_epoch=12)
    story = SessionWorld(tmp_path, 1, params=follower)
    story.fetch(), story.fetch()
    assert story.session.dirty_count == 0
    story.world.now_ms += 1_000_000
    story.session.last_used_ms = story.world.now_ms - 200
    story.world.append(batch("a"))
    replica = story.world.partition().remote_replicas[2]
    assert replica.last_caught_up_time_ms == replica.mark_time_ms == story.world.now_ms - 200
    story.world.replicas.maybe_shrink_isrs()
    assert story.world.alter_partition.proposals == []


def test_a_follower_outside_the_isr_is_looked_at_in_every_fetch(tmp_path: Path) -> None:
    follower = FetchParams(version=17, replica_id=2, replica_epoch=12)
    story = SessionWorld(tmp_path, 1, params=follower)
    story.world.register_brokers(2, fenced=True)
    story.world.place(isr=(1,))
    story.fetch(), story.fetch(), story.fetch()
    assert story.session.dirty_count == 1
    assert story.world.alter_partition.proposals == []
    story.world.register_brokers(2)
    story.fetch()
    assert story.world.alter_partition.proposed_isr == (1, 2)


FOLLOWER = FetchParams(version=17, replica_id=2, replica_epoch=12)


def bucket_session(tmp_path: Path) -> SessionWorld:
    story = SessionWorld(tmp_path, 1, params=FOLLOWER)
    story.world.partition().leader_wal = RecordingLeaderWal()
    ask(story, 0)
    return story


def ask(story: SessionWorld, offset: int) -> None:
    story.session.add(FetchPartition("t", 0, offset, 10_000, current_leader_epoch=0, log_start_offset=0))


def test_the_same_answer_to_a_question_with_other_epochs_is_left_out_as_in_kafka(tmp_path: Path) -> None:
    story = SessionWorld(tmp_path, 1)
    story.fetch(), story.fetch()
    story.session.add(FetchPartition("t", 0, 0, 10_000, current_leader_epoch=0))
    assert story.fetch() == []


def test_a_follower_through_a_bucket_is_told_it_for_it_waits_for_that(tmp_path: Path) -> None:
    story = bucket_session(tmp_path)
    story.fetch(), story.fetch()
    assert story.fetch() == []
    story.session.add(FetchPartition("t", 0, 0, 10_000, current_leader_epoch=0, last_fetched_epoch=0))
    assert story.fetch() == [0]
    assert story.fetch() == []


def test_a_follower_through_a_bucket_that_is_behind_is_looked_at_in_every_fetch(tmp_path: Path) -> None:
    story = bucket_session(tmp_path)
    story.fetch(), story.fetch()
    assert story.session.dirty_count == 0
    story.world.append(batch("a"))
    for _ in range(3):
        assert story.fetch() == []  # nothing to tell
        assert story.session.dirty_count == 1
    ask(story, 1)
    assert story.fetch() == [0]  # the high watermark
    story.fetch()
    assert story.session.dirty_count == 0


def test_a_follower_through_a_bucket_that_is_behind_does_not_count_as_idle(tmp_path: Path) -> None:
    story = bucket_session(tmp_path)
    story.fetch(), story.fetch()
    replica = story.world.partition().remote_replicas[2]
    caught_up_ms = replica.last_caught_up_time_ms
    story.world.append(batch("a"))
    story.world.now_ms += 1000
    for _ in range(3):
        story.fetch()
        story.session.last_used_ms = story.world.now_ms
        story.world.append(batch("b"))
    assert replica.last_caught_up_time_ms == caught_up_ms


def test_what_a_session_knows_to_be_news(tmp_path: Path) -> None:
    story = bucket_session(tmp_path)
    (cached,) = story.session
    assert cached.is_remembered
    assert cached.has_news(0, 0)
    story.fetch()
    assert not cached.has_news(0, 0)
    assert cached.has_news(1, 0)
    assert cached.has_news(0, 1)
    story.session.add(FetchPartition("t", 0, 0, 10_000, current_leader_epoch=7))
    assert cached.has_news(0, 0)


def test_a_refusal_is_a_new_one_for_a_new_question(tmp_path: Path) -> None:
    story = bucket_session(tmp_path)
    (cached,) = story.session
    for offset, epoch, is_again in ((7, 0, False), (7, 0, True), (8, 0, False), (8, 0, True), (8, 3, False)):
        story.session.add(FetchPartition("t", 0, offset, 10_000, current_leader_epoch=epoch))
        assert cached.is_refused_again is is_again
        assert story.fetch() == [0]
        assert cached.is_refused_again
    ask(story, 0)
    story.fetch()
    assert not cached.is_refused_again
