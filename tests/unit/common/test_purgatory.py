import asyncio

from broker.common.purgatory import DelayedOperation, Purgatory


class Operation(DelayedOperation):
    __slots__ = ("completions", "fails", "ready")

    def __init__(self, ready: bool = False) -> None:
        super().__init__()
        self.ready = ready
        self.fails = False
        self.completions: list[bool] = []

    def try_complete(self) -> bool:
        if self.fails:
            raise ValueError("broken")
        return self.ready

    def on_complete(self, expired: bool) -> None:
        self.completions.append(expired)


def empty(purgatory: Purgatory[str]) -> bool:
    return (len(purgatory), purgatory.watched_keys_count()) == (0, 0)


async def test_what_can_be_completed_is_not_parked() -> None:
    purgatory: Purgatory[str] = Purgatory("Fetch")
    operation = Operation(ready=True)
    assert purgatory.complete_or_park(operation, ["a"], 1000) is True
    assert (operation.completions, operation.is_completed, empty(purgatory)) == ([False], True, True)


async def test_a_change_of_a_watched_key_completes_once() -> None:
    purgatory: Purgatory[str] = Purgatory("Fetch")
    operation = Operation()
    assert purgatory.complete_or_park(operation, ["a", "b", "a"], 1000) is False
    assert (len(purgatory), purgatory.watched_keys_count()) == (1, 2)
    assert purgatory.check("a") == 0
    operation.ready = True
    assert purgatory.check("other") == 0
    assert purgatory.check("b") == 1
    assert purgatory.check("a") == 0
    assert (operation.completions, empty(purgatory)) == ([False], True)


async def test_the_deadline_completes_what_nothing_else_does() -> None:
    purgatory: Purgatory[str] = Purgatory("Produce")
    operation = Operation()
    purgatory.complete_or_park(operation, ["a"], -5)
    while not operation.is_completed:
        await asyncio.sleep(0)
    assert (operation.completions, purgatory.expired_count, empty(purgatory)) == ([True], 1, True)


async def test_operations_of_a_key_complete_in_order_of_parking() -> None:
    purgatory: Purgatory[str] = Purgatory("Fetch")
    order: list[int] = []

    class Numbered(Operation):
        __slots__ = ("number",)

        def on_complete(self, expired: bool) -> None:
            order.append(self.number)

    for number in range(3):
        operation = Numbered()
        operation.number = number
        purgatory.complete_or_park(operation, ["a"], 1000)
        operation.ready = number != 1
    assert purgatory.check("a") == 2
    assert order == [0, 2]
    assert len(purgatory) == 1


async def test_a_broken_operation_does_not_starve_those_behind_it() -> None:
    purgatory: Purgatory[str] = Purgatory("Fetch")
    broken, healthy = Operation(), Operation()
    for operation in (broken, healthy):
        purgatory.complete_or_park(operation, ["a"], 1000)
    broken.fails = healthy.ready = True
    assert purgatory.check("a") == 2
    assert (broken.completions, healthy.completions, empty(purgatory)) == ([False], [False], True)


async def test_one_that_completes_another_by_the_same_key_is_fine() -> None:
    purgatory: Purgatory[str] = Purgatory("Fetch")
    second = Operation()

    class Waking(Operation):
        __slots__ = ()

        def on_complete(self, expired: bool) -> None:
            super().on_complete(expired)
            second.ready = True
            purgatory.check("a")

    first = Waking()
    purgatory.complete_or_park(first, ["a"], 1000)
    purgatory.complete_or_park(second, ["a"], 1000)
    first.ready = True
    assert purgatory.check("a") == 1
    assert (first.completions, second.completions, empty(purgatory)) == ([False], [False], True)


async def test_a_cancelled_operation_is_forgotten() -> None:
    purgatory: Purgatory[str] = Purgatory("Fetch")
    operation = Operation()
    purgatory.complete_or_park(operation, ["a"], 0)
    purgatory.cancel(operation)
    await asyncio.sleep(0)
    assert (operation.completions, purgatory.expired_count, empty(purgatory)) == ([], 0, True)
