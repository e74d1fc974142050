from uuid import UUID

import pytest

from broker.tiering.epoch_segments import EpochSegments

A, B, C, D = (UUID(int=number) for number in range(1, 5))


def finished(*copies: tuple[int, int, UUID]) -> EpochSegments:
    segments = EpochSegments()
    for start_offset, end_offset, segment_id in copies:
        segments.copy_started(segment_id)
        segments.copy_finished(start_offset, end_offset, segment_id)
    return segments


def test_nothing_is_known_at_first() -> None:
    segments = EpochSegments()
    assert (list(segments), segments.highest_offset, segments.floor(5)) == ([], None, None)


def test_a_copy_that_began_is_listed_and_not_found() -> None:
    segments = EpochSegments()
    segments.copy_started(A)
    assert (segments.referenced, segments.unreferenced, segments.floor(5)) == ((), (A,), None)
    assert segments.highest_offset is None


def test_offsets_lead_to_the_segment_that_began_last() -> None:
    segments = finished((0, 9, A), (10, 19, B))
    assert [segments.floor(offset) for offset in (-1, 0, 9, 10, 500)] == [None, A, A, B, B]
    assert (segments.referenced, segments.unreferenced, segments.highest_offset) == ((A, B), (), 19)


def test_segments_may_finish_in_any_order() -> None:
    segments = finished((10, 19, B), (30, 39, C))
    segments.copy_finished(0, 9, A)
    assert segments.referenced == (A, B, C)
    assert segments.highest_offset == 39


def test_a_duplicate_that_reaches_as_far_or_further_replaces() -> None:
    segments = finished((0, 100, A), (0, 200, B))
    assert (segments.referenced, segments.unreferenced, segments.highest_offset) == ((B,), (A,), 200)
    segments = finished((0, 100, A), (0, 100, B))
    assert (segments.referenced, segments.unreferenced) == ((B,), (A,))


def test_45_one_that_covers_several_replaces_them_all() -> None:
    segments = finished((10, 50, A), (51, 90, B), (5, 100, C))
    assert segments.referenced == (C,)
    assert segments.unreferenced == (A, B)
    assert segments.floor(95) == C


def test_one_that_begins_earlier_and_ends_together_replaces() -> None:
    segments = finished((10, 90, A), (5, 90, B))
    assert (segments.referenced, segments.unreferenced, segments.highest_offset) == ((B,), (A,), 90)


def test_what_reaches_further_than_the_new_one_stays() -> None:
    segments = finished((10, 90, A), (5, 50, B))
    assert (segments.referenced, segments.unreferenced, segments.highest_offset) == ((B, A), (), 90)


def test_45_a_shorter_one_that_finishes_late_hides_nothing() -> None:
    segments = finished((40, 120, B), (50, 99, A))
    assert (segments.referenced, segments.unreferenced, segments.highest_offset) == ((B,), (A,), 120)
    assert [segments.floor(offset) for offset in (40, 50, 99, 100, 120)] == [B] * 5


@pytest.mark.parametrize("late", [(0, 50), (50, 100), (20, 50), (100, 100)])
def test_45_wherever_it_is_cut(late: tuple[int, int]) -> None:
    segments = finished((0, 100, B), (*late, A))
    assert (segments.referenced, segments.unreferenced, segments.highest_offset) == ((B,), (A,), 100)


def test_45_what_was_replaced_is_found_again_when_the_longer_one_is_deleted() -> None:
    segments = finished((0, 49, A), (50, 90, B), (20, 60, C), (0, 100, D))
    assert (segments.referenced, segments.unreferenced) == ((D,), (A, C, B))
    segments.delete_started(0, 100, D)
    assert (segments.referenced, segments.unreferenced) == ((A, C, B), (D,))
    segments.delete_finished(D)
    assert list(segments) == [A, C, B]


def test_45_unless_another_one_has_it_as_well() -> None:
    segments = finished((10, 20, A), (10, 50, B), (10, 100, C))
    segments.delete_started(10, 100, C)
    assert (segments.referenced, segments.unreferenced) == ((B,), (C, A))
    segments.delete_started(10, 50, B)
    assert (segments.referenced, segments.unreferenced) == ((A,), (C, B))


def test_45_or_it_is_deleted_itself() -> None:
    segments = finished((0, 49, A), (50, 90, B), (0, 100, C))
    segments.delete_started(0, 49, A)
    segments.delete_started(0, 100, C)
    assert (segments.referenced, segments.unreferenced) == ((B,), (A, C))


def test_of_an_epoch_without_records_nothing_is_found() -> None:
    segments = finished((50, 49, A))
    assert (segments.referenced, segments.unreferenced, segments.highest_offset) == ((), (A,), 49)
    segments.copy_finished(40, 60, B)
    segments.copy_finished(50, 49, C)
    assert (segments.referenced, segments.unreferenced, segments.highest_offset) == ((B,), (A, C), 60)


def test_a_deletion_is_listed_until_it_is_done() -> None:
    segments = finished((0, 9, A), (10, 19, B))
    segments.delete_started(0, 9, A)
    assert (segments.referenced, segments.unreferenced, segments.floor(5)) == ((B,), (A,), None)
    segments.delete_finished(A)
    assert (list(segments), segments.highest_offset) == ([B], 19)


def test_the_deletion_of_a_replaced_one_leaves_the_new_one() -> None:
    segments = finished((0, 100, A), (0, 200, B))
    segments.delete_started(0, 100, A)
    assert (segments.referenced, segments.unreferenced) == ((B,), (A,))


def test_the_highest_offset_never_falls() -> None:
    segments = finished((0, 9, A), (10, 19, B))
    segments.delete_started(10, 19, B)
    segments.delete_finished(B)
    segments.copy_finished(10, 14, C)
    assert (segments.referenced, segments.highest_offset) == ((A, C), 19)
