from pathlib import Path

import pytest

from broker.common.errors import (
    LeaderNotAvailableError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    UnsupportedVersionError,
)
from broker.log.log_segment import TimestampAndOffset
from broker.replication.offset_lookup import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NOT_FOUND,
    EpochEnd,
    ListedOffset,
    OffsetQuery,
    RemoteOffsetLookup,
    last_offset_for_leader_epoch,
    list_offset,
)
from tests.support.builders import NOW_MS, ReplicaWorld, batch
from tests.support.tiered_partition import TieredWorld, tier


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
    assert list_offset(world.partition(), OffsetQuery(timestamp, version=10)) == answer


@pytest.mark.parametrize(("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-100, 11)])
def test_timestamps_a_version_does_not_know(world: ReplicaWorld, timestamp: int, version: int) -> None:
    with pytest.raises(UnsupportedVersionError):
        list_offset(world.partition(), OffsetQuery(timestamp, version=version))
    if timestamp > -6:
        list_offset(world.partition(), OffsetQuery(timestamp, version=version + 1))


def test_an_empty_log_has_no_largest_timestamp(tmp_path: Path) -> None:
    world = ReplicaWorld(tmp_path)
    world.create_topic()
    assert list_offset(world.partition(), OffsetQuery(MAX_TIMESTAMP, version=10)) == NOT_FOUND
    assert list_offset(world.partition(), OffsetQuery(EARLIEST_TIMESTAMP, version=10)).offset == 0


def test_a_log_start_without_its_epoch(world: ReplicaWorld) -> None:
    world.partition().log.leader_epochs.clear()
    assert list_offset(world.partition(), OffsetQuery(EARLIEST_TIMESTAMP, version=10)) == ListedOffset(-1, 0, -1)


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
    assert list_offset(partition, OffsetQuery(**latest)).offset == 2
    assert list_offset(partition, OffsetQuery(**latest, isolation_level=1)).offset == 1
    assert list_offset(partition, OffsetQuery(**latest, replica_id=2)).offset == 3
    assert list_offset(partition, OffsetQuery(**latest, replica_id=-2)).offset == 3
    # The record exists, above what consumers may see.
    assert list_offset(partition, OffsetQuery(NOW_MS + 5, version=10)) == NOT_FOUND
    assert list_offset(partition, OffsetQuery(NOW_MS + 5, version=10, replica_id=2)).offset == 2


def test_kip_207_after_an_election(tmp_path: Path) -> None:
    world = ReplicaWorld(tmp_path)
    world.register_brokers(1, 2)
    world.create_topic(replicas=(1, 2))
    world.append(batch("a"))
    world.place(leader=1, leader_epoch=1)
    partition = world.partition()
    for timestamp in (LATEST_TIMESTAMP, MAX_TIMESTAMP, NOW_MS):
        with pytest.raises(OffsetNotAvailableError):
            list_offset(partition, OffsetQuery(timestamp, version=7))
    with pytest.raises(LeaderNotAvailableError):
        list_offset(partition, OffsetQuery(LATEST_TIMESTAMP, version=4))
    assert list_offset(partition, OffsetQuery(EARLIEST_TIMESTAMP, version=4)).offset == 0
    partition.is_leader = False
    with pytest.raises(NotLeaderOrFollowerError):
        list_offset(partition, OffsetQuery(LATEST_TIMESTAMP, version=7))
    assert list_offset(partition, OffsetQuery(LATEST_TIMESTAMP, version=7, replica_id=-2)).offset == 1


# Logs of which remote storage has a part: offsets 0, 1 of epoch 0, offset 2 of epoch 1, and more there


def tiered(directory: Path) -> TieredWorld:
    world = TieredWorld(directory, NOW_MS, NOW_MS + 10)
    world.place(leader=1, leader_epoch=1)
    for index in (2, 3, 4):
        world.partition().log.roll()
        world.append(batch("x", timestamp=NOW_MS + 10 * index))
    return world


def specials(world: TieredWorld) -> list[ListedOffset | RemoteOffsetLookup]:
    timestamps = (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP, LATEST_TIMESTAMP)
    return [list_offset(world.partition(), OffsetQuery(timestamp, version=10)) for timestamp in timestamps]


def test_both_tiers_have_a_start_and_an_end(tmp_path: Path) -> None:
    world = tiered(tmp_path)
    assert specials(world) == [ListedOffset(-1, 0, 0), ListedOffset(-1, 0, 0), NOT_FOUND, ListedOffset(-1, 5, 1)]
    world.partition().log.update_highest_remote_offset(2)
    assert specials(world)[1:3] == [ListedOffset(-1, 0, 0), ListedOffset(-1, 2, 1)]
    tier(world.partition().log, 3)
    assert specials(world) == [
        ListedOffset(-1, 0, 0),
        ListedOffset(-1, 3, 1),
        ListedOffset(-1, 2, 1),
        ListedOffset(-1, 5, 1),
    ]


def test_the_last_tiered_offset_has_no_epoch_once_the_log_starts_after_it(tmp_path: Path) -> None:
    world = tiered(tmp_path)
    tier(world.partition().log, 3)
    world.partition().delete_records_on_leader(4)
    assert specials(world)[:3] == [ListedOffset(-1, 4, 1), ListedOffset(-1, 4, 1), ListedOffset(-1, 2, -1)]


def test_what_is_above_the_high_watermark_is_not_the_last_tiered_offset(tmp_path: Path) -> None:
    world = tiered(tmp_path)
    tier(world.partition().log, 3)
    world.partition().log.high_watermark = 1
    latest_tiered = OffsetQuery(LATEST_TIERED_TIMESTAMP, version=10)
    with pytest.raises(OffsetNotAvailableError):  # an election was before
        list_offset(world.partition(), latest_tiered._replace(replica_id=-1))
    assert list_offset(world.partition(), latest_tiered._replace(replica_id=2)) == ListedOffset(-1, 2, 1)
    world.partition().leader_epoch_start_offset = 0
    assert list_offset(world.partition(), latest_tiered) == NOT_FOUND


def test_a_log_without_tiering_has_one_start(tmp_path: Path) -> None:
    world = TieredWorld(tmp_path)
    world.create_topic("plain")
    world.append(batch("a"), batch("b"), topic="plain")
    world.partition("plain").delete_records_on_leader(1)
    answers = [
        list_offset(world.partition("plain"), OffsetQuery(timestamp, version=10))
        for timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP)
    ]
    assert answers == [ListedOffset(-1, 1, 0), ListedOffset(-1, 1, 0), NOT_FOUND]


def test_remote_storage_is_asked_when_the_log_begins_there(tmp_path: Path) -> None:
    world = tiered(tmp_path)
    partition, log = world.partition(), world.partition().log
    log.update_highest_remote_offset(3)
    assert list_offset(partition, OffsetQuery(NOW_MS, version=10)) == ListedOffset(NOW_MS, 0, 0)
    log.maybe_increment_local_log_start_offset(2, "test")
    for timestamp in (0, NOW_MS, NOW_MS + 40, NOW_MS + 500):
        query = OffsetQuery(timestamp, version=1)
        assert list_offset(partition, query) == RemoteOffsetLookup(partition, query)
    # Nothing of the log is left there.
    partition.delete_records_on_leader(2)
    assert list_offset(partition, OffsetQuery(NOW_MS, version=10)) == ListedOffset(NOW_MS + 20, 2, 1)


def test_a_topic_that_is_just_not_tiered_any_more_is_searched_here(tmp_path: Path) -> None:
    """Its log start moves up to the disk's soon, and its remote segments go."""
    world = tiered(tmp_path)
    partition, log = world.partition(), world.partition().log
    tier(log, 3)
    log.update_config(world.topic_config("one without settings"))
    log.update_highest_remote_offset(2)  # the last copy was under way
    assert (log.is_tiered, log.log_start_offset, log.local_log_start_offset) == (False, 0, 3)
    assert specials(world)[:3] == [ListedOffset(-1, 0, 0), ListedOffset(-1, 0, 0), NOT_FOUND]
    assert list_offset(partition, OffsetQuery(NOW_MS, version=10)) == ListedOffset(NOW_MS + 30, 3, 1)


def test_the_largest_timestamp_is_that_of_the_local_log(tmp_path: Path) -> None:
    world = TieredWorld(tmp_path, NOW_MS + 900, NOW_MS, NOW_MS + 50)
    tier(world.partition().log, 1)
    world.partition().log.delete_old_segments()
    assert list_offset(world.partition(), OffsetQuery(MAX_TIMESTAMP, version=10)) == ListedOffset(NOW_MS + 50, 2, 0)


def test_what_a_remote_lookup_concludes(tmp_path: Path) -> None:
    world = tiered(tmp_path)
    partition = world.partition()
    tier(partition.log, 2)

    def lookup(timestamp: int, **options: int) -> RemoteOffsetLookup:
        found = list_offset(partition, OffsetQuery(timestamp, version=10, **options))
        assert isinstance(found, RemoteOffsetLookup)
        return found

    remote = TimestampAndOffset(NOW_MS + 10, 1, 0)
    assert lookup(NOW_MS + 5).conclude(remote) == ListedOffset(NOW_MS + 10, 1, 0)
    # Below the local start is nothing that the local log could tell, though its files are still there.
    assert lookup(NOW_MS).conclude(None) == ListedOffset(NOW_MS + 20, 2, 1)
    assert lookup(NOW_MS + 41).conclude(None) == NOT_FOUND
    partition.log.high_watermark = 1
    with pytest.raises(OffsetNotAvailableError):
        lookup(NOW_MS + 5).conclude(remote)
    partition.leader_epoch_start_offset = 0
    assert lookup(NOW_MS + 5).conclude(remote) == NOT_FOUND
    assert lookup(NOW_MS + 5, replica_id=2).conclude(remote) == ListedOffset(NOW_MS + 10, 1, 0)
    lost = lookup(NOW_MS + 5)
    partition.is_leader = False
    with pytest.raises(NotLeaderOrFollowerError):
        lost.conclude(remote)
    assert lookup(NOW_MS + 5, replica_id=-2).conclude(remote) == ListedOffset(NOW_MS + 10, 1, 0)


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


def test_epochs_of_the_remote_part_are_known(tmp_path: Path) -> None:
    world = tiered(tmp_path)
    tier(world.partition().log, 4)
    world.partition().log.delete_old_segments()
    assert [last_offset_for_leader_epoch(world.partition(), epoch, replica_id=2) for epoch in (0, 1)] == [
        EpochEnd(0, 2),
        EpochEnd(1, 5),
    ]
    world.partition().delete_records_on_leader(3)
    assert last_offset_for_leader_epoch(world.partition(), 0, replica_id=2) == EpochEnd()
    assert last_offset_for_leader_epoch(world.partition(), 0) == EpochEnd(0, 3)
    assert last_offset_for_leader_epoch(world.partition(), 1, replica_id=2) == EpochEnd(1, 5)
