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
@settings(max_examples=150)
def test_what_was_cut_from_a_log_is_of_it(case: tuple[list[int], int, int, int]) -> None:
    log, start, end, log_start = case
    cut = segment(1, start, end, epochs_of(log[start : end + 1], start))
    assert cut in SegmentLineage(epoch_entries(epochs_of(log[log_start:], log_start)), len(log))


@given(logs_and_cuts(), st.data())
@settings(max_examples=150)
def test_what_differs_in_one_record_is_not(case: tuple[list[int], int, int, int], data: st.DataObject) -> None:
    """A log that went another way from some record of the segment on: in an epoch that this one does not have."""
    log, start, end, _ = case
    fork = data.draw(st.integers(start, end))
    other = log[:fork] + [log[fork] + 100] * (end + 1 - fork)
    strange = segment(1, start, end, epochs_of(other[start : end + 1], start))
    assert strange not in SegmentLineage(epoch_entries(epochs_of(log, 0)), len(log))


@pytest.mark.parametrize(
    ("epochs", "end", "offset", "common"),
    [
        ({1: 15, 2: 20, 3: 30}, 35, 15, 36),  # all of it, from any offset on
        ({1: 15, 2: 20, 3: 30}, 35, 33, 36),
        ({7: 70}, 95, 75, 90),  # to the log's end
        ({0: 0}, 9, 3, 10),
        ({0: 0}, 15, 3, 10),  # the old leader went on in its epoch: the log's next one begins earlier
        ({0: 0, 1: 12}, 15, 3, 10),  # the epoch that follows began later there
        ({0: 0, 1: 8}, 15, 3, 8),  # or earlier
        ({0: 0, 2: 10}, 15, 3, 10),  # or is another one
        ({0: 0, 1: 10, 2: 20, 4: 30}, 35, 3, 30),
        ({0: 0, 2: 10}, 15, 12, 12),  # nothing, from there on
        ({0: 0}, 15, 12, 12),
        ({5: 55, 6: 60}, 65, 57, 60),
    ],
)
def test_44_up_to_where_a_segment_is_of_this_log(epochs: dict[int, int], end: int, offset: int, common: int) -> None:
    assert LINEAGE.common_end(segment(1, min(epochs.values()), end, epochs), offset) == common


def test_44_epochs_without_records_are_no_end() -> None:
    lineage = SegmentLineage(epoch_entries({0: 0, 1: 10, 2: 20, 3: 20, 4: 20}), 30)
    assert lineage.common_end(segment(1, 0, 25, {0: 0, 1: 10, 2: 20, 4: 20}), 5) == 26
    assert lineage.common_end(segment(1, 0, 25, {0: 0, 1: 10, 4: 20}), 12) == 26


def test_44_a_log_without_epochs_has_nothing_in_common() -> None:
    assert SegmentLineage((), 0).common_end(segment(1, 0, 9), 5) == 5
    assert SegmentLineage(epoch_entries({0: 5}), 9).common_end(segment(1, 0, 9), 3) == 3


_EPOCHS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), min_size=1, max_size=5)


@settings(max_examples=300)
@given(ours=_EPOCHS, theirs=_EPOCHS, data=st.data())
def test_44_the_common_part_is_what_was_written_in_the_same_epochs(
    ours: list[tuple[int, int]], theirs: list[tuple[int, int]], data: st.DataObject
) -> None:
    """(how much higher the epoch is, how many records it wrote), against looking at each offset."""

    def laid_out(shape: list[tuple[int, int]]) -> tuple[dict[int, int], list[int]]:
        epoch, starts, wrote = -1, {}, []
        for step, records in shape:
            epoch += step
            starts[epoch] = len(wrote)
            wrote += [epoch] * records
        return starts, wrote

    our_epochs, our_log = laid_out(ours)
    their_epochs, their_log = laid_out(theirs)
    if not their_log:
        return
    one = segment(1, 0, len(their_log) - 1, their_epochs)
    offset = data.draw(st.integers(0, len(their_log) - 1))
    expected = offset
    while expected < min(len(our_log), len(their_log)) and our_log[expected] == their_log[expected]:
        expected += 1
    lineage = SegmentLineage(epoch_entries(our_epochs), len(our_log))
    # One leader writes an epoch, so logs that have the same epoch at an offset have the same records before it.
    if our_log[:offset] == their_log[:offset] and offset < len(our_log):
        assert lineage.common_end(one, offset) == expected
