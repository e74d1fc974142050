import pytest

from broker.replication.fetch_params import EpochEndOffset
from broker.replication.leader_local_start import LeaderLocalStart


def answer_of_leader(epochs: dict[int, int], asked: int) -> EpochEndOffset:
    """To OffsetsForLeaderEpoch, of epochs before its own."""
    known = max(epoch for epoch in epochs if epoch <= asked)
    return EpochEndOffset(known, min(start for epoch, start in epochs.items() if epoch > asked))


def test_39_a_gap_in_the_epochs_is_bridged_by_the_leaders_answer() -> None:
    start = LeaderLocalStart(epoch=3, offset=90)
    assert start.last_remote_offset == 89
    assert start.epoch_to_ask_for == 2
    earlier = answer_of_leader({0: 20, 1: 85, 3: 90}, 2)
    assert earlier == (1, 90)
    assert start.epoch_of_last_remote_offset(earlier) == 1


def test_the_offset_before_may_be_of_the_same_epoch() -> None:
    start = LeaderLocalStart(epoch=3, offset=95)
    assert start.epoch_of_last_remote_offset(answer_of_leader({0: 20, 1: 85, 3: 90}, 2)) == 3


@pytest.mark.parametrize(("end_offset", "epoch"), [(91, 2), (90, 2), (89, 3), (0, 3)])
def test_the_end_of_an_epoch_is_exclusive(end_offset: int, epoch: int) -> None:
    start = LeaderLocalStart(epoch=3, offset=90)
    assert start.epoch_of_last_remote_offset(EpochEndOffset(2, end_offset)) == epoch


def test_before_epoch_0_there_is_none_to_ask_for() -> None:
    start = LeaderLocalStart(epoch=0, offset=90)
    assert start.epoch_to_ask_for is None
    assert start.epoch_of_last_remote_offset(None) == 0


def test_a_leader_that_knows_nothing_earlier() -> None:
    assert LeaderLocalStart(epoch=3, offset=90).epoch_of_last_remote_offset(EpochEndOffset(-1, -1)) == 3
