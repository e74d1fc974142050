import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.tiering.segment_lineage import SegmentLineage

from .segment_world import epoch_entries, segment

LEADER_EPOCHS = epoch_entries({0: 0, 1: 10, 2: 20, 3: 30, 4: 40, 5: 50, 7: 70})
LINEAGE = SegmentLineage(LEADER_EPOCHS, 90)


@pytest.mark.parametrize(
    ("epochs", "end"),
    [
        ({1: 15, 2: 20, 3: 30}, 35),
        ({1: 15}, 19),
        ({0: 0}, 5),
        ({7: 70}, 75),
        ({1: 15, 2: 20}, 29),
        ({7: 70}, 89),
        ({1: 10}, 19),
    ],
)
def test_43_segments_of_this_log(epochs: dict[int, int], end: int) -> None:
    assert segment(1, min(epochs.values()), end, epochs) in LINEAGE


@pytest.mark.parametrize(
    ("epochs", "end"),
    [
        ({5: 55, 6: 60, 7: 70}, 85),  # an epoch that the log does not have
        ({1: 15, 2: 20, 4: 40}, 45),  # one of the log's is missing
        ({7: 70}, 95),  # past the log's end
        ({7: 70}, 90),  # just past it: the end of a segment is inclusive, that of the log is not
        ({1: 5, 2: 20}, 25),  # began earlier than the log's epoch
        ({1: 15, 2: 20}, 35),  # reaches into the next epoch
        ({1: 15}, 20),
        ({1: 15, 2: 21}, 25),  # the next epoch began later
        ({8: 80}, 85),  # newer than all of the log's
    ],
)
def test_43_segments_of_another_log(epochs: dict[int, int], end: int) -> None:
    assert segment(1, min(epochs.values()), end, epochs) not in LINEAGE


def test_43_epochs_cut_off_at_the_start_are_not_looked_at() -> None:
    cut = SegmentLineage(epoch_entries({2: 25, 3: 30}), 90)
    assert segment(1, 5, 35, {0: 5, 1: 10, 2: 20, 3: 30}) in cut
    assert segment(1, 5, 29, {0: 5, 2: 12}) in cut
    assert segment(1, 5, 24, {0: 5, 1: 10}) not in cut  # only of epochs before the first
    assert segment(1, 5, 35, {0: 5, 3: 25}) not in cut  # has nothing of the first, and the next one too early
    assert segment(1, 5, 35, {0: 5, 3: 30}) in cut


def test_43_epochs_without_records_count_on_neither_side() -> None:
    assert segment(1, 15, 35, {1: 15, 2: 20, 3: 30}) in SegmentLineage(
        epoch_entries({0: 0, 1: 10, 2: 20, 3: 30, 4: 40, 5: 40, 6: 40}), 90
    )
    assert segment(1, 15, 45, {1: 15, 2: 20, 3: 30, 4: 40, 6: 40}) in SegmentLineage(
        epoch_entries({0: 0, 1: 10, 2: 20, 3: 30, 6: 40}), 90
    )
    assert segment(1, 15, 35, {1: 15, 2: 15, 3: 30}) not in LINEAGE  # of epoch 2 from 15 on, here it began at 20


def test_nothing_is_of_a_log_without_epochs() -> None:
    assert segment(1, 0, 5) not in SegmentLineage((), 90)


def test_44_what_an_unclean_election_left_is_not_of_this_log() -> None:
    after = SegmentLineage(epoch_entries({0: 0, 1: 150, 2: 300}), 400)
    assert segment(1, 0, 99, {0: 0}) in after
    assert segment(2, 100, 149, {0: 100}) in after
    assert segment(3, 100, 150, {0: 100}) not in after
    assert segment(4, 150, 200, {0: 150}) not in after


@st.composite
def logs_and_cuts(draw: st.DrawFn) -> tuple[list[int], int, int, int]:
    """(the epoch of each offset, from, to, log start)."""
    steps = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=6))
    epochs: list[int] = []
    epoch = -1
    for length, jump in steps:
        epoch += jump
        epochs += [epoch] * length
    start = draw(st.integers(0, len(epochs) - 1))
    end = draw(st.integers(start, len(epochs) - 1))
    return epochs, start, end, draw(st.integers(0, start))


def epochs_of(offsets: list[int], first: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for offset, epoch in enumerate(offsets, first):
        found.setdefault(epoch, offset)
    return found


@given(logs_and_cuts())
@settings(max_examples=150, deadline=None)
def test_what_was_cut_from_a_log_is_of_it(case: tuple[list[int], int, int, int]) -> None:
    log, start, end, log_start = case
    cut = segment(1, start, end, epochs_of(log[start : end + 1], start))
    assert cut in SegmentLineage(epoch_entries(epochs_of(log[log_start:], log_start)), len(log))


@given(logs_and_cuts(), st.data())
@settings(max_examples=150, deadline=None)
def test_what_differs_in_one_record_is_not(case: tuple[list[int], int, int, int], data: st.DataObject) -> None:
    """A log that went another way from some record of the segment on: in an epoch that this one does not have."""
    log, start, end, _ = case
    fork = data.draw(st.integers(start, end))
    other = log[:fork] + [log[fork] + 100] * (end + 1 - fork)
    strange = segment(1, start, end, epochs_of(other[start : end + 1], start))
    assert strange not in SegmentLineage(epoch_entries(epochs_of(log, 0)), len(log))
