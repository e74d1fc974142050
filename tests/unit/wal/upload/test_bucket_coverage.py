"""What a leader knows the buckets to hold of its log."""

from collections.abc import Mapping
from pathlib import Path

from broker.wal.follow.wal_interval_map import WalIntervalMap
from broker.wal.upload.bucket_coverage import BucketCoverage
from tests.support.builders import ReplicaWorld, SettableClock, batch
from tests.support.tiered_partition import tier
from tests.support.tiered_topics import TIERED, TIERING
from tests.unit.wal.wal_world import BUCKET, OTHER_BUCKET, entry


class Led:
    """Ten records of epoch 0, then ten of epoch 3, in the log of this broker."""

    def __init__(self, directory: Path, configs: Mapping[str, str] | None = None) -> None:
        self.world = ReplicaWorld(directory, TIERING)
        self.world.register_brokers(1, 2)
        self.world.create_topic(replicas=(1, 2), isr=(1,), configs=configs)
        self.world.append(batch(*["v"] * 10))
        self.world.place(leader_epoch=3)
        self.world.append(batch(*["v"] * 10))
        self.unreachable: set[str] = set()
        self.known = WalIntervalMap(BUCKET, 3_600_000, lambda bucket: bucket not in self.unreachable)
        self.clock = SettableClock(10_000)
        self.coverage = BucketCoverage(self.world.partition(), self.known, self.clock)


def test_by_the_epochs_of_the_own_log(tmp_path: Path) -> None:
    led = Led(tmp_path)
    assert led.coverage.uncovered(0, 20) == [(0, 20)]
    led.known.add(entry(0, 9))
    led.known.add(entry(10, 14, leader_epoch=2))  # of a leader whose records are not in this log
    led.known.add(entry(15, 19, leader_epoch=3))
    assert led.coverage.uncovered(0, 20) == [(10, 15)]


def test_how_far_back_everything_can_be_found(tmp_path: Path) -> None:
    led = Led(tmp_path)
    led.known.add(entry(0, 4, bucket=OTHER_BUCKET))
    led.known.add(entry(7, 9))
    led.known.add(entry(10, 19, leader_epoch=3))
    assert led.coverage.reaches_back_from(20) == 7
    led.known.add(entry(5, 6))
    assert led.coverage.reaches_back_from(20) == 7  # looked at a moment ago
    led.clock.time_ms += 1001
    assert led.coverage.reaches_back_from(20) == 0
    led.unreachable.add(OTHER_BUCKET)
    assert led.coverage.reaches_back_from(19) == 5  # of another range it is looked at now


def test_below_the_own_disk_nobody_needs_a_bucket(tmp_path: Path) -> None:
    """Those begin behind tiered storage, and epochs of what is there are known all the same."""
    led = Led(tmp_path, TIERED)
    led.known.add(entry(5, 9))
    led.known.add(entry(10, 19, leader_epoch=3))
    led.world.partition().log.update_high_watermark(20)
    tier(led.world.partition().log, 12)
    assert led.coverage.reaches_back_from(20) == 12
    assert led.coverage.uncovered(5, 20) == []


def test_nothing_is_covered_by_nothing(tmp_path: Path) -> None:
    led = Led(tmp_path)
    assert led.coverage.reaches_back_from(20) == 20
    assert led.coverage.reaches_back_from(0) == 0
