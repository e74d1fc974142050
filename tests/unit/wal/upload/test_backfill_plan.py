"""What of a partition is uploaded again, in which order, and how far that is."""

from pathlib import Path

from broker.common.identifiers import TopicIdPartition
from broker.wal.follow.coverage_index import OffsetRange
from broker.wal.follow.wal_interval_map import WalIntervalMap
from broker.wal.upload.backfill_plan import BackfillPlan
from broker.wal.upload.bucket_coverage import BucketCoverage
from broker.wal.upload.republish_plan import RepublishMode
from tests.support.builders import NOW_MS, ReplicaWorld, batch
from tests.support.tiered_partition import tier
from tests.support.tiered_topics import TIERING
from tests.unit.wal.wal_world import BUCKET, OTHER_BUCKET, entry


class Planned:
    """A log of 40 records in four segments of epoch 0, led in epoch 1 with a high watermark of 30."""

    def __init__(self, directory: Path, **configs: str) -> None:
        self.world = ReplicaWorld(directory, TIERING)
        self.world.register_brokers(1, 2, 3)
        names = {key.replace("_", "."): value for key, value in configs.items()}
        self.world.create_topic(replicas=(1, 2, 3), leader=2, configs={"internal.segment.bytes": "150", **names})
        self.partition = self.world.partition()
        for number in range(4):
            data = batch(
                *["v"] * 10, base_offset=10 * number, timestamp=NOW_MS + 1000 * number, partition_leader_epoch=0
            )
            self.partition.log.append_as_follower(data, 0)
        self.world.place(leader=1, leader_epoch=1)
        assert self.partition.log.segments.base_offsets == [0, 10, 20, 30]
        self.known = WalIntervalMap(BUCKET, 3_600_000, lambda bucket: bucket == BUCKET)
        self.known.add(entry(0, 29, bucket=OTHER_BUCKET, timestamp=NOW_MS))  # which is lost
        place = TopicIdPartition(self.partition.topic_id, *self.partition.topic_partition)
        coverage = BucketCoverage(self.partition, self.known, self.world.clock)
        self.plan = BackfillPlan(place, self.partition, coverage, 30)

    def look(self, mode: RepublishMode = RepublishMode.UNTIERED, tiered: int = -1, now_ms: int = NOW_MS) -> None:
        self.partition.log.update_highest_remote_offset(tiered)
        self.plan.look(mode, now_ms)

    def ranges(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        while (wanted := self.plan.next_range()) is not None:
            found.append(wanted)
            self.plan.uploaded(wanted)
        return found

    def fetched(self, replica_id: int, offset: int) -> None:
        """A follower has everything below `offset`."""
        self.partition.update_follower_fetch_state(
            replica_id, fetch_offset=offset, log_start_offset=0, leader_log_end_offset=40, replica_epoch=-1
        )


def test_47_exactly_what_is_not_covered_in_offset_order(tmp_path: Path) -> None:
    planned = Planned(tmp_path)
    planned.known.add(entry(10, 14))
    planned.known.add(entry(20, 24))
    assert planned.plan.has_work
    planned.look()
    assert planned.ranges() == [(0, 10), (15, 20), (25, 30)]
    assert not planned.plan.has_work


def test_nothing_when_all_is_covered_and_in_no_mode_but_what_it_says(tmp_path: Path) -> None:
    planned = Planned(tmp_path, remote_storage_enable="true", local_retention_ms="5000")
    planned.look(RepublishMode.NONE)
    assert planned.ranges() == []
    planned.look(tiered=14)
    assert planned.ranges() == [(15, 30)]
    planned.look(RepublishMode.LOCAL_RETENTION, now_ms=NOW_MS + 5001)
    assert planned.ranges() == [(10, 30)]  # the second segment's records are a second younger
    planned.look(RepublishMode.LOCAL_RETENTION, now_ms=NOW_MS + 60_000)
    assert planned.ranges() == []
    planned.known.add(entry(0, 29))
    planned.look()
    assert planned.ranges() == []


def test_without_a_local_retention_that_of_the_topic_counts(tmp_path: Path) -> None:
    planned = Planned(tmp_path, retention_ms="5000")
    planned.look(RepublishMode.LOCAL_RETENTION, now_ms=NOW_MS + 7001)
    assert planned.ranges() == []
    forever = Planned(tmp_path / "b", retention_ms="-1")
    forever.look(RepublishMode.LOCAL_RETENTION, now_ms=NOW_MS + 7001)
    assert forever.ranges() == [(0, 30)]


def test_what_has_left_the_disk_is_not_uploaded_again(tmp_path: Path) -> None:
    """Followers that are still below it begin behind tiered storage."""
    planned = Planned(tmp_path, remote_storage_enable="true", retention_ms="-1", local_retention_ms="5000")
    planned.look()
    assert planned.plan.next_range() == (0, 30)
    planned.partition.log.update_high_watermark(30)
    tier(planned.partition.log, 10)
    assert planned.plan.next_range() == (10, 30)
    planned.look(RepublishMode.LOCAL_RETENTION)
    assert planned.ranges() == [(10, 30)]


def test_what_was_tiered_before_it_was_switched_off_does_not_count(tmp_path: Path) -> None:
    planned = Planned(tmp_path)
    planned.look(tiered=14)
    assert planned.ranges() == [(0, 30)]


def test_a_part_that_is_uploaded_leaves_the_rest_and_what_failed_comes_first(tmp_path: Path) -> None:
    planned = Planned(tmp_path)
    planned.look()
    assert planned.plan.next_range() == (0, 30)
    planned.plan.uploaded(OffsetRange(0, 10))
    assert planned.plan.next_range() == (10, 30)
    planned.plan.put_back(OffsetRange(0, 10))
    assert planned.ranges() == [(0, 10), (10, 30)]


def test_what_failed_goes_out_once_although_it_is_planned_anew(tmp_path: Path) -> None:
    planned = Planned(tmp_path)
    planned.known.add(entry(10, 14))
    planned.look()
    assert planned.ranges() == [(0, 10), (15, 30)]
    planned.plan.put_back(OffsetRange(15, 30))
    planned.plan.put_back(OffsetRange(0, 10))
    assert planned.plan.is_urgent
    planned.look()
    assert planned.ranges() == [(0, 10), (15, 30)]
    assert not planned.plan.has_work


def test_what_is_deleted_meanwhile_is_left_out(tmp_path: Path) -> None:
    planned = Planned(tmp_path)
    planned.look()
    planned.partition.log.update_high_watermark(40)
    planned.partition.log.maybe_increment_log_start_offset(12, "test")
    assert planned.ranges() == [(12, 30)]
    planned.plan.again(2, OffsetRange(0, 5))
    assert planned.ranges() == []


def test_what_a_follower_cannot_read_comes_first_and_once(tmp_path: Path) -> None:
    planned = Planned(tmp_path)
    planned.look()
    assert planned.plan.next_range() == (0, 30)
    assert not planned.plan.is_urgent
    asked = [planned.plan.again(2, OffsetRange(33, end)) for end in (38, 39, 40)]  # while the other is being read
    assert asked == [True, False, False]
    planned.plan.uploaded(OffsetRange(0, 10))
    assert planned.plan.is_urgent
    assert planned.ranges() == [(33, 38), (10, 30)]
    assert not planned.plan.is_urgent
    assert planned.plan.again(2, OffsetRange(33, 40))  # that did not help
    assert planned.ranges() == [(33, 40)]


def test_what_several_followers_cannot_read_goes_out_once(tmp_path: Path) -> None:
    planned = Planned(tmp_path)
    planned.look(RepublishMode.NONE)
    planned.plan.again(2, OffsetRange(20, 35))
    planned.plan.again(3, OffsetRange(10, 40))
    assert planned.plan.next_range() == (10, 40)
    planned.plan.uploaded(OffsetRange(10, 25))
    assert not planned.plan.again(2, OffsetRange(20, 40))  # it is on its way
    assert planned.ranges() == [(25, 35), (35, 40)]
    assert not planned.plan.has_work


def test_what_the_follower_has_got_meanwhile_is_not_uploaded_again(tmp_path: Path) -> None:
    planned = Planned(tmp_path)
    planned.look(RepublishMode.NONE)
    for replica_id in (2, 3):
        planned.fetched(replica_id, 10)
        planned.plan.again(replica_id, OffsetRange(10, 40))
    planned.fetched(2, 40)
    assert planned.plan.next_range() == (10, 40)  # the other lacks it all the same
    planned.fetched(3, 20)
    assert planned.plan.next_range() == (20, 40)
    planned.fetched(3, 40)
    assert planned.ranges() == []
    assert not planned.plan.has_work
    planned.plan.again(3, OffsetRange(10, 40))
    del planned.partition.remote_replicas[3]
    assert planned.ranges() == []


def test_it_holds_for_one_term(tmp_path: Path) -> None:
    planned = Planned(tmp_path)
    assert planned.plan.holds
    planned.world.place(leader=2, leader_epoch=2)
    assert not planned.plan.holds
    planned.world.place(leader=1, leader_epoch=3)
    assert not planned.plan.holds
