import pytest

from broker.log.leader_epoch_file_cache import UNDEFINED, EpochEndOffset, EpochEntry
from broker.wal.follow.lineage import Lineage
from tests.unit.wal.wal_world import entry


def lineage(leader_epoch: int = 5, log_start: int = 0, **answers: tuple[int, int]) -> Lineage:
    """Answers as e3=(2, 80): asked for epoch 3, the leader knows epoch 2, which ended at 80."""
    result = Lineage(leader_epoch)
    result.agree(log_start)
    for name, answer in answers.items():
        result.answered(int(name[1:]), EpochEndOffset(*answer), leader_epoch)
    return result


def test_the_current_leaders_own_slices_are_valid_whole() -> None:
    own = entry(80, 99, leader_epoch=5, epochs=[(3, 80), (5, 90)])
    assert lineage(5).valid_until(own, 80) == 100
    assert lineage(5).valid_until(own, 99) == 100


def test_31_slices_of_a_leader_yet_unknown_are_held() -> None:
    future = entry(80, 99, leader_epoch=6)
    assert lineage(5).valid_until(future, 80) == 80
    assert lineage(5).unknown(epoch for epoch, _ in future.leader_epochs) == set()
    assert lineage(6).valid_until(future, 80) == 100


def test_32_older_slices_are_valid_below_the_end_of_their_batches_epoch() -> None:
    older = entry(80, 99, leader_epoch=3)
    assert lineage(5).valid_until(older, 80) == 80  # nobody was asked yet
    assert lineage(5, e3=(3, 200)).valid_until(older, 80) == 100
    assert lineage(5, e3=(3, 90)).valid_until(older, 80) == 90
    assert lineage(5, e3=(3, 90)).valid_until(older, 90) == 90
    assert lineage(5, e3=(3, 80)).valid_until(older, 80) == 80


def test_32_the_epoch_of_the_batches_decides_not_that_of_the_publisher() -> None:
    """{1: 0-99, 3: 100-}; a deposed leader of epoch 2 began at 80.  The answer for 2 is (1, 100), and 80 < 100."""
    zombie = entry(80, 90, leader_epoch=2)
    assert lineage(3, e2=(1, 100), e1=(1, 100)).valid_until(zombie, 80) == 80
    mixed = entry(70, 90, leader_epoch=2, epochs=[(1, 70), (2, 80)])
    assert lineage(3, e2=(1, 100), e1=(1, 100)).valid_until(mixed, 70) == 80
    assert lineage(3, e2=(1, 100), e1=(1, 100)).valid_until(mixed, 75) == 80


def test_several_epochs_in_a_slice_are_walked_one_by_one() -> None:
    several = entry(0, 29, leader_epoch=3, epochs=[(1, 0), (2, 10), (3, 20)])
    assert lineage(5, e1=(1, 10), e2=(2, 20), e3=(3, 25)).valid_until(several, 0) == 25
    assert lineage(5, e1=(1, 10), e2=(2, 15), e3=(3, 25)).valid_until(several, 0) == 15
    assert lineage(5, e2=(2, 20), e3=(3, 30)).valid_until(several, 0) == 0  # 1 is not known yet
    assert lineage(5, e2=(2, 20), e3=(3, 30)).valid_until(several, 10) == 30
    assert lineage(5, e1=(1, 10)).valid_until(several, 5) == 10


def test_before_the_handshake_nothing_is_valid_and_nothing_asked() -> None:
    silent = Lineage(5)
    assert silent.valid_until(entry(0, 9, leader_epoch=5), 0) == 0
    assert silent.unknown([1, 2]) == set()
    silent.agree(0)
    assert silent.unknown([1, 2, 5, 6]) == {1, 2}
    assert silent.valid_until(entry(0, 9, leader_epoch=5), 0) == 10


def test_h4_nothing_is_valid_below_the_leaders_log_start() -> None:
    """The floor answer of Kafka says (0, 1) of epoch 0 though the leader's log, from 1 on, has nothing of it."""
    foreign = entry(0, 0, leader_epoch=0)
    assert lineage(1, log_start=1, e0=(0, 1)).valid_until(foreign, 0) == 0
    assert lineage(1, e0=(-1, -1)).valid_until(foreign, 0) == 0
    assert lineage(1, e0=UNDEFINED).unknown([0]) == set()  # an answer it is


def test_h4_the_log_start_of_later_fetches_counts() -> None:
    foreign = entry(0, 3, leader_epoch=0)
    answered = lineage(1, e0=(0, 4))
    answered.agree(2)
    answered.agree(1)  # an old answer
    assert answered.valid_until(foreign, 0) == 0
    assert answered.valid_until(foreign, 2) == 4


def test_h8_an_answer_before_the_handshake_is_worth_nothing() -> None:
    """(a) The broker asked did not lead the epoch yet, and still held what it would truncate."""
    early = Lineage(2)
    early.answered(0, EpochEndOffset(0, 3), 2)
    early.agree(0)
    assert early.unknown([0]) == {0}
    assert early.valid_until(entry(0, 2, leader_epoch=0), 0) == 0


def test_h8_an_answer_for_another_epoch_is_dropped() -> None:
    """(b) The lineage of epoch 1 says that 0 ends at 3, that of epoch 2 says 1."""
    late = lineage(2)
    late.answered(0, EpochEndOffset(0, 3), 1)
    assert late.unknown([0]) == {0}
    late.answered(0, EpochEndOffset(0, 1), 2)
    assert late.valid_until(entry(0, 2, leader_epoch=0), 0) == 1


@pytest.mark.parametrize(("epoch", "end"), [(0, -1), (1, 10), (2, -1), (3, 25), (4, -1), (5, 30), (6, None)])
def test_a_leader_knows_the_lineage_by_its_own_log(epoch: int, end: int | None) -> None:
    own = Lineage.of_own_log(5, [EpochEntry(1, 0), EpochEntry(3, 10), EpochEntry(5, 25)], 0, 30)
    assert own.end_of(epoch) == end
    assert own.unknown(range(9)) == set()


def test_a_leader_of_an_empty_log() -> None:
    assert Lineage.of_own_log(2, [], 0, 0).valid_until(entry(0, 2, leader_epoch=1), 0) == 0
