"""LogRetention: time, size, log start; one segment stays; nothing above the high watermark goes."""

from tests.unit.log.log_world import NOW_MS, LogWorld, topic_config


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


def tiered(**config: object) -> LogWorld:
    """As `filled`, of a tiered topic whose closed segments are on the device."""
    world = filled(tiered=True, **config)
    world.log.flush()
    return world


def test_17_what_is_copied_leaves_the_disk_and_stays_in_the_log() -> None:
    world = tiered(local_retention_ms=1, retention_ms=10**9)
    world.clock.ms = NOW_MS + 40
    world.log.update_highest_remote_offset(3)
    assert world.log.delete_old_segments() == 2
    assert world.log.segments.base_offsets == [4]
    assert (world.log.log_start_offset, world.log.local_log_start_offset) == (0, 4)
    assert world.log.leader_epochs.entries == ((0, 0),)
    assert world.housekeeping.deletions[-1][0][0] == world.path(0, ".log.deleted")


def test_18_what_is_not_copied_stays_however_old() -> None:
    world = tiered(local_retention_ms=1, local_retention_bytes=0, retention_ms=1000, retention_bytes=0)
    world.clock.ms = NOW_MS + 10**9
    assert world.log.delete_old_segments() == 0
    world.log.update_highest_remote_offset(2)  # not the whole of the second segment
    assert world.log.delete_old_segments() == 1
    assert world.log.segments.base_offsets == [2, 4]
    assert (world.log.log_start_offset, world.log.local_log_start_offset) == (0, 2)


def test_what_the_device_lacks_stays_though_it_is_copied() -> None:
    """Its leader epochs are told by nothing else, once it is gone."""
    world = filled(tiered=True, local_retention_ms=1)
    world.clock.ms = NOW_MS + 40
    world.log.update_highest_remote_offset(3)
    assert world.log.delete_old_segments() == 0
    world.log.flush()
    assert world.log.delete_old_segments() == 2


def test_19_an_idle_log_leaves_the_disk_as_a_whole() -> None:
    world = tiered(local_retention_ms=1000)
    world.clock.ms = NOW_MS + 10**6
    world.log.update_highest_remote_offset(3)
    assert world.log.delete_old_segments() == 2
    assert world.log.segments.base_offsets == [4, 6]  # closed, so that it can be copied
    assert world.log.delete_old_segments() == 0
    world.log.flush()
    world.log.update_highest_remote_offset(5)
    assert world.log.delete_old_segments() == 1
    assert world.log.segments.base_offsets == [6]
    assert world.log.delete_old_segments() == 0
    assert (world.log.log_start_offset, world.log.local_log_start_offset, world.log.size_bytes) == (0, 6, 0)
    assert world.append() == 6


def test_an_active_segment_that_is_due_stays_where_no_new_one_can_be_made() -> None:
    world = tiered(local_retention_ms=1000)
    world.clock.ms = NOW_MS + 10**6
    world.log.update_highest_remote_offset(5)  # a leader with other segments may have copied it all
    world.disk.fail(world.directory, "create")
    assert world.log.delete_old_segments() == 2
    assert world.log.segments.base_offsets == [4]


def test_the_size_on_disk_is_bounded_by_its_own_limit() -> None:
    world = tiered(local_retention_bytes=316, retention_bytes=10**6)
    world.log.update_highest_remote_offset(3)
    assert world.log.delete_old_segments() == 1
    assert world.log.delete_old_segments() == 0
    assert (world.log.log_start_offset, world.log.local_log_start_offset) == (0, 2)


def test_local_limits_are_the_topics_by_default() -> None:
    world = tiered(retention_ms=1000)
    world.clock.ms = NOW_MS + 10 + 1001
    world.log.update_highest_remote_offset(3)
    assert world.log.delete_old_segments() == 1
    assert (world.log.log_start_offset, world.log.local_log_start_offset) == (0, 2)


def test_47_without_copies_the_limits_are_the_topics_and_move_the_log_start() -> None:
    world = tiered(remote_log_copy_disable=True, retention_ms=1000, local_retention_ms=1)
    world.clock.ms = NOW_MS + 10 + 1000
    assert world.log.delete_old_segments() == 0
    world.clock.ms += 1
    assert world.log.delete_old_segments() == 0
    assert (world.log.log_start_offset, world.log.local_log_start_offset) == (2, 2)
    world.checkpoint_log_start()
    assert world.log.delete_old_segments() == 1
    world.clock.ms = NOW_MS + 10**6
    assert world.log.delete_old_segments() == 0
    world.checkpoint_log_start()
    assert world.log.delete_old_segments() == 2
    assert (world.log.log_start_offset, world.log.segments.base_offsets) == (6, [6])


def test_without_copies_a_pass_that_deletes_nothing_leaves_the_remote_part() -> None:
    world = tiered(local_retention_ms=1, retention_ms=10**6)
    world.clock.ms = NOW_MS + 40
    world.log.update_highest_remote_offset(3)
    assert world.log.delete_old_segments() == 2
    world.log.update_config(topic_config(remote_storage_enable=True, remote_log_copy_disable=True))
    assert world.log.delete_old_segments() == 0
    assert (world.log.log_start_offset, world.log.local_log_start_offset) == (0, 4)


def test_deleted_records_go_though_they_are_not_copied() -> None:
    """But not before a crash can not bring them back: then they would be a hole in the log."""
    world = tiered(local_retention_ms=-1)
    world.log.maybe_increment_log_start_offset(3, "delete records")
    assert world.log.delete_old_segments() == 0
    log = world.reload(log_start_offset=0)
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 0)
    log.update_high_watermark(6)
    log.maybe_increment_log_start_offset(3, "delete records")
    world.checkpoint_log_start()
    assert log.delete_old_segments() == 1
    assert (log.log_start_offset, log.segments.base_offsets) == (3, [2, 4])


def test_deleted_records_that_are_copied_go_at_once() -> None:
    world = tiered(local_retention_ms=-1)
    world.log.update_highest_remote_offset(1)
    world.log.maybe_increment_log_start_offset(5, "delete records")
    assert world.log.delete_old_segments() == 1
    assert (world.log.log_start_offset, world.log.segments.base_offsets) == (5, [2, 4])


def test_a_topic_that_is_tiered_again_has_nothing_in_remote_storage() -> None:
    world = tiered(local_retention_ms=1)
    world.clock.ms = NOW_MS + 40
    world.log.update_highest_remote_offset(3)
    world.log.update_config(topic_config())
    world.log.update_config(world.config)
    assert world.log.highest_remote_offset == -1
    assert world.log.delete_old_segments() == 0


def test_the_snapshot_at_the_local_start_stays() -> None:
    """It tells of producers whose records have left the disk, and goes into the next bucket with the segment below."""
    world = LogWorld(segment_bytes=200, tiered=True, local_retention_bytes=79)
    for number in range(5):
        world.append(producer_id=number, producer_epoch=0, base_sequence=0)
    world.copied_up_to(4)
    assert world.log.delete_old_segments() == 2
    assert world.log.producer_snapshot_path(4).name == "00000000000000000004.snapshot"
    for clean in (True, False):
        log = world.reload(clean=clean)
        assert set(log.producer_state_manager.producers) == set(range(5))
        assert log.producer_snapshot_path(4) == world.path(4, ".snapshot")
