import dataclasses
from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata
from broker.tiering.remote_retention import (
    RemoteExpiration,
    RetainedLog,
    expired_segments,
    only_local_size,
    remote_log_size,
    remote_log_totals,
)
from broker.tiering.segment_lineage import SegmentLineage

from .segment_world import DELETING, FINISHED, STARTED, epoch_entries, segment

NOW = 1_000_000


def log_of(
    epochs: Mapping[int, int] | None = None,
    *,
    start: int = 0,
    end: int = 1000,
    only_local: int = 0,
    retention_ms: int = -1,
    retention_bytes: int = -1,
) -> RetainedLog:
    leader_epochs = epoch_entries({0: 0} if epochs is None else epochs)
    return RetainedLog(leader_epochs, start, end, only_local, retention_ms, retention_bytes)


def copied(
    number: int, start: int, end: int, epochs: dict[int, int] | None = None, *, age_ms: int = 0, size: int = 100
):
    return segment(number, start, end, epochs, state=FINISHED, size=size, max_timestamp_ms=NOW - age_ms)


def decide(
    segments: Sequence[RemoteLogSegmentMetadata], log: RetainedLog, *being_copied: int
) -> tuple[list[int], int | None]:
    """(numbers of the segments to delete, new log start offset)."""
    decided = expired_segments(segments, {UUID(int=number) for number in being_copied}, log, NOW)
    return [each.segment_id.int for each in decided.segments], decided.log_start_offset


THREE = [copied(1, 0, 9, age_ms=3000), copied(2, 10, 19, age_ms=2000), copied(3, 20, 29, age_ms=1000)]


def test_what_is_of_older_epochs_stays_while_the_first_epochs_are_not_known() -> None:
    old = [copied(1, 0, 9, {1: 0}), copied(2, 20, 29, {2: 20})]
    assert decide(old, log_of({3: 20}, start=20)) == ([1, 2], None)
    assert decide(old, log_of({3: 20}, start=19)) == ([1], None)
    assert decide(old, log_of({3: 20})) == ([], None)


def test_without_limits_everything_stays() -> None:
    assert decide(THREE, log_of()) == ([], None)
    assert decide([], log_of(retention_ms=0, retention_bytes=0)) == ([], None)


@pytest.mark.parametrize(
    ("retention_ms", "expected"),
    [
        (3001, ([], None)),
        (3000, ([1], 10)),  # as in Kafka: a local segment would stay for another millisecond
        (2000, ([1, 2], 20)),
        (0, ([1, 2, 3], 30)),
    ],
)
def test_20_by_time(retention_ms: int, expected: tuple[list[int], int | None]) -> None:
    assert decide(THREE, log_of(retention_ms=retention_ms)) == expected


def test_20_what_follows_a_segment_that_stays_stays() -> None:
    old_behind = [*THREE[:1], copied(2, 10, 19, age_ms=10), copied(3, 20, 29, age_ms=9000)]
    assert decide(old_behind, log_of(retention_ms=2000)) == ([1], 10)


@pytest.mark.parametrize(
    ("retention_bytes", "only_local", "expected"),
    [
        (300, 0, ([], None)),
        (299, 0, ([], None)),  # without the first it would be less than the limit
        (200, 0, ([1], 10)),
        (199, 0, ([1], 10)),
        (100, 0, ([1, 2], 20)),
        (0, 0, ([1, 2, 3], 30)),
        (300, 99, ([], None)),
        (300, 100, ([1], 10)),
        (300, 1000, ([1, 2, 3], 30)),
    ],
)
def test_21_by_size(retention_bytes: int, only_local: int, expected: tuple[list[int], int | None]) -> None:
    assert decide(THREE, log_of(retention_bytes=retention_bytes, only_local=only_local)) == expected


def test_21_a_large_segment_that_is_not_due_keeps_smaller_ones_behind_it() -> None:
    segments = [copied(1, 0, 9, size=500), copied(2, 10, 19, size=10)]
    assert decide(segments, log_of(retention_bytes=450)) == ([], None)


def test_21_time_leaves_less_for_size_to_take() -> None:
    assert decide(THREE, log_of(retention_ms=2500, retention_bytes=200)) == ([1], 10)
    assert decide(THREE, log_of(retention_ms=2500, retention_bytes=100)) == ([1, 2], 20)


def test_21_copies_that_are_not_finished_do_not_count() -> None:
    unfinished = [*THREE, segment(4, 30, 39, state=STARTED)]
    assert decide(unfinished, log_of(retention_bytes=300)) == ([], None)
    assert decide(unfinished, log_of(retention_bytes=200)) == ([1], 10)


def test_21_nor_do_segments_that_are_being_deleted() -> None:
    deleting = [dataclasses.replace(THREE[0], state=DELETING), *THREE[1:]]
    assert decide(deleting, log_of(retention_bytes=200)) == ([1], None)
    assert decide(deleting, log_of(retention_bytes=100)) == ([1, 2], 20)


def test_21_nor_segments_of_another_log() -> None:
    strangers = [*THREE, copied(4, 30, 39, {5: 30}), copied(5, 30, 1000)]
    assert remote_log_size(strangers, log_of()) == 300
    assert decide(strangers, log_of(retention_bytes=300)) == ([], None)


def test_21_what_two_leaders_have_copied_in_other_pieces_counts_once() -> None:
    """Ten bytes a record: 200 bytes, whoever has copied them how often."""
    pieces = [copied(1, 0, 9), copied(2, 5, 14), copied(3, 10, 19)]
    assert decide(pieces, log_of(retention_bytes=150)) == ([], None)
    assert decide(pieces, log_of(retention_bytes=150, only_local=49)) == ([], None)
    assert decide(pieces, log_of(retention_bytes=150, only_local=50)) == ([1], 10)
    assert decide(pieces, log_of(retention_bytes=0)) == ([1, 2, 3], 20)


def test_the_totals_are_of_all_that_is_stored() -> None:
    segments = [*THREE, copied(4, 0, 9, {7: 0}, size=7), dataclasses.replace(copied(5, 0, 9, size=3), state=DELETING)]
    unfinished = segment(6, 30, 39, state=STARTED, size=5000)
    assert remote_log_totals([*segments, unfinished]) == (6, 310)
    assert remote_log_totals([]) == (0, 0)


def test_22_a_segment_in_both_tiers_counts_once() -> None:
    local = [(0, 100), (10, 100), (20, 100), (30, 70)]
    assert only_local_size(local, 29) == 70
    assert only_local_size(local, 25) == 70
    assert only_local_size(local, 9) == 270
    assert only_local_size(local, -1) == 370
    assert only_local_size([(29, 5), (30, 7)], 29) == 7  # a copied segment of one record


def test_22_a_segment_of_two_epochs_counts_once() -> None:
    segments = [copied(1, 0, 9, {0: 0, 1: 5}), copied(2, 10, 19, {1: 10})]
    assert decide(segments, log_of({0: 0, 1: 5}, retention_bytes=100)) == ([1], 10)
    assert decide(segments, log_of({0: 0, 1: 5}, retention_bytes=200)) == ([], None)


def test_23_delete_records_removes_what_is_wholly_below_the_log_start() -> None:
    segments = [copied(1, 0, 1), copied(2, 2, 3)]
    assert decide(segments, log_of({0: 3}, start=3, end=6)) == ([1], None)
    assert decide(segments, log_of({0: 4}, start=4, end=6)) == ([1, 2], None)


def test_23_what_is_below_the_log_start_is_no_excess() -> None:
    """Or size retention would take a second segment for the one that goes anyway."""
    log = log_of({0: 10}, start=10, retention_bytes=200)
    assert remote_log_size(THREE, log) == 200
    assert decide(THREE, log) == ([1], None)


def test_23_segments_of_epochs_cut_off_with_the_log_start() -> None:
    segments = [copied(1, 0, 9, {0: 0, 1: 5}), copied(2, 10, 19, {1: 10, 2: 15}), copied(3, 20, 29, {2: 20})]
    numbers, start = decide(segments, log_of({2: 20}, start=20))
    assert (sorted(numbers), start) == ([1, 2], None)


def test_23_a_segment_of_this_log_below_its_start_goes_whatever_epochs_are_known() -> None:
    segments = [copied(1, 0, 9, {0: 0}), copied(2, 10, 19, {1: 10}), copied(3, 20, 29, {1: 20})]
    assert decide(segments, log_of({0: 0, 1: 10}, start=20)) == ([1, 2], None)


def test_a_deletion_that_was_begun_is_repeated() -> None:
    segments = [copied(1, 0, 9), dataclasses.replace(copied(2, 10, 19, {0: 10, 1: 15}), state=DELETING)]
    assert decide(segments, log_of({0: 0, 1: 15})) == ([2], None)


def test_nothing_at_or_behind_a_segment_that_is_being_copied_is_touched() -> None:
    segments = [*THREE, segment(4, 30, 39, state=STARTED, max_timestamp_ms=0), copied(5, 40, 49, age_ms=9000)]
    log = log_of(retention_ms=500)
    assert decide(segments, log, 4) == ([1, 2, 3], 30)
    assert decide(segments, log, 2) == ([1], 10)
    assert decide(segments, log_of({2: 500}, start=500), 1, 2, 4) == ([3, 5], None)


def test_an_unfinished_copy_goes_by_age_and_moves_no_log_start() -> None:
    orphan = segment(4, 30, 39, state=STARTED, max_timestamp_ms=NOW - 5000)
    assert decide([*THREE, orphan], log_of(retention_ms=4000)) == ([], None)
    assert decide([orphan], log_of(retention_ms=4000)) == ([4], None)
    assert decide([orphan], log_of(retention_ms=6000)) == ([], None)


def test_an_unfinished_copy_goes_with_the_records_it_was_to_have() -> None:
    """A crash while a segment was copied, and the copy of the same segment that was finished after it."""
    orphan = segment(9, 0, 9, state=STARTED, max_timestamp_ms=NOW)
    assert decide([orphan, *THREE], log_of(retention_bytes=200)) == ([1, 9], 10)
    later = segment(9, 5, 15, state=STARTED, max_timestamp_ms=NOW)
    assert decide([later, *THREE], log_of(retention_bytes=200)) == ([1], 10)


def test_an_unfinished_copy_in_front_keeps_nothing() -> None:
    orphan = segment(9, 0, 9, state=STARTED, max_timestamp_ms=NOW)
    assert decide([orphan, *THREE], log_of(retention_ms=2500)) == ([1, 9], 10)


def test_21_a_duplicate_counts_once_and_goes_with_the_records_it_is_of() -> None:
    twice = [*THREE, copied(9, 0, 9)]
    assert remote_log_size(twice, log_of()) == 300
    assert decide(twice, log_of(retention_bytes=300)) == ([], None)
    assert decide(twice, log_of(retention_bytes=200)) == ([1, 9], 10)
    within = [copied(1, 0, 19, size=200), copied(2, 5, 14), copied(3, 20, 29)]
    assert decide(within, log_of(retention_bytes=299)) == ([], None)
    assert decide(within, log_of(retention_bytes=100)) == ([1, 2], 20)


def test_a_duplicate_does_not_go_before_the_longer_copy() -> None:
    """It may be the one that offsets lead to."""
    segments = [copied(2, 0, 9, age_ms=5000), copied(1, 0, 19, age_ms=3000)]
    assert decide(segments, log_of(retention_ms=4000)) == ([], None)
    assert decide(segments, log_of(retention_ms=2000)) == ([1, 2], 20)


def test_44_leftovers_of_an_unclean_election_go_when_the_log_has_none_of_their_epochs() -> None:
    leftovers = [copied(1, 100, 199, {0: 100, 1: 150}), copied(2, 200, 299, {1: 200})]
    current = copied(3, 300, 399, {2: 300})
    assert decide([*leftovers, current], log_of({0: 0, 2: 120}, end=500)) == ([], None)
    assert decide([*leftovers, current], log_of({1: 110, 2: 120}, start=110, end=500)) == ([], None)
    assert decide([*leftovers, current], log_of({2: 120}, start=120, end=500)) == ([1, 2], None)


def test_44_they_neither_expire_nor_hold_up_what_follows() -> None:
    stale = copied(1, 0, 60, {0: 0}, age_ms=9000)
    mine = [copied(2, 0, 49, {0: 0}, age_ms=8000), copied(3, 50, 99, {1: 50}, age_ms=7000)]
    assert decide([stale, *mine], log_of({0: 0, 1: 50}, retention_ms=7500)) == ([2], 50)


def test_the_log_start_moves_to_the_highest_that_goes() -> None:
    """A duplicate that reaches less far is listed behind the segment that replaced it."""
    segments = [copied(1, 0, 29, age_ms=5000), copied(2, 10, 19, age_ms=6000)]
    assert decide(segments, log_of(retention_ms=4000)) == ([1, 2], 30)


def test_a_log_without_records_keeps_its_segments() -> None:
    assert decide(THREE, log_of({}, start=0, end=0, retention_ms=0)) == ([], None)


def test_the_size_of_what_goes() -> None:
    assert RemoteExpiration(tuple(THREE[:2]), 20).size_in_bytes == 200


@st.composite
def tiered_logs(draw: st.DrawFn) -> tuple[list[RemoteLogSegmentMetadata], RetainedLog]:
    """A log with epochs, copied whole from its start on, some of it twice or not to the end, and things of others."""
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=10))
    ends = [sum(lengths[: count + 1]) for count in range(len(lengths))]
    epochs = {0: 0} | dict(enumerate(sorted(draw(st.sets(st.integers(1, ends[-1]), max_size=3))), 1))
    segments = []
    for number, (length, end) in enumerate(zip(lengths, ends, strict=True), 1):
        first = end - length
        own = {epoch: offset for epoch, offset in epochs.items() if first < offset < end}
        own[max(epoch for epoch, offset in epochs.items() if offset <= first)] = first
        state = draw(st.sampled_from([FINISHED] * 6 + [STARTED, DELETING]))
        made = segment(
            number, first, end - 1, own, state=state, size=draw(st.integers(1, 50)),
            max_timestamp_ms=NOW - draw(st.integers(0, 100)),
        )  # fmt: skip
        segments.append(made)
        if draw(st.integers(0, 4)) == 0:
            segments.append(dataclasses.replace(made, segment_id=UUID(int=100 + number), state=FINISHED))
    if draw(st.booleans()):
        segments.append(segment(200, 0, draw(st.integers(0, 30)), {7: 0}, state=FINISHED))
    log_start = draw(st.integers(0, ends[-1]))
    cut = {max(epoch for epoch, offset in epochs.items() if offset <= log_start): log_start}
    cut |= {epoch: offset for epoch, offset in epochs.items() if offset > log_start}
    return draw(st.permutations(segments)), log_of(
        cut,
        start=log_start,
        end=ends[-1] + 1,
        only_local=draw(st.integers(0, 60)),
        retention_ms=draw(st.sampled_from([-1, 0, 20, 50, 90])),
        retention_bytes=draw(st.sampled_from([-1, 0, 10, 50, 100, 200])),
    )


@given(tiered_logs())
@settings(max_examples=100)
def test_what_retention_may_and_must_do(case: tuple[list[RemoteLogSegmentMetadata], RetainedLog]) -> None:
    segments, log = case
    decided = expired_segments(segments, frozenset(), log, NOW)
    gone = {each.segment_id for each in decided.segments}
    assert len(gone) == len(decided.segments)
    lineage = SegmentLineage(log.leader_epochs, log.log_end_offset)
    start = log.log_start_offset if decided.log_start_offset is None else decided.log_start_offset
    assert log.log_start_offset <= start < log.log_end_offset
    left = [each for each in segments if each.segment_id not in gone]

    def is_old(each: RemoteLogSegmentMetadata) -> bool:
        return 0 <= log.retention_ms <= NOW - each.max_timestamp_ms

    # What is readable and stays lies at or above the log's start; nobody waits for a deletion that was begun.
    assert all(each.end_offset >= start for each in left if each.is_readable and each in lineage)
    assert all(each.state is not DELETING for each in left)
    # What is not old goes only as far as the log stays at its limit, or above.
    size_before = log.only_local_size_bytes + remote_log_size(segments, log)
    by_size = [
        each
        for each in decided.segments
        if each.is_readable and each in lineage and each.end_offset >= log.log_start_offset and not is_old(each)
    ]
    if by_size:
        assert 0 <= log.retention_bytes <= size_before - remote_log_size(by_size, log)
    # The oldest that stays is neither old nor wholly excess.
    readable = sorted(
        (each for each in left if each.is_readable and each in lineage), key=lambda each: each.start_offset
    )
    if readable:
        size_after = log.only_local_size_bytes + remote_log_size(left, log)
        first = [each for each in readable if each.start_offset == readable[0].start_offset]
        assert not all(is_old(each) for each in first)
        if log.retention_bytes >= 0:
            assert (
                min(size_after - each.segment_size_in_bytes for each in first) < log.retention_bytes or len(first) > 1
            )
    if log.retention_ms < 0 and log.retention_bytes < 0:
        assert decided.log_start_offset is None


@given(tiered_logs())
@settings(max_examples=50)
def test_a_second_look_finds_nothing_new(case: tuple[list[RemoteLogSegmentMetadata], RetainedLog]) -> None:
    """The log start is raised first: if the broker dies then, its successor deletes the same, and no more."""
    segments, log = case
    first = expired_segments(segments, frozenset(), log, NOW)
    start = log.log_start_offset if first.log_start_offset is None else first.log_start_offset
    epochs = {entry.epoch: entry.start_offset for entry in log.leader_epochs}
    cut = {max(epoch for epoch, offset in epochs.items() if offset <= start): start}
    cut |= {epoch: offset for epoch, offset in epochs.items() if offset > start}
    moved = dataclasses.replace(log, log_start_offset=start, leader_epochs=epoch_entries(cut))
    second = expired_segments(segments, frozenset(), moved, NOW)
    assert second.log_start_offset is None
    assert {each.segment_id for each in first.segments} <= {each.segment_id for each in second.segments}
