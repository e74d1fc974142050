"""LogRetention: time, size, log start; one segment stays; nothing above the high watermark goes."""

from tests.unit.log.log_world import NOW_MS, LogWorld


def filled(**config: object) -> LogWorld:
    """Six batches of 79 bytes, ten milliseconds apart, two to a segment: bases 0, 2, 4."""
    world = LogWorld(segment_bytes=200, **config)
    for number in range(6):
        world.append(timestamp=NOW_MS + number * 10)
    assert world.log.segments.base_offsets == [0, 2, 4]
    return world


def test_35_time_stops_at_the_first_segment_that_is_young_enough() -> None:
    world = filled(retention_ms=1000)
    world.clock.ms = NOW_MS + 10 + 1000
    assert world.log.delete_old_segments() == 0
    world.clock.ms += 1
    assert world.log.delete_old_segments() == 1
    assert world.log.log_start_offset == 2
    assert world.log.segments.base_offsets == [2, 4]
    assert world.housekeeping.deletions[-1][1] == 60_000


def test_35_an_old_segment_behind_a_young_one_stays() -> None:
    world = LogWorld(segment_bytes=200, retention_ms=1000)
    for timestamp in (NOW_MS + 900, NOW_MS, NOW_MS, NOW_MS):
        world.append(timestamp=timestamp)
    world.clock.ms = NOW_MS + 1500
    assert world.log.delete_old_segments() == 0


def test_35_the_active_segment_is_rolled_first() -> None:
    world = filled(retention_ms=1000)
    world.clock.ms = NOW_MS + 10**6
    assert world.log.delete_old_segments() == 3
    assert world.log.segments.base_offsets == [6]
    assert (world.log.log_start_offset, world.log.size_bytes) == (6, 0)
    assert world.log.delete_old_segments() == 0
    assert world.append() == 6


def test_35_when_no_new_segment_can_be_made_the_last_one_stays() -> None:
    world = filled(retention_ms=1000)
    world.clock.ms = NOW_MS + 10**6
    world.disk.fail(world.directory, "create")
    assert world.log.delete_old_segments() == 2
    assert world.log.segments.base_offsets == [4]


def test_35_never_above_the_high_watermark() -> None:
    world = filled(retention_ms=1000)
    world.log.update_high_watermark(3)
    world.clock.ms = NOW_MS + 10**6
    assert world.log.delete_old_segments() == 1
    assert world.log.segments.base_offsets == [2, 4]


def test_35_size_keeps_at_least_the_limit() -> None:
    assert filled(retention_bytes=474).log.delete_old_segments() == 0
    assert filled(retention_bytes=317).log.delete_old_segments() == 0
    assert filled(retention_bytes=316).log.delete_old_segments() == 1
    assert filled(retention_bytes=158).log.delete_old_segments() == 2
    assert filled(retention_bytes=0).log.delete_old_segments() == 3
    assert filled(retention_bytes=-1, retention_ms=-1).log.delete_old_segments() == 0


def test_34_35_segments_below_the_log_start() -> None:
    world = filled(retention_ms=-1)
    world.log.maybe_increment_log_start_offset(3, "test")
    assert world.log.delete_old_segments() == 1
    assert (world.log.log_start_offset, world.log.segments.base_offsets) == (3, [2, 4])
    world.log.maybe_increment_log_start_offset(6, "test")
    assert world.log.delete_old_segments() == 1
    assert world.log.segments.base_offsets == [4]


def test_compacted_topics_lose_only_what_is_below_their_start() -> None:
    world = filled(compact=True, retention_ms=1000, retention_bytes=0)
    world.clock.ms = NOW_MS + 10**6
    assert world.log.delete_old_segments() == 0
    assert world.log.delete_segments_below(5, "superseded") == 2
    assert (world.log.log_start_offset, world.log.segments.base_offsets) == (5, [4])


def test_future_timestamps_keep_a_segment() -> None:
    world = LogWorld(segment_bytes=200, retention_ms=1000)
    for number in range(4):
        world.append(timestamp=NOW_MS + 3_000_000 + number)
    world.clock.ms = NOW_MS + 2000
    assert world.log.delete_old_segments() == 0
    world.clock.ms = NOW_MS + 3_002_000
    assert world.log.delete_old_segments() == 2


def test_records_without_timestamps_age_with_their_file() -> None:
    world = LogWorld(segment_bytes=200, retention_ms=1000)
    for _ in range(3):
        world.append(timestamp=-1)
    world.clock.ms = NOW_MS + 1000
    assert world.log.delete_old_segments() == 0
    world.clock.ms += 1
    assert world.log.delete_old_segments() == 2


def test_snapshots_and_files_go_together() -> None:
    world = LogWorld(segment_bytes=200, retention_bytes=79)
    for number in range(5):
        world.append(producer_id=1, producer_epoch=0, base_sequence=number)
    assert world.log.delete_old_segments() == 2
    names = sorted(path.name for paths, _ in world.housekeeping.deletions for path in paths)
    assert names == [
        "00000000000000000000.index.deleted",
        "00000000000000000000.log.deleted",
        "00000000000000000000.timeindex.deleted",
        "00000000000000000002.index.deleted",
        "00000000000000000002.log.deleted",
        "00000000000000000002.snapshot",
        "00000000000000000002.timeindex.deleted",
    ]
    assert world.metrics.deleted_segments.value == 2
