from pathlib import Path

import pytest

from broker.common.errors import ErrorCode
from broker.replication.topic_stats import ReplicationPath
from tests.support.builders import ReplicaWorld
from tests.support.recording_leader_wal import RecordingLeaderWal
from tests.unit.replication.test_partition import follower_fetches, replicated


@pytest.mark.parametrize(
    ("replica_id", "replica_epoch", "leader_epoch", "error"),
    [
        (2, 12, 0, None),
        (2, -1, 0, None),  # a follower that does not say who it is
        (2, 11, 0, ErrorCode.not_leader_or_follower),
        (2, 13, 0, ErrorCode.not_leader_or_follower),
        (4, 14, 0, ErrorCode.unknown_leader_epoch),
        (4, 14, -1, ErrorCode.not_leader_or_follower),
    ],
)
def test_who_may_not_fetch(
    tmp_path: Path, replica_id: int, replica_epoch: int, leader_epoch: int, error: ErrorCode | None
) -> None:
    followers = replicated(tmp_path).partition().followers
    assert followers.fetch_error(replica_id, replica_epoch, leader_epoch) is error


def test_who_stays_is_remembered_and_who_leads_no_more_knows_nobody(tmp_path: Path) -> None:
    world = replicated(tmp_path)
    followers = world.partition().followers
    follower_fetches(world, 2, 0)
    known = followers.states[2]
    followers.place((1, 2, 4))
    assert followers.states.keys() == {2, 4}
    assert followers.states[2] is known
    followers.forget()
    assert followers.states == {}


def test_an_idle_follower_had_everything_when_it_last_asked(tmp_path: Path) -> None:
    world = replicated(tmp_path)
    follower_fetches(world, 2, 0)
    followers = world.partition().followers
    followers.note_idle(2, world.now_ms + 500)
    followers.note_idle(9, world.now_ms + 500)
    assert followers.states[2].last_caught_up_time_ms == world.now_ms + 500


def sent(world: ReplicaWorld) -> dict[tuple[ReplicationPath, int], int]:
    return world.partition().topic_stats.sent_bytes


def test_bytes_to_followers_count_by_path(tmp_path: Path) -> None:
    world = replicated(tmp_path)
    partition, wal = world.partition(), RecordingLeaderWal()
    partition.followers.count_sent(2, 100)
    partition.leader_wal = wal
    partition.followers.count_sent(2, 7)
    partition.followers.count_sent(3, 5)
    assert sent(world) == {("fetch", 2): 100, ("fallback", 2): 7, ("fallback", 3): 5}
    assert wal.fallback_bytes == {2: 7, 3: 5}
