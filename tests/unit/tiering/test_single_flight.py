"""One fetch for all who want the same."""

import asyncio

import pytest

from broker.common.errors import CorruptMessageError
from broker.common.tasks import BackgroundTasks
from broker.tiering.errors import RemoteStorageError
from broker.tiering.single_flight import SingleFlight


class World:
    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self.tasks = BackgroundTasks("test", lambda _, error: self.failures.append(error))
        self.flights: SingleFlight[str, int] = SingleFlight(self.tasks)
        self.begun = 0
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def fetch(self) -> int:
        self.begun += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.begun

    def waiter(self, key: str = "a") -> "asyncio.Task[int]":
        return asyncio.create_task(self.flights.run(key, self.fetch))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_many_wait_for_one_fetch_and_the_next_one_fetches_again() -> None:
    world = World()
    waiters = [world.waiter() for _ in range(5)]
    await settle()
    assert (world.begun, len(world.flights), "a" in world.flights) == (1, 1, True)
    world.gate.set()
    assert await asyncio.gather(*waiters) == [1] * 5
    await settle()
    assert len(world.flights) == 0
    assert await world.flights.run("a", world.fetch) == 2


async def test_other_keys_are_fetched_by_themselves() -> None:
    world = World()
    waiters = [world.waiter("a"), world.waiter("b")]
    await settle()
    assert world.begun == 2
    world.gate.set()
    await asyncio.gather(*waiters)


async def test_a_fetch_outlives_those_who_wait_for_it() -> None:
    world = World()
    first, second = world.waiter(), world.waiter()
    await settle()
    first.cancel()
    await settle()
    assert first.cancelled()
    world.gate.set()
    assert await second == 1


@pytest.mark.parametrize("error", [RemoteStorageError("gone"), CorruptMessageError("bad")])
async def test_all_are_told_of_a_failure_and_it_is_not_kept(error: Exception) -> None:
    world = World()
    world.error = error
    world.gate.set()
    answers = await asyncio.gather(world.waiter(), world.waiter(), return_exceptions=True)
    assert list(answers) == [error, error]
    assert (world.begun, world.failures) == (1, [])
    await settle()
    world.error = None
    assert await world.flights.run("a", world.fetch) == 2


async def test_a_failure_nobody_expected_is_told_to_the_owner_as_well() -> None:
    world = World()
    world.error = ZeroDivisionError()
    world.gate.set()
    with pytest.raises(ZeroDivisionError):
        await world.flights.run("a", world.fetch)
    await settle()
    assert world.failures == [world.error]


async def test_who_waits_when_it_is_closed_is_told() -> None:
    world = World()
    waiter, too_early = world.waiter(), world.waiter("b")
    await settle()
    world.flights.start("c", world.fetch)  # not even begun
    await world.tasks.cancel_all()
    for each in (waiter, too_early):
        with pytest.raises(RemoteStorageError, match="being closed"):
            await each
    assert len(world.flights) == 0
