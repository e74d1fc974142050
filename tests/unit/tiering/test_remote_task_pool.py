import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import structlog

from broker.common.errors import ReplicaNotAvailableError
from broker.tiering.errors import RemoteStorageError
from broker.tiering.remote_task_pool import RemoteTaskPool
from tests.support.sim_loop import SimLoop, simulate


class World:
    def __init__(self) -> None:
        self.size = 2
        self.delay_ms = 1000
        self.busy: list[int] = []
        self.ran: list[tuple[str, float]] = []
        self.pool = RemoteTaskPool("pool", lambda: self.size, lambda: self.delay_ms, self.busy.append)

    def work(
        self, name: str, seconds: float = 0.0, error: BaseException | None = None
    ) -> Callable[[], Coroutine[Any, Any, None]]:
        async def run() -> None:
            self.ran.append((name, asyncio.get_running_loop().time()))
            await asyncio.sleep(seconds)
            if error is not None:
                raise error

        return run

    def names(self) -> list[str]:
        return [name for name, _ in self.ran]


def told(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def run(_: SimLoop) -> None:
        world = World()
        async with world.pool.running():
            await story(world)

    simulate(run)


def test_a_task_runs_at_once_and_again_a_delay_after_it_has_ended() -> None:
    async def story(world: World) -> None:
        world.pool.add("a", world.work("a", seconds=0.5))
        await asyncio.sleep(3.2)
        assert world.ran == [("a", 0.0), ("a", 1.5), ("a", 3.0)]

    told(story)


def test_so_many_run_at_once_and_who_was_due_first_is_first() -> None:
    async def story(world: World) -> None:
        for name in "abcde":
            world.pool.add(name, world.work(name, seconds=10))
        await asyncio.sleep(1)
        assert world.names() == ["a", "b"]
        await asyncio.sleep(10)
        assert world.names() == ["a", "b", "c", "d"]
        await asyncio.sleep(10)
        assert world.names()[:6] == ["a", "b", "c", "d", "e", "a"]
        assert max(world.busy) == 2

    told(story)


def test_more_of_them_may_run_when_the_setting_says_so() -> None:
    async def story(world: World) -> None:
        world.size = 1
        for name in "ab":
            world.pool.add(name, world.work(name, seconds=1))
        await asyncio.sleep(0.5)
        world.size, world.delay_ms = 2, 100
        await asyncio.sleep(0.9)
        assert world.ran == [("a", 0.0), ("b", 1.0), ("a", 1.1)]

    told(story)


@pytest.mark.parametrize(
    "error", [ReplicaNotAvailableError("not yet"), RemoteStorageError("no bucket"), ValueError("what?")]
)
def test_a_task_that_fails_runs_again(error: Exception) -> None:
    async def story(world: World) -> None:
        world.pool.add("a", world.work("a", error=error))
        await asyncio.sleep(1.5)
        assert world.names() == ["a", "a"]

    told(story)


def test_what_goes_on_failing_is_told_once() -> None:
    async def story(world: World) -> None:
        errors: list[Exception | None] = [
            RemoteStorageError("a"),
            RemoteStorageError("b"),
            None,
            RemoteStorageError("c"),
        ]

        async def work() -> None:
            error = errors.pop(0) if errors else None
            if error is not None:
                raise error

        with structlog.testing.capture_logs() as lines:
            world.pool.add("a", work)
            await asyncio.sleep(5)
        assert [(line["log_level"], line["error"]) for line in lines] == [
            ("warning", "a"),
            ("debug", "b"),
            ("warning", "c"),
        ]

    told(story)


def test_a_cancelled_task_gives_up_what_it_waits_for() -> None:
    async def story(world: World) -> None:
        task = world.pool.add("a", world.work("a", seconds=100))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert world.busy == [1, 0]
        await asyncio.sleep(500)
        assert world.names() == ["a"]
        assert len(world.pool) == 0

    told(story)


def test_a_task_that_is_cancelled_while_it_waits_for_its_turn_never_runs() -> None:
    async def story(world: World) -> None:
        world.size = 1
        world.pool.add("a", world.work("a", seconds=5))
        world.pool.add("b", world.work("b")).cancel()
        again = world.pool.add("c", world.work("c"))
        await asyncio.sleep(5.5)
        again.cancel()
        await asyncio.sleep(10)
        assert world.names().count("c") == 1
        assert "b" not in world.names()

    told(story)


def test_nothing_runs_outside_of_running() -> None:
    async def run(_: SimLoop) -> None:
        world = World()
        world.pool.add("a", world.work("a", seconds=50))
        await asyncio.sleep(1)
        assert world.ran == []
        async with world.pool.running():
            await asyncio.sleep(1)
            assert world.names() == ["a"]
        world.pool.add("b", world.work("b"))
        await asyncio.sleep(100)
        assert world.names() == ["a"]

    simulate(run)


def test_ten_thousand_tasks_wait_by_one_timer() -> None:
    async def run(loop: SimLoop) -> None:
        world = World()
        async with world.pool.running():
            for number in range(10_000):
                world.pool.add(str(number), world.work(str(number)))
            await asyncio.sleep(0.5)
            assert len(world.ran) == 10_000
            assert len(world.pool) == 10_000
            assert len([handle for handle in loop._scheduled if not handle.cancelled()]) <= 2  # type: ignore[attr-defined]
            assert len(asyncio.all_tasks()) == 1

    simulate(run)
