import pytest

from broker.common.byte_budget import ByteBudget


def test_a_budget_is_exhausted_at_its_limit() -> None:
    budget = ByteBudget(10)
    budget.acquire(9)
    assert not budget.is_exhausted
    budget.acquire(5)
    assert budget.is_exhausted
    assert budget.used_bytes == 14


@pytest.mark.parametrize("limit", [-1, 0])
def test_without_a_limit_it_never_is(limit: int) -> None:
    budget = ByteBudget(limit)
    budget.acquire(1 << 40)
    assert not budget.is_exhausted


def test_those_who_wait_are_called_once_in_order() -> None:
    budget = ByteBudget(10)
    budget.acquire(12)
    called = []
    first, second = (lambda: called.append("first")), (lambda: called.append("second"))
    budget.wait(first)
    budget.wait(second)
    budget.release(1)
    assert called == []
    budget.release(2)
    assert called == ["first", "second"]
    budget.release(3)
    assert called == ["first", "second"]


def test_a_call_that_takes_the_bytes_leaves_the_rest_waiting() -> None:
    budget = ByteBudget(10)
    budget.acquire(10)
    called = []

    def take_all() -> None:
        called.append("first")
        budget.acquire(10)

    budget.wait(take_all)
    budget.wait(lambda: called.append("second"))
    budget.release(10)
    assert called == ["first"]
    budget.release(10)
    assert called == ["first", "second"]


def test_who_stops_waiting_is_not_called() -> None:
    budget = ByteBudget(1)
    budget.acquire(1)
    called: list[str] = []
    leave = lambda: called.append("left")  # noqa: E731
    budget.wait(leave)
    budget.stop_waiting(leave)
    budget.stop_waiting(leave)
    budget.release(1)
    assert called == []


def test_more_cannot_be_given_back_than_was_taken() -> None:
    with pytest.raises(AssertionError, match="more bytes released than acquired: -1"):
        ByteBudget(10).release(1)


def test_one_at_a_time_may_overdraw_and_the_next_is_called_when_it_has_ended() -> None:
    budget, called = ByteBudget(10), []

    def first() -> None:
        called.append("first")

    def second() -> None:
        called.append("second")

    budget.acquire(10)
    assert budget.may_overdraw(first)
    assert not budget.may_overdraw(second)
    assert budget.may_overdraw(first)
    budget.wait(second)
    budget.end_overdraft(second)
    assert called == []
    budget.end_overdraft(first)
    assert called == ["second"]
    assert budget.may_overdraw(second)
    budget.stop_waiting(second)
    assert budget.may_overdraw(first), "who is gone overdraws nothing"


def test_what_is_left() -> None:
    budget = ByteBudget(10)
    assert budget.left_bytes == 10
    budget.acquire(7)
    assert budget.left_bytes == 3
    budget.acquire(7)
    assert budget.left_bytes == 0
    assert ByteBudget(-1).left_bytes >= 1 << 40


def test_whether_somebody_waits() -> None:
    budget = ByteBudget(1)
    budget.acquire(1)
    assert not budget.has_waiting
    budget.wait(list)
    assert budget.has_waiting
    budget.release(1)
    assert not budget.has_waiting
