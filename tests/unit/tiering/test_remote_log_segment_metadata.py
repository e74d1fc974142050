import dataclasses
from uuid import UUID

import pytest

from .segment_world import DELETED, DELETING, FINISHED, STARTED, epoch_entries, segment, update


@pytest.mark.parametrize(
    ("start", "end", "epochs", "message"),
    [
        (-1, 5, {0: 0}, "start offset -1"),
        (5, 4, {0: 5}, "from 5 to 4"),
        (0, 5, {}, "without leader epochs"),
        (0, 5, {0: 0, 1: 7}, "epoch 1 of a remote segment starts at 7: it ends at 5"),
        (0, 5, {0: 0, 1: 1000, 2: 5}, "epoch 1 of a remote segment starts at 1000"),
    ],
)
def test_what_no_segment_can_be(start: int, end: int, epochs: dict[int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        segment(1, start, end, epochs)


def test_leader_epochs_ascend() -> None:
    one = segment(1, 0, 9, {0: 0, 1: 5})
    with pytest.raises(ValueError, match="do not ascend: 1, 0"):
        dataclasses.replace(one, segment_leader_epochs=one.segment_leader_epochs[::-1])
    with pytest.raises(ValueError, match="do not ascend: 0, 0"):
        dataclasses.replace(one, segment_leader_epochs=one.segment_leader_epochs[:1] * 2)


def test_one_record_is_a_segment() -> None:
    one = segment(1, 7, 7)
    assert one.next_offset == 8


def test_an_epoch_ends_before_the_next_one_or_with_the_segment() -> None:
    one = segment(1, 10, 99, {2: 10, 4: 30, 7: 80})
    ends = {epoch: one.end_offset_for_epoch(epoch) for epoch in (1, 2, 3, 4, 7, 8)}
    assert ends == {1: 9, 2: 29, 3: 29, 4: 79, 7: 99, 8: 99}


def test_it_has_a_record_in_the_epoch_that_wrote_it() -> None:
    one = segment(1, 10, 99, {2: 10, 4: 30, 5: 80, 7: 80})
    having = [
        (epoch, offset) for epoch in range(9) for offset in (9, 10, 29, 30, 79, 80, 99, 100) if one.has(epoch, offset)
    ]
    assert having == [(2, 10), (2, 29), (4, 30), (4, 79), (7, 80), (7, 99)]


@pytest.mark.parametrize("state", [STARTED, FINISHED, DELETING, DELETED])
def test_only_finished_copies_are_readable(state: object) -> None:
    assert dataclasses.replace(segment(1, 0, 9), state=state).is_readable is (state is FINISHED)  # type: ignore[arg-type]


def test_an_update_changes_state_broker_and_time() -> None:
    before = segment(1, 0, 9, {0: 0, 1: 5}, size=77)
    after = before.updated(update(1, FINISHED))
    assert after == dataclasses.replace(before, state=FINISHED, broker_id=2, event_timestamp_ms=6000)
    assert after.segment_leader_epochs == epoch_entries({0: 0, 1: 5})


def test_custom_metadata_stays_until_it_is_replaced() -> None:
    finished = segment(1, 0, 9).updated(update(1, FINISHED, custom=b"etag"))
    assert finished.custom_metadata == b"etag"
    assert finished.updated(update(1, DELETING)).custom_metadata == b"etag"
    assert finished.updated(update(1, DELETING, custom=b"")).custom_metadata == b""


def test_an_update_of_another_segment_is_refused() -> None:
    with pytest.raises(ValueError, match=f"an update of segment {UUID(int=2)}"):
        segment(1, 0, 9).updated(update(2, FINISHED))
    other = update(1, FINISHED, partition=segment(1, 0, 9).partition._replace(partition=5))
    with pytest.raises(ValueError, match="is none of"):
        segment(1, 0, 9).updated(other)
