import itertools
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.schemas.remote_log_metadata import RemoteLogSegmentState
from broker.tiering.copy_plan import CopyCandidate, LocalSegment, copy_candidates, copy_lag, segment_to_copy
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata

from .segment_world import PARTITION, epoch_entries


def local(*bases: int) -> list[LocalSegment]:
    """The last one is the active one."""
    return [LocalSegment(base, 100 + base, 1000 + base) for base in bases]


def sizes(*bases: int) -> list[tuple[int, int]]:
    return [(segment.base_offset, segment.size_in_bytes) for segment in local(*bases)]


def copied(bases: list[int], *, after: int = -1, log_start: int = 0, stable: int = 1000) -> list[tuple[int, int]]:
    """(base offset, end offset) of each candidate."""
    found = copy_candidates(local(*bases), copied_offset=after, log_start_offset=log_start, last_stable_offset=stable)
    return [(each.segment.base_offset, each.end_offset) for each in found]


def test_10_closed_segments_are_copied_and_the_active_one_never() -> None:
    assert copied([0, 1, 2]) == [(0, 0), (1, 1)]
    assert copied([0]) == []
    assert copied([]) == []


@pytest.mark.parametrize(
    ("stable", "expected"),
    [(0, []), (9, []), (10, [(0, 9)]), (19, [(0, 9)]), (20, [(0, 9), (10, 19)]), (25, [(0, 9), (10, 19)])],
)
def test_11_every_record_is_below_the_last_stable_offset(stable: int, expected: list[tuple[int, int]]) -> None:
    """And so below the high watermark (12)."""
    assert copied([0, 10, 20], stable=stable) == expected


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (-1, [(0, 9), (10, 19), (20, 29)]),
        (8, [(0, 9), (10, 19), (20, 29)]),  # an earlier leader cut otherwise: the rest is copied with its segment
        (9, [(10, 19), (20, 29)]),
        (10, [(10, 19), (20, 29)]),
        (28, [(20, 29)]),
        (29, []),
        (500, []),
    ],
)
def test_42_a_leader_goes_on_where_copies_end(after: int, expected: list[tuple[int, int]]) -> None:
    assert copied([0, 10, 20, 30], after=after) == expected


@pytest.mark.parametrize(("log_start", "expected"), [(9, [(0, 9), (10, 19)]), (10, [(10, 19)]), (25, [])])
def test_49_what_is_below_the_log_start_is_not_copied(log_start: int, expected: list[tuple[int, int]]) -> None:
    assert copied([0, 10, 20, 30], log_start=log_start, stable=20) == expected


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=12),
    st.integers(0, 50),
    st.integers(-1, 200),
    st.integers(0, 200),
    st.integers(0, 250),
)
@settings(max_examples=150)
def test_copies_leave_no_gap(lengths: list[int], first: int, after: int, log_start: int, stable: int) -> None:
    bases = [first + sum(lengths[:count]) for count in range(len(lengths))]
    found = copied(bases, after=after, log_start=log_start, stable=stable)
    for (_, end), (following, _) in itertools.pairwise(found):
        assert following == end + 1
    assert all(end < stable and end < bases[-1] for _, end in found)
    if found:
        assert found[0][0] <= max(after + 1, log_start, first) <= found[0][1]
        assert found[-1][1] + 1 in bases
        left = [base for base in bases if found[-1][1] + 1 < base <= stable]
        assert left == []


def test_the_lag_is_what_is_closed_and_not_copied() -> None:
    assert copy_lag(sizes(0, 10, 20, 30), -1) == (100 + 110 + 120, 3)
    assert copy_lag(sizes(0, 10, 20, 30), 9) == (110 + 120, 2)
    assert copy_lag(sizes(0, 10, 20, 30), 15) == (120, 1)
    assert copy_lag(sizes(0, 10, 20, 30), 29) == (0, 0)
    assert copy_lag(sizes(0), -1) == (0, 0)
    assert copy_lag([], -1) == (0, 0)


def test_a_copied_segment_of_one_record_is_no_lag() -> None:
    assert copy_lag(sizes(0, 1, 2), 1) == (0, 0)


def test_what_is_told_before_the_first_byte_is_copied() -> None:
    candidate = CopyCandidate(LocalSegment(20, 4096, 777, is_txn_index_empty=True), 40)
    epochs = epoch_entries({0: 0, 1: 10, 3: 35, 4: 40})
    told = segment_to_copy(candidate, PARTITION, UUID(int=9), epochs, broker_id=3, now_ms=8000)
    assert told == RemoteLogSegmentMetadata(
        partition=PARTITION,
        segment_id=UUID(int=9),
        start_offset=20,
        end_offset=39,
        broker_id=3,
        max_timestamp_ms=777,
        event_timestamp_ms=8000,
        segment_leader_epochs=epoch_entries({1: 20, 3: 35}),
        segment_size_in_bytes=4096,
        state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
        is_txn_index_empty=True,
    )


def test_a_segment_of_which_no_epoch_is_known_cannot_be_copied() -> None:
    candidate = CopyCandidate(LocalSegment(20, 4096, 777), 40)
    with pytest.raises(ValueError, match="without leader epochs"):
        segment_to_copy(candidate, PARTITION, UUID(int=9), (), broker_id=3, now_ms=8000)
