import dataclasses
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.schemas.remote_log_metadata import RemoteLogSegmentState
from broker.tiering.remote_log_metadata_cache import EventOutcome, RemoteLogMetadataCache
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata
from broker.tiering.segment_state import may_follow

from .segment_world import DELETED, DELETING, FINISHED, PARTITION, STARTED, segment, update

APPLIED, ILLEGAL, UNKNOWN = EventOutcome.APPLIED, EventOutcome.ILLEGAL_TRANSITION, EventOutcome.UNKNOWN_SEGMENT


def cache_of(*segments: RemoteLogSegmentMetadata) -> RemoteLogMetadataCache:
    """All of them copied, one after the other."""
    cache = RemoteLogMetadataCache(PARTITION)
    for each in segments:
        assert cache.add(each) is APPLIED
        assert cache.update(update(each.segment_id.int, FINISHED)) is APPLIED
    return cache


def found(cache: RemoteLogMetadataCache, epoch: int, *offsets: int) -> list[int | None]:
    """Numbers of segments."""
    answers = [cache.remote_log_segment_metadata(epoch, offset) for offset in offsets]
    return [None if answer is None else answer.segment_id.int for answer in answers]


def listed(cache: RemoteLogMetadataCache, epoch: int | None = None) -> list[tuple[int, int]]:
    """(number, state)."""
    return [(each.segment_id.int, int(each.state)) for each in cache.list_remote_log_segments(epoch)]


def in_state(state: RemoteLogSegmentState) -> RemoteLogMetadataCache:
    cache = RemoteLogMetadataCache(PARTITION)
    cache.add(segment(1, 0, 9))
    for step in {STARTED: (), FINISHED: (FINISHED,), DELETING: (FINISHED, DELETING)}[state]:
        assert cache.update(update(1, step)) is APPLIED
    return cache


@pytest.mark.parametrize(
    ("state", "is_found", "states_listed", "highest"),
    [(STARTED, False, [(1, 0)], None), (FINISHED, True, [(1, 1)], 9), (DELETING, False, [(1, 2)], 9)],
)
def test_what_each_state_is_there_for(
    state: RemoteLogSegmentState, is_found: bool, states_listed: list[tuple[int, int]], highest: int | None
) -> None:
    cache = in_state(state)
    assert found(cache, 0, 5) == [1 if is_found else None]
    assert listed(cache, 0) == listed(cache) == states_listed
    assert cache.highest_offset_for_epoch(0) == highest
    assert cache.remote_log_size(0) == 100


def test_a_deleted_segment_is_forgotten() -> None:
    cache = in_state(DELETING)
    assert cache.update(update(1, DELETED)) is APPLIED
    assert (listed(cache), listed(cache, 0), len(cache)) == ([], [], 0)
    assert cache.remote_log_size(0) == 0
    assert cache.highest_offset_for_epoch(0) == 9
    assert cache.update(update(1, DELETED)) is UNKNOWN


@pytest.mark.parametrize(("state", "target"), [(STARTED, DELETED), (FINISHED, DELETED), (DELETING, FINISHED)], ids=str)
def test_5_illegal_transitions_change_nothing(state: RemoteLogSegmentState, target: RemoteLogSegmentState) -> None:
    cache = in_state(state)
    before = cache.list_remote_log_segments()
    assert cache.update(update(1, target)) is ILLEGAL
    assert cache.list_remote_log_segments() == before


@pytest.mark.parametrize("state", [FINISHED, DELETING])
def test_5_a_copy_does_not_begin_again(state: RemoteLogSegmentState) -> None:
    cache = in_state(state)
    assert cache.add(segment(1, 0, 9)) is ILLEGAL
    assert listed(cache) == [(1, int(state))]


@pytest.mark.parametrize("state", [FINISHED, DELETING])
def test_5_the_same_state_again_is_fine(state: RemoteLogSegmentState) -> None:
    cache = in_state(state)
    assert cache.update(update(1, state, custom=b"again")) is APPLIED
    assert listed(cache) == [(1, int(state))]
    assert cache.list_remote_log_segments()[0].custom_metadata == b"again"


def test_5_a_copy_that_is_told_twice_began_once() -> None:
    cache = in_state(STARTED)
    assert cache.add(segment(1, 0, 9, {7: 0})) is APPLIED
    assert (listed(cache, 0), listed(cache, 7)) == ([(1, 0)], [])


def test_an_event_told_twice_does_not_bring_back_a_replaced_segment() -> None:
    cache = cache_of(segment(1, 0, 100), segment(2, 0, 200))
    assert cache.update(update(1, FINISHED)) is APPLIED
    assert found(cache, 0, 50, 150) == [2, 2]
    assert listed(cache, 0) == [(2, 1), (1, 1)]


def test_segments_share_the_name_of_their_partition() -> None:
    told = segment(1, 0, 9, partition=PARTITION._replace(topic="".join(["top", "ic"])))
    assert told.partition is not PARTITION
    assert cache_of(told).list_remote_log_segments()[0].partition is PARTITION


@pytest.mark.parametrize("state", [FINISHED, DELETING, DELETED])
def test_6_only_copies_that_begin_are_added(state: RemoteLogSegmentState) -> None:
    with pytest.raises(ValueError, match=f"not in {state.name}"):
        RemoteLogMetadataCache(PARTITION).add(segment(1, 0, 9, state=state))


def test_6_an_update_cannot_begin_a_copy() -> None:
    cache = in_state(FINISHED)
    with pytest.raises(ValueError, match="COPY_SEGMENT_STARTED"):
        cache.update(update(1, STARTED))


def test_an_update_of_an_unknown_segment_is_told() -> None:
    assert RemoteLogMetadataCache(PARTITION).update(update(1, FINISHED)) is UNKNOWN


def test_an_offset_is_looked_up_in_its_epoch() -> None:
    cache = cache_of(segment(1, 0, 99, {0: 0, 1: 20, 3: 60}), segment(2, 100, 149, {3: 100}))
    assert found(cache, 0, 0, 19, 20, 99) == [1, 1, None, None]
    assert found(cache, 1, 19, 20, 59, 60) == [None, 1, 1, None]
    assert found(cache, 2, 30) == [None]
    assert found(cache, 3, 59, 60, 99, 100, 149, 150) == [None, 1, 1, 2, 2, None]
    assert [cache.highest_offset_for_epoch(epoch) for epoch in range(5)] == [19, 59, None, 149, None]
    assert [listed(cache, epoch) for epoch in range(4)] == [[(1, 1)], [(1, 1)], [], [(1, 1), (2, 1)]]
    assert [cache.remote_log_size(epoch) for epoch in range(4)] == [100, 100, 0, 200]


def test_an_epoch_without_records_has_no_offsets() -> None:
    cache = cache_of(segment(1, 0, 99, {0: 0, 1: 50, 2: 50}))
    assert found(cache, 1, 49, 50, 60) == [None, None, None]
    assert found(cache, 2, 50) == [1]


def test_45_overlapping_segments() -> None:
    cache = cache_of(segment(1, 10, 90), segment(2, 5, 100))
    assert found(cache, 0, 4, 5, 10, 90, 95, 100, 101) == [None, 2, 2, 2, 2, 2, None]
    assert listed(cache, 0) == [(2, 1), (1, 1)]
    assert cache.remote_log_size(0) == 200


def test_a_segment_may_be_replaced_in_one_epoch_and_stay_in_another() -> None:
    cache = cache_of(segment(1, 0, 99, {0: 0, 1: 50}), segment(2, 50, 150, {1: 50}))
    assert found(cache, 0, 49) == [1]
    assert found(cache, 1, 50, 99, 150) == [2, 2, 2]
    assert cache.update(update(1, DELETING)) is APPLIED
    assert found(cache, 0, 49) == [None]
    assert found(cache, 1, 50) == [2]


def test_segments_are_listed_by_start_offset_whatever_their_state() -> None:
    cache = cache_of(segment(1, 20, 29), segment(2, 0, 9), segment(3, 10, 19))
    cache.add(segment(4, 5, 15))
    cache.update(update(3, DELETING))
    assert listed(cache, 0) == [(2, 1), (4, 0), (3, 2), (1, 1)]


def test_45_a_shorter_copy_that_finishes_late_hides_nothing() -> None:
    """Broker 1 began to copy [50-99] in epoch 0 and was paused; its successor has copied [40-120] meanwhile."""
    cache = RemoteLogMetadataCache(PARTITION)
    cache.add(segment(1, 50, 99))
    cache.add(segment(2, 40, 125, {0: 40, 1: 121}))
    assert cache.update(update(2, FINISHED)) is APPLIED
    assert cache.update(update(1, FINISHED)) is APPLIED
    assert found(cache, 0, 39, 40, 50, 99, 100, 120, 121) == [None, 2, 2, 2, 2, 2, None]
    assert found(cache, 1, 120, 121, 125) == [None, 2, 2]
    assert listed(cache, 0) == [(2, 1), (1, 1)]


def test_45_with_the_longer_copy_gone_the_shorter_one_is_found() -> None:
    cache = cache_of(segment(1, 0, 120), segment(2, 50, 99), segment(3, 0, 60))
    assert cache.update(update(1, DELETING)) is APPLIED
    assert found(cache, 0, 0, 50, 60, 61, 99, 100) == [3, 2, 2, 2, 2, None]
    assert cache.update(update(1, DELETED)) is APPLIED
    assert found(cache, 0, 0, 50, 60, 61, 99, 100) == [3, 2, 2, 2, 2, None]


class Told:
    """What a history comes to, over plain dicts; `highest` by epoch."""

    def __init__(self) -> None:
        self.segments: dict[int, RemoteLogSegmentMetadata] = {}
        self.highest: dict[int, int] = {}

    def move(self, number: int, state: RemoteLogSegmentState) -> None:
        one = self.segments[number] = dataclasses.replace(self.segments[number], state=state)
        if state is FINISHED:
            for epoch, _ in one.segment_leader_epochs:
                self.highest[epoch] = max(self.highest.get(epoch, -1), range_of(one, epoch)[1])
        elif state is DELETED:
            del self.segments[number]

    def finished(self, epoch: int) -> dict[int, tuple[int, int]]:
        """The offsets of the epoch that each segment has which may be read."""
        readable = {number: one for number, one in self.segments.items() if one.state is FINISHED}
        ranges = {number: range_of(one, epoch) for number, one in readable.items()}
        return {number: each for number, each in ranges.items() if each[0] <= each[1]}


def range_of(one: RemoteLogSegmentMetadata, epoch: int) -> tuple[int, int]:
    """First and last offset of the epoch."""
    starts = [each.start_offset for each in one.segment_leader_epochs if each.epoch == epoch]
    later = [each.start_offset - 1 for each in one.segment_leader_epochs if each.epoch > epoch]
    return (starts[0], min([*later, one.end_offset])) if starts else (0, -1)


def check_found(cache: RemoteLogMetadataCache, told_of: Told, epoch: int) -> None:
    """Each offset that any segment has which may be read is found, in one that has it and lies within no other."""
    finished = told_of.finished(epoch)
    for offset, answer in enumerate(found(cache, epoch, *range(60))):
        having = {number for number, (start, end) in finished.items() if start <= offset <= end}
        assert (answer in having) if having else (answer is None), (epoch, offset, answer, having)
        if answer is not None:
            start, end = finished[answer]
            assert all(
                (start, end) == other or not (other[0] <= start and end <= other[1]) for other in finished.values()
            )


@st.composite
def segments_of(draw: st.DrawFn, number: int) -> RemoteLogSegmentMetadata:
    start = draw(st.integers(0, 6)) * 5
    epoch = draw(st.integers(0, 2))
    epochs = {epoch: start}
    for gap in draw(st.lists(st.integers(0, 5), max_size=2)):
        epoch += 1
        epochs[epoch] = max(epochs.values()) + gap
    return segment(number, start, max(epochs.values()) + draw(st.integers(0, 9)), epochs)


@given(st.data())
@settings(max_examples=150)
def test_45_whatever_happens_every_offset_that_can_be_read_is_found(data: st.DataObject) -> None:
    """Copies begin, finish and are deleted in any order, of whatever offsets: within each other, overlapping, twice."""
    cache, told_of = RemoteLogMetadataCache(PARTITION), Told()
    for number in range(1, data.draw(st.integers(2, 20))):
        known = sorted(told_of.segments)
        if not known or data.draw(st.booleans()):
            told_of.segments[number] = data.draw(segments_of(number))
            assert cache.add(told_of.segments[number]) is APPLIED
            continue
        chosen = data.draw(st.sampled_from(known))
        target = data.draw(st.sampled_from([FINISHED, FINISHED, DELETING, DELETED]))
        state = told_of.segments[chosen].state
        is_legal = may_follow(state, target)
        assert cache.update(update(chosen, target)) is (APPLIED if is_legal else ILLEGAL)
        if is_legal and state is not target:
            told_of.move(chosen, target)
        for epoch in range(6):
            check_found(cache, told_of, epoch)
    assert sorted(listed(cache)) == sorted((number, int(one.state)) for number, one in told_of.segments.items())
    for epoch in range(6):
        expected = [
            one for one in told_of.segments.values() if any(e.epoch == epoch for e in one.segment_leader_epochs)
        ]
        assert sorted(listed(cache, epoch)) == sorted((one.segment_id.int, int(one.state)) for one in expected)
        assert cache.remote_log_size(epoch) == 100 * len(expected)
        assert cache.highest_offset_for_epoch(epoch) == told_of.highest.get(epoch)


@given(st.data(), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=12))
@settings(max_examples=100)
def test_every_offset_that_was_copied_is_found(data: st.DataObject, copies: list[tuple[int, int]]) -> None:
    """Leaders in turn: each begins somewhere in what the others copy, or just after it.  They finish in any order."""
    cache, reach = RemoteLogMetadataCache(PARTITION), -1
    for number, (back, ahead) in enumerate(copies, 1):
        start = max(0, reach + 1 - back)
        cache.add(segment(number, start, start + ahead))
        reach = max(reach, start + ahead)
    for number in data.draw(st.permutations(range(1, len(copies) + 1))):
        cache.update(update(number, FINISHED))
    for offset in range(reach + 1):
        answer = cache.remote_log_segment_metadata(0, offset)
        assert answer is not None and answer.start_offset <= offset <= answer.end_offset
    assert cache.remote_log_segment_metadata(0, reach + 1) is None
    assert {each.segment_id for each in cache.list_remote_log_segments(0)} == {
        UUID(int=number) for number in range(1, len(copies) + 1)
    }
