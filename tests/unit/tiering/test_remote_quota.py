import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from broker.common.observations import Observations
from broker.config.config_holder import ConfigHolder
from broker.tiering.remote_log_stats import RemoteLogStats
from broker.tiering.remote_quota import RemoteQuota
from tests.support.builders import broker_config
from tests.support.sim_loop import SimLoop, simulate


class World:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.throttled = Observations()
        self.quota = RemoteQuota(lambda: self.limit, self.throttled, window_num=11, window_size_seconds=1)


def told(limit: int, story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def run(_: SimLoop) -> None:
        await story(World(limit))

    simulate(run)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_what_is_below_the_limit_begins_at_once() -> None:
    async def story(world: World) -> None:
        await world.quota.acquire(900)
        await world.quota.acquire(50)
        assert now() == 0
        assert world.throttled.count == 0
        assert not world.quota.is_exceeded

    told(1000, story)


def test_what_goes_beyond_makes_the_next_one_wait() -> None:
    async def story(world: World) -> None:
        await world.quota.acquire(20_000)  # whole, however large
        assert now() == 0
        assert world.quota.is_exceeded
        await world.quota.acquire(1)
        assert 9 <= now() <= 21
        assert world.throttled.count == 1
        assert world.throttled.total == round(now() * 1000)

    told(1000, story)


def test_a_limit_that_is_raised_releases_who_waits_within_a_second() -> None:
    async def story(world: World) -> None:
        await world.quota.acquire(1_000_000)
        waiting = asyncio.ensure_future(world.quota.acquire(1))
        await asyncio.sleep(5.5)
        assert not waiting.done()
        world.limit = 1 << 40
        await asyncio.sleep(1)
        assert waiting.done()

    told(1000, story)


def test_who_waited_longest_goes_first_and_each_is_charged() -> None:
    async def story(world: World) -> None:
        order: list[int] = []

        async def copy(number: int) -> None:
            await world.quota.acquire(20_000)
            order.append(number)

        copies = [asyncio.ensure_future(copy(number)) for number in range(4)]
        await asyncio.sleep(1)
        assert order == [0]
        await asyncio.gather(*copies)
        assert order == [0, 1, 2, 3]
        assert now() > 30

    told(1000, story)


def test_who_gives_up_waiting_makes_room() -> None:
    async def story(world: World) -> None:
        await world.quota.acquire(20_000)
        first, second = (asyncio.ensure_future(world.quota.acquire(1)) for _ in range(2))
        await asyncio.sleep(1)
        first.cancel()
        await second
        assert first.cancelled()

    told(1000, story)


def test_reads_are_charged_when_they_are_done() -> None:
    async def story(world: World) -> None:
        assert not world.quota.is_exceeded
        world.quota.record(50_000)
        assert world.quota.is_exceeded
        assert world.quota.byte_rate == 5000
        world.quota.observe_throttle()
        assert world.throttled.maximum == world.quota.throttle_ms > 0
        await asyncio.sleep(60)
        assert not world.quota.is_exceeded

    told(1000, story)


def test_the_settings_are_those_of_now() -> None:
    async def run(_: SimLoop) -> None:
        given = {
            "remote.log.manager.copy.max.bytes.per.second": "1000",
            "remote.log.manager.copy.quota.window.num": "3",
            "remote.log.manager.copy.quota.window.size.seconds": "2",
            "remote.log.manager.fetch.max.bytes.per.second": "2000",
            "remote.log.manager.fetch.quota.window.num": "5",
            "remote.log.manager.fetch.quota.window.size.seconds": "3",
        }
        config = ConfigHolder(broker_config(given))
        stats = RemoteLogStats()
        copies, fetches = RemoteQuota.for_copies(config, stats), RemoteQuota.for_fetches(config, stats)
        copies.record(4001)  # in two windows of two seconds
        assert copies.byte_rate == 1000.25
        assert copies.is_exceeded
        fetches.record(24_000)  # in four of three
        assert not fetches.is_exceeded
        fetches.record(100)
        assert fetches.is_exceeded
        config.update(broker_config({**given, "remote.log.manager.copy.max.bytes.per.second": "1001"}))
        assert not copies.is_exceeded
        fetches.observe_throttle()
        assert (stats.fetch_throttle_ms.count, stats.copy_throttle_ms.count) == (1, 0)

    simulate(run)
