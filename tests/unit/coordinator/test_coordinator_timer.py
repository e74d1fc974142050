import asyncio

import pytest
import structlog

from broker.coordinator.coordinator_timer import CoordinatorTimer
from tests.support.sim_loop import SimLoop, simulate


def test_a_timer_fires_once_after_its_delay() -> None:
    async def story(loop: SimLoop) -> None:
        timer, fired = CoordinatorTimer(), []
        timer.schedule("a", 1000, lambda: fired.append(loop.time()))
        await asyncio.sleep(5)
        assert fired == [pytest.approx(1.0)]
        assert not timer.is_scheduled("a") and len(timer) == 0

    simulate(story)


def test_setting_a_key_again_replaces_its_timer() -> None:
    async def story(loop: SimLoop) -> None:
        timer, fired = CoordinatorTimer(), []
        timer.schedule("a", 1000, lambda: fired.append("first"))
        await asyncio.sleep(0.9)
        timer.schedule("a", 1000, lambda: fired.append("second"))
        await asyncio.sleep(0.9)
        assert fired == []
        await asyncio.sleep(0.2)
        assert fired == ["second"]

    simulate(story)


def test_a_timer_that_was_due_when_it_was_cancelled_never_runs() -> None:
    async def story(loop: SimLoop) -> None:
        timer, fired = CoordinatorTimer(), []
        timer.schedule("a", 1000, lambda: timer.cancel("b"))
        timer.schedule("b", 1000, lambda: fired.append("b"))
        await asyncio.sleep(2)
        assert fired == []

    simulate(story)


def test_a_stale_timer_never_runs_even_when_its_loop_calls_it() -> None:
    async def story(loop: SimLoop) -> None:
        timer, fired = CoordinatorTimer(), []
        timer.schedule("a", 1000, lambda: fired.append("stale"))
        stale = timer._timers["a"]
        timer.schedule("a", 1000, lambda: fired.append("current"))
        stale.fire()
        assert fired == [] and timer.is_scheduled("a")

    simulate(story)


def test_an_action_may_set_its_own_key_again() -> None:
    async def story(loop: SimLoop) -> None:
        timer, fired = CoordinatorTimer(), []

        def tick() -> None:
            fired.append(round(loop.time()))
            if len(fired) < 3:
                timer.schedule("a", 1000, tick)

        timer.schedule("a", 1000, tick)
        await asyncio.sleep(10)
        assert fired == [1, 2, 3]

    simulate(story)


def test_cancel_all_and_negative_delays() -> None:
    async def story(loop: SimLoop) -> None:
        timer, fired = CoordinatorTimer(), []
        timer.schedule("a", 1000, lambda: fired.append("a"))
        timer.schedule(("b", 1), -5, lambda: fired.append("b"))
        await asyncio.sleep(0.001)
        timer.cancel_all()
        await asyncio.sleep(5)
        assert fired == ["b"]

    simulate(story)


def test_a_failing_action_is_logged_and_the_others_run() -> None:
    async def story(loop: SimLoop) -> None:
        timer, fired = CoordinatorTimer(), []
        timer.schedule("bad", 1000, lambda: 1 / 0)
        timer.schedule("good", 1000, lambda: fired.append("good"))
        with structlog.testing.capture_logs() as logs:
            await asyncio.sleep(2)
        assert fired == ["good"]
        assert [(entry["event"], entry["key"]) for entry in logs] == [("coordinator_timer_failed", "bad")]

    simulate(story)
