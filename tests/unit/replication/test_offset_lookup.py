from pathlib import Path

import pytest

from broker.common.errors import (
    LeaderNotAvailableError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    UnsupportedVersionError,
)
from broker.replication.offset_lookup import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NOT_FOUND,
    EpochEnd,
    ListedOffset,
    last_offset_for_leader_epoch,
    list_offset,
)
from tests.support.builders import NOW_MS, ReplicaWorld, batch


@pytest.fixture
def world(tmp_path: Path) -> ReplicaWorld:
    """Offsets 0..4; the record with the largest timestamp is the one at 2."""
    world = ReplicaWorld(tmp_path)
    world.create_topic(leader_epoch=3)
    world.append(
        batch("a", "b", timestamp=NOW_MS), batch("c", timestamp=NOW_MS + 50), batch("d", "e", timestamp=NOW_MS)
    )
    return world


@pytest.mark.parametrize(
    ("timestamp", "answer"),
    [
        (LATEST_TIMESTAMP, ListedOffset(-1, 5, 3)),
        (EARLIEST_TIMESTAMP, ListedOffset(-1, 0, 3)),
        (EARLIEST_LOCAL_TIMESTAMP, ListedOffset(-1, 0, 3)),
        (MAX_TIMESTAMP, ListedOffset(NOW_MS + 50, 2, 3)),
        (LATEST_TIERED_TIMESTAMP, NOT_FOUND),
        (0, ListedOffset(NOW_MS, 0, 3)),
        (NOW_MS + 1, ListedOffset(NOW_MS + 50, 2, 3)),
        (NOW_MS + 51, NOT_FOUND),
    ],
)
def test_offsets_by_timestamp(world: ReplicaWorld, timestamp: int, answer: ListedOffset) -> None:
    assert list_offset(world.partition(), timestamp, version=10) == answer


@pytest.mark.parametrize(("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-100, 11)])
def test_timestamps_a_version_does_not_know(world: ReplicaWorld, timestamp: int, version: int) -> None:
    with pytest.raises(UnsupportedVersionError):
        list_offset(world.partition(), timestamp, version=version)
    if timestamp > -6:
        list_offset(world.partition(), timestamp, version=version + 1)


def test_an_empty_log_has_no_largest_timestamp(tmp_path: Path) -> None:
    world = ReplicaWorld(tmp_path)
    world.create_topic()
    assert list_offset(world.partition(), MAX_TIMESTAMP, version=10) == NOT_FOUND
    assert list_offset(world.partition(), EARLIEST_TIMESTAMP, version=10).offset == 0


def test_a_log_start_without_its_epoch(world: ReplicaWorld) -> None:
    world.partition().log.leader_epochs.clear()
    assert list_offset(world.partition(), EARLIEST_TIMESTAMP, version=10) == ListedOffset(-1, 0, -1)


def test_who_may_see_how_far(tmp_path: Path) -> None:
    world = ReplicaWorld(tmp_path)
    world.register_brokers(1, 2)
    world.create_topic(replicas=(1, 2))
    world.append(batch("a"), batch("b", producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True))
    partition = world.partition()
    partition.update_follower_fetch_state(
        2, fetch_offset=2, log_start_offset=0, leader_log_end_offset=2, replica_epoch=12
    )
    world.append(batch("c", timestamp=NOW_MS + 5))
    latest = {"version": 10, "timestamp": LATEST_TIMESTAMP}
    assert list_offset(partition, **latest).offset == 2
    assert list_offset(partition, **latest, isolation_level=1).offset == 1
    assert list_offset(partition, **latest, replica_id=2).offset == 3
    assert list_offset(partition, **latest, replica_id=-2).offset == 3
    # The record exists, above what consumers may see.
    assert list_offset(partition, NOW_MS + 5, version=10) == NOT_FOUND
    assert list_offset(partition, NOW_MS + 5, version=10, replica_id=2).offset == 2


def test_kip_207_after_an_election(tmp_path: Path) -> None:
    world = ReplicaWorld(tmp_path)
    world.register_brokers(1, 2)
    world.create_topic(replicas=(1, 2))
    world.append(batch("a"))
    world.place(leader=1, leader_epoch=1)
    partition = world.partition()
    for timestamp in (LATEST_TIMESTAMP, MAX_TIMESTAMP, NOW_MS):
        with pytest.raises(OffsetNotAvailableError):
            list_offset(partition, timestamp, version=7)
    with pytest.raises(LeaderNotAvailableError):
        list_offset(partition, LATEST_TIMESTAMP, version=4)
    assert list_offset(partition, EARLIEST_TIMESTAMP, version=4).offset == 0
    partition.is_leader = False
    with pytest.raises(NotLeaderOrFollowerError):
        list_offset(partition, LATEST_TIMESTAMP, version=7)
    assert list_offset(partition, LATEST_TIMESTAMP, version=7, replica_id=-2).offset == 1


def test_where_epochs_ended(world: ReplicaWorld) -> None:
    world.place(leader=1, leader_epoch=7)
    world.append(batch("f"))
    partition = world.partition()
    ends = {epoch: last_offset_for_leader_epoch(partition, epoch) for epoch in (-1, 2, 3, 5, 7, 8)}
    assert ends == {
        -1: EpochEnd(-1, -1),
        2: EpochEnd(2, 0),
        3: EpochEnd(3, 5),
        5: EpochEnd(3, 5),
        7: EpochEnd(7, 6),
        8: EpochEnd(-1, -1),
    }


def test_a_replica_is_told_nothing_of_an_epoch_older_than_all_that_are_known(world: ReplicaWorld) -> None:
    partition = world.partition()
    ends = {epoch: last_offset_for_leader_epoch(partition, epoch, replica_id=2) for epoch in (-1, 2, 3, 4)}
    assert ends == {-1: EpochEnd(-1, -1), 2: EpochEnd(-1, -1), 3: EpochEnd(3, 5), 4: EpochEnd(-1, -1)}
    assert last_offset_for_leader_epoch(partition, 2, replica_id=-2) == EpochEnd(2, 0)
