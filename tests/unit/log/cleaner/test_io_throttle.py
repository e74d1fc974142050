"""IoThrottle: so many bytes a second, in virtual time."""

import asyncio

from broker.log.cleaner.io_throttle import IoThrottle
from tests.support.sim_loop import SimLoop, simulate


def test_who_spends_waits_until_it_was_allowed() -> None:
    async def story(loop: SimLoop) -> None:
        rate = 1000.0
        throttle = IoThrottle(lambda: rate)
        start = loop.time()
        for _ in range(4):
            await throttle.spend(500)
        assert round(loop.time() - start, 6) == 2
        await asyncio.sleep(60)
        start = loop.time()
        await throttle.spend(1000)
        assert round(loop.time() - start, 6) == 1, "idle time is not saved up"
        rate = 10_000.0
        await throttle.spend(1000)
        assert round(loop.time() - start, 6) == 1.1, "the setting of now counts"

    simulate(story)


def test_without_a_limit_nobody_waits() -> None:
    async def story(loop: SimLoop) -> None:
        throttle = IoThrottle(lambda: 1.7976931348623157e308)
        start = loop.time()
        for _ in range(1000):
            await throttle.spend(1 << 30)
        assert loop.time() - start < 0.001

    simulate(story)
