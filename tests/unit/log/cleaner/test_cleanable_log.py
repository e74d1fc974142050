"""CleanableLog: from where and up to where a log may be compacted, and whether it should be."""

from tests.unit.log.cleaner.cleaner_world import CleanerWorld
from tests.unit.log.log_world import NOW_MS


def filled(**config: object) -> CleanerWorld:
    """Three closed segments of two records, ten milliseconds apart, and an active one; bases 0, 2, 4, 6."""
    world = CleanerWorld(**config)
    for number in range(8):
        world.put(("a", str(number)), timestamp=NOW_MS + number * 10)
        if number % 2 and number < 7:
            world.roll()
    return world


def test_all_but_the_active_segment_at_first() -> None:
    target = filled().target()
    assert (target.first_dirty_offset, target.end_offset) == (0, 6)
    assert target.cleanable_bytes == sum(segment.size_bytes for segment in list(filled().log.segments)[:3])
    assert (target.clean_bytes, target.dirty_ratio) == (0, 1.0)
    assert target.is_due


def test_from_where_the_cleaner_has_been() -> None:
    world = filled(min_cleanable_dirty_ratio=0.5)
    world.log.clean_offset = 2
    target = world.target()
    assert (target.first_dirty_offset, target.end_offset, round(target.dirty_ratio, 2)) == (2, 6, 0.67)
    assert target.is_due
    world.log.clean_offset = 4
    assert not world.target().is_due, "a third is dirty"
    world.log.clean_offset = 6
    target = world.target()
    assert (target.first_dirty_offset, target.end_offset, target.cleanable_bytes, target.is_due) == (6, 6, 0, False)


def test_exactly_the_ratio_is_not_enough() -> None:
    world = filled(min_cleanable_dirty_ratio=1)
    assert world.target().dirty_ratio == 1.0
    assert not world.target().is_due


def test_from_within_a_segment_that_segment_counts_twice() -> None:
    world = filled()
    world.log.clean_offset = 3
    target = world.target()
    sizes = [segment.size_bytes for segment in world.log.segments]
    assert (target.clean_bytes, target.cleanable_bytes) == (sum(sizes[:2]), sum(sizes[1:3]))


def test_not_from_below_the_log_start() -> None:
    world = filled()
    world.log.clean_offset = 1
    world.log.maybe_increment_log_start_offset(4, "test")
    assert world.target().first_dirty_offset == 4
    world.log.clean_offset = None
    assert world.target().first_dirty_offset == 4


def test_36_nothing_at_or_above_the_high_watermark_or_an_open_transaction() -> None:
    world = filled()
    world.log.update_high_watermark(5)
    assert world.target().end_offset == 4
    world.log.update_high_watermark(1)
    target = world.target()
    assert (target.end_offset, target.cleanable_bytes, target.is_due) == (0, 0, False)
    world = filled()
    world.put(("t", "1"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    for _ in range(2):
        world.roll()
        world.put(("b", "1"))
    assert (world.log.last_stable_offset, world.target().end_offset) == (8, 6)
    world.marker(1, commit=True)
    assert world.target().end_offset == 10


def test_nothing_younger_than_min_compaction_lag_ms() -> None:
    world = filled(min_compaction_lag_ms=1000)
    world.clock.ms = NOW_MS + 30 + 1000
    assert world.target().end_offset == 4
    world.clock.ms = NOW_MS + 29 + 1000
    assert world.target().end_offset == 2
    world.clock.ms = NOW_MS
    assert not world.target().is_due


def test_max_compaction_lag_ms_makes_it_due() -> None:
    world = filled(min_cleanable_dirty_ratio=1, max_compaction_lag_ms=1000)
    world.clock.ms = NOW_MS + 1000
    assert not world.target().is_due
    world.clock.ms += 1
    target = world.target()
    assert (target.compaction_delay_ms, target.is_due) == (1, True)
    world.log.clean_offset = 2
    assert not world.target().is_due, "what is compacted does not wait"
    world.clock.ms = NOW_MS + 10**6
    world.log.update_high_watermark(0)
    assert not world.target().is_due, "nothing may be touched"


def test_an_empty_log_is_not_dirty() -> None:
    target = CleanerWorld().target()
    assert (target.dirty_ratio, target.is_due) == (0.0, False)
