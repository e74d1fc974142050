import pytest

from broker.records.record_batch import RecordBatch, batches
from broker.wal.follow.append_plan import AppendPlan, StraddlingBatchError, plan_append
from tests.unit.wal.wal_world import log_bytes

FOUND = tuple(batches(log_bytes((1, 2), (1, 3), (2, 5), start=10)))  # 10-11, 12-14, 15-19


def plan(
    log_end: int, valid_until: int = 1000, *, found: tuple[RecordBatch, ...] = FOUND, is_log_empty: bool = False
) -> AppendPlan:
    return plan_append(found, log_end_offset=log_end, valid_until=valid_until, is_log_empty=is_log_empty)


def bases(result: AppendPlan) -> list[int]:
    return [batch.base_offset for batch in result.batches]


def test_25_what_the_log_has_is_skipped() -> None:
    assert bases(plan(10)) == [10, 12, 15]
    assert bases(plan(12)) == [12, 15]
    assert bases(plan(15)) == [15]
    assert bases(plan(20)) == []
    assert bases(plan(500)) == []


def test_24_nothing_is_appended_across_a_gap() -> None:
    assert plan(9) == AppendPlan(())
    assert plan(0) == AppendPlan(())
    assert plan(9, is_log_empty=True) == AppendPlan(())


def test_32_batches_beyond_what_is_valid_are_left_out_whole() -> None:
    assert bases(plan(10, 15)) == [10, 12]
    assert bases(plan(10, 16)) == [10, 12]
    assert bases(plan(10, 14)) == [10]
    assert bases(plan(10, 11)) == []
    assert bases(plan(12, 10)) == []


def test_a_batch_that_straddles_the_log_end_is_refused() -> None:
    with pytest.raises(StraddlingBatchError):
        plan(13)


def test_an_empty_log_may_begin_within_a_batch() -> None:
    """The leader's log start was moved into a batch by DeleteRecords."""
    assert plan(13, is_log_empty=True) == AppendPlan(FOUND[1:], restart_at=12)
    assert plan(10, is_log_empty=True) == AppendPlan(FOUND)


def test_a_hole_within_a_slice_is_the_leaders_own() -> None:
    holey = FOUND[:1] + FOUND[2:]
    assert bases(plan(10, found=holey)) == [10, 15]
    assert bases(plan(12, found=holey)) == []
