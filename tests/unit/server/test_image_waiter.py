import asyncio

from broker.server.image_waiter import wait_for_image
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.link_support import cache_with, image_with


def test_what_is_true_needs_no_waiting() -> None:
    async def story(loop: SimLoop) -> None:
        assert await wait_for_image(cache_with(), lambda image: image.offset == 100, 1_000)
        assert loop.time() == 0

    simulate(story)


def test_the_first_image_that_shows_it_ends_the_wait() -> None:
    async def story(loop: SimLoop) -> None:
        cache = cache_with()
        waiting = asyncio.ensure_future(wait_for_image(cache, lambda image: image.offset >= 102, 1_000))
        for offset in (101, 102, 103):
            await asyncio.sleep(0.1)
            cache.set_image(image_with(offset=offset))
        assert await waiting
        assert cache._listeners == {}

    simulate(story)


def test_time_ends_it_too() -> None:
    async def story(loop: SimLoop) -> None:
        cache = cache_with()
        assert not await wait_for_image(cache, lambda image: False, 1_000)
        assert loop.time() == 1
        assert cache._listeners == {}

    simulate(story)
