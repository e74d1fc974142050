"""LocalLog: segments without producers, epochs or watermarks."""

import pytest

from broker.common.errors import OffsetOutOfRangeError
from broker.log.local_log import new_segment, segment_jitter_ms
from tests.unit.log.log_world import LogWorld, topic_config


def test_22_jitter_is_below_its_bound_and_the_same_for_a_seed() -> None:
    world = LogWorld()
    drawn = [segment_jitter_ms(world.environment, topic_config(segment_jitter_ms=50)) for _ in range(40)]
    assert all(0 <= jitter < 50 for jitter in drawn)
    assert len(set(drawn)) > 5
    assert segment_jitter_ms(world.environment, topic_config()) == 0
    assert segment_jitter_ms(world.environment, topic_config(segment_jitter_ms=10**9, segment_ms=1)) == 0


def test_a_new_segment_carries_its_settings() -> None:
    world = LogWorld()
    segment = new_segment(
        world.environment, world.directory, 50, topic_config(index_interval_bytes=7, segment_index_bytes=80)
    )
    assert (segment.base_offset, segment.index_interval_bytes, segment.offset_index.entries_max) == (50, 7, 10)
    assert segment.created_ms == world.clock.ms


def test_reads_outside_the_log_are_refused() -> None:
    world = LogWorld()
    world.append(3)
    local = world.log.local_log
    with pytest.raises(OffsetOutOfRangeError, match="upto 3"):
        local.read(4, 100, 100, min_one_batch=True, with_aborted=False)
    world.log.truncate_fully_and_start_at(10)
    with pytest.raises(OffsetOutOfRangeError):
        local.read(9, 100, 100, min_one_batch=True, with_aborted=False)


def test_an_upper_bound_in_an_earlier_segment() -> None:
    world = LogWorld(segment_bytes=200)
    for _ in range(6):
        world.append()
    local = world.log.local_log
    assert local.read(0, 10_000, 2, min_one_batch=True, with_aborted=False).size_bytes == 158
    assert local.read(2, 10_000, 3, min_one_batch=True, with_aborted=False).size_bytes == 79
    assert local.read(2, 10_000, 5, min_one_batch=True, with_aborted=False).size_bytes == 158
    assert local.read(4, 10_000, 5, min_one_batch=True, with_aborted=False).size_bytes == 79


def test_gaps_are_read_over() -> None:
    world = LogWorld(segment_bytes=200)
    for offset in (0, 5, 20, 21, 40):
        world.log.append_as_follower(bytes(world.batch(base_offset=offset, partition_leader_epoch=0)), 0)
    assert world.log.segments.base_offsets == [0, 6, 22]
    assert world.offsets(1) == [(5, 5), (20, 20), (21, 21), (40, 40)]
    assert world.offsets(6) == [(20, 20), (21, 21), (40, 40)]
    assert world.offsets(22) == [(40, 40)]


def test_roll_of_an_empty_segment_at_its_base_is_nothing() -> None:
    world = LogWorld()
    local = world.log.local_log
    assert local.roll(0) is local.segments.active
    assert local.roll(7).base_offset == 7
    with pytest.raises(AssertionError):
        local.truncate_to(-1)


def test_where_the_batch_around_an_offset_begins_over_segments() -> None:
    world = LogWorld(segment_bytes=200)
    world.log.truncate_fully_and_start_at(4)
    for _ in range(3):
        world.append(3)
    local = world.log.local_log
    assert len(local.segments) > 1
    assert [local.batch_start(offset) for offset in range(3, 14)] == [3, 4, 4, 4, 7, 7, 7, 10, 10, 10, 13]
