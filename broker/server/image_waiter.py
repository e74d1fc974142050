"""Waiting, for a short while, until this broker's own view of the cluster shows what the controller has decided."""

import asyncio
from collections.abc import Callable

from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_image import MetadataImage


async def wait_for_image(cache: MetadataCache, condition: Callable[[MetadataImage], bool], timeout_ms: int) -> bool:
    """Whether the condition holds for the current image or one that is published within the time."""
    if condition(cache.image):
        return True
    reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def check(image: MetadataImage) -> None:
        if not reached.done() and condition(image):
            reached.set_result(None)

    cache.add_listener(check)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await reached
    except TimeoutError:
        return False
    finally:
        cache.remove_listener(check)
    return True
