"""LogStart: both starts move forward, and what is read below them."""

import pytest

from broker.common.errors import OffsetMovedToTieredStorageError, OffsetOutOfRangeError
from tests.unit.log.log_world import NOW_MS, LogWorld, topic_config


def tiered(*, local_start: int = 4) -> LogWorld:
    """Six batches of 79 bytes, ten milliseconds apart, two to a segment, each segment of another epoch; what is below
    `local_start` has left the disk."""
    world = LogWorld(segment_bytes=200, tiered=True, local_retention_bytes=79 * (6 - local_start))
    for number in range(6):
        world.append(timestamp=NOW_MS + number * 10, epoch=number // 2)
    world.copied_up_to(local_start)
    world.log.delete_old_segments()
    assert (world.log.log_start_offset, world.log.local_log_start_offset) == (0, local_start)
    return world


def refused(world: LogWorld, offset: int) -> type[Exception] | None:
    try:
        world.log.read(offset, 1 << 20, world.log.log_end_offset, min_one_batch=True)
    except (OffsetOutOfRangeError, OffsetMovedToTieredStorageError) as error:
        return type(error)
    return None


def test_an_untiered_log_starts_where_its_disk_does() -> None:
    world = LogWorld(segment_bytes=200)
    for _ in range(6):
        world.append()
    world.log.maybe_increment_log_start_offset(3, "test")
    assert world.log.local_log_start_offset == 3
    assert refused(world, 2) is OffsetOutOfRangeError
    assert refused(world, 3) is None


def test_37_what_is_in_remote_storage_alone_is_told_from_what_is_nowhere() -> None:
    world = tiered()
    world.log.maybe_increment_log_start_offset(1, "test")
    assert [refused(world, offset) for offset in range(8)] == [
        OffsetOutOfRangeError,
        *[OffsetMovedToTieredStorageError] * 3,
        *[None] * 3,  # the log end is no error
        OffsetOutOfRangeError,
    ]


def test_a_log_that_is_not_tiered_any_more_has_only_what_is_on_its_disk() -> None:
    world = tiered()
    world.log.update_config(topic_config())
    assert refused(world, 3) is OffsetOutOfRangeError
    assert world.offsets(4) == [(4, 4), (5, 5)]


def test_deleted_records_of_the_remote_part() -> None:
    world = tiered()
    assert world.log.maybe_increment_log_start_offset(3, "delete records")
    assert (world.log.log_start_offset, world.log.local_log_start_offset) == (3, 4)
    assert world.log.leader_epochs.entries == ((1, 3), (2, 4))
    assert world.log.delete_old_segments() == 0
    assert not world.log.maybe_increment_log_start_offset(2, "delete records")


def test_deleted_records_of_the_local_part() -> None:
    world = tiered(local_start=2)
    assert world.log.maybe_increment_log_start_offset(5, "delete records")
    assert (world.log.log_start_offset, world.log.local_log_start_offset) == (5, 5)
    assert world.log.leader_epochs.entries == ((2, 5),)
    world.checkpoint_log_start()
    assert world.log.delete_old_segments() == 1
    assert world.log.segments.base_offsets == [4, 6]
    assert world.offsets() == [(5, 5)]


def test_the_local_start_moves_alone_and_keeps_the_lineage() -> None:
    world = tiered(local_start=2)
    log = world.log
    assert log.maybe_increment_local_log_start_offset(4, "test")
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 4)
    assert log.leader_epochs.entries == ((0, 0), (1, 2), (2, 4))
    assert not log.maybe_increment_local_log_start_offset(4, "test")
    assert not log.maybe_increment_local_log_start_offset(3, "test")


def test_neither_moves_above_the_high_watermark() -> None:
    world = LogWorld(tiered=True)
    world.append(3, replicated=False)
    with pytest.raises(OffsetOutOfRangeError):
        world.log.maybe_increment_local_log_start_offset(1, "test")
    with pytest.raises(OffsetOutOfRangeError):
        world.log.maybe_increment_log_start_offset(1, "test")
    assert (world.log.log_start_offset, world.log.local_log_start_offset) == (0, 0)


def test_what_is_deleted_needs_no_flush_unless_a_crash_may_bring_it_back() -> None:
    for is_tiered in (False, True):
        world = LogWorld(segment_bytes=200, tiered=is_tiered)
        for _ in range(3):
            world.append()
        world.log.maybe_increment_log_start_offset(3, "test")
        assert world.log.recovery_point == (0 if is_tiered else 2)
        world.log.flush()
        assert world.log.recovery_point == 2, "the base of the active segment"


def test_the_high_watermark_is_not_below_the_local_start() -> None:
    world = tiered()
    assert world.log.update_high_watermark(1) == 4


def test_offsets_by_timestamp_are_those_of_this_disk() -> None:
    world = tiered()
    assert world.log.offset_for_timestamp(NOW_MS) == (NOW_MS + 40, 4, 2)


def test_a_timestamp_is_found_though_deleted_records_have_it_too() -> None:
    """Apache Kafka finds none: it looks in the first segment alone that reaches the timestamp."""
    world = LogWorld(segment_bytes=200)
    for _ in range(4):
        world.append(timestamp=NOW_MS, epoch=1)
    world.log.maybe_increment_log_start_offset(2, "test")
    assert world.log.segment_count == 2
    assert world.log.offset_for_timestamp(NOW_MS) == (NOW_MS, 2, 1)


@pytest.mark.parametrize("is_tiered", [False, True])
def test_a_log_whose_settings_come_late(is_tiered: bool) -> None:
    """Until they are known nothing is forgotten, and nothing deleted."""
    world = tiered()
    guess = world.config
    world.config = topic_config(retention_ms=1, segment_bytes=200)
    world.clock.ms = NOW_MS + 10**6
    log = world.reload(log_start_offset=1, are_settings_known=False)
    assert (log.log_start_offset, log.local_log_start_offset, log.high_watermark) == (1, 4, 4)
    assert log.leader_epochs.entries == ((0, 1), (1, 2), (2, 4))
    log.update_high_watermark(6)
    assert log.delete_old_segments() == 0
    log.settle(guess if is_tiered else topic_config(segment_bytes=200))
    assert log.local_log_start_offset == 4
    if is_tiered:
        assert log.log_start_offset == 1
        assert log.leader_epochs.entries == ((0, 1), (1, 2), (2, 4))
        assert refused(world, 1) is OffsetMovedToTieredStorageError
    else:
        assert log.log_start_offset == 4
        assert log.leader_epochs.entries == ((2, 4),)
        assert refused(world, 3) is OffsetOutOfRangeError


def test_a_tiered_topic_of_a_broker_without_remote_storage_is_not_cut() -> None:
    """Such a broker refuses to start; when the setting is back, everything must be there still."""
    world = tiered()
    world.is_tiered = False
    log = world.reload(are_settings_known=False)
    log.settle(world.config)
    assert not log.is_tiered
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 4)
    assert log.leader_epochs.entries == ((0, 0), (1, 2), (2, 4))


def test_a_checkpoint_that_is_older_than_a_truncation_says_nothing_of_the_log_start() -> None:
    world = tiered()
    world.log.maybe_increment_log_start_offset(5, "test")
    world.log.truncate_to(4)
    world.log.log_start_is_durable(5)
    assert (world.log.log_start_offset, world.log.durable_log_start_offset) == (4, 4)


def test_a_follower_that_is_not_tiered_any_more_begins_with_its_own_disk() -> None:
    """Its leader's begins earlier, and what is between is nowhere here."""
    world = tiered()
    world.log.update_config(topic_config())
    assert world.log.maybe_increment_log_start_offset(2, "leader offset incremented")
    assert (world.log.log_start_offset, world.log.local_log_start_offset) == (4, 4)
    assert world.log.leader_epochs.entries == ((2, 4),)
