from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.replication.delayed_produce import DelayedProduce
from broker.replication.produce_result import PartitionProduceResult
from broker.replication.waiting_appends import WaitingAppends

T = TopicPartition("t", 0)


def waiting(waiters: WaitingAppends, required_offset: int, told: list[int]) -> DelayedProduce:
    operation = DelayedProduce([PartitionProduceResult(T)], [0], lambda _: None, lambda _: told.append(required_offset))
    waiters.add(required_offset, operation, 0)
    return operation


def test_those_below_the_high_watermark_are_told_in_order() -> None:
    waiters, told = WaitingAppends(), list[int]()
    for offset in (3, 1, 2, 7):
        waiting(waiters, offset, told)
    waiters.complete_up_to(0, ErrorCode.none)
    assert (told, len(waiters)) == ([], 4)
    waiters.complete_up_to(3, ErrorCode.none)
    assert (told, len(waiters)) == ([1, 2, 3], 1)


def test_all_are_told_in_the_order_in_which_they_came() -> None:
    waiters, told = WaitingAppends(), list[int]()
    operations = [waiting(waiters, offset, told) for offset in (5, 1, 3)]
    waiters.fail_all(ErrorCode.not_leader_or_follower)
    assert (told, len(waiters)) == ([5, 1, 3], 0)
    assert [operation._results[0].error for operation in operations] == [ErrorCode.not_leader_or_follower] * 3


def test_completed_ones_do_not_pile_up() -> None:
    waiters, told = WaitingAppends(), list[int]()
    for offset in range(1, 5):
        waiting(waiters, offset, told).is_completed = True
        assert len(waiters) == 1
    waiting(waiters, 9, told)
    waiters.complete_up_to(9, ErrorCode.none)
    assert told == [9]


def test_completed_ones_do_not_pile_up_behind_one_that_waits_on() -> None:
    waiters, told = WaitingAppends(), list[int]()
    waiting(waiters, 1, told)
    most = 0
    for offset in range(2, 2_000):
        waiting(waiters, offset, told).is_completed = True
        most = max(most, len(waiters))
    assert most <= 129
    for offset in range(3_000, 2_700, -1):
        waiting(waiters, offset, told)
    assert len(waiters) >= 301
    waiters.complete_up_to(2_702, ErrorCode.none)
    assert told == [1, 2_701, 2_702]
    waiters.complete_up_to(3_000, ErrorCode.none)
    assert told == [1, *range(2_701, 3_001)]
