"""BoundedObjectStore: not more requests at once than the store has connections, and not many that wait for one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.objectstore.decorated import DecoratedObjectStore, Request
from broker.objectstore.errors import Throttled
from broker.objectstore.object_store import ObjectStore

T = TypeVar("T")

CONCURRENT_MAX: Final = 64  # the S3 client's connections; a directory has fewer threads than that anyway
WAITING_MAX: Final = 1024  # beyond it the bucket has been slow for long, and whoever asks had better know


class BoundedObjectStore(DecoratedObjectStore):
    """First come, first served; `Throttled` at once when `waiting_max` requests wait already."""

    def __init__(
        self,
        inner: ObjectStore,
        metrics: ObjectStoreMetrics,
        concurrent_max: int = CONCURRENT_MAX,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        super().__init__(inner)
        self._turns = asyncio.Semaphore(concurrent_max)
        self._queue_full = metrics.queue_full
        self._waiting_max = waiting_max
        self.waiting_count = 0

    async def _around(self, request: Request, call: Callable[[], Awaitable[T]]) -> T:
        if self._turns.locked() and self.waiting_count >= self._waiting_max:
            self._queue_full.labels(self.name).increment()
            raise Throttled(f"{self.name}: {self.waiting_count} requests wait already")
        self.waiting_count += 1
        try:
            await self._turns.acquire()
        finally:
            self.waiting_count -= 1
        try:
            return await call()
        finally:
            self._turns.release()
