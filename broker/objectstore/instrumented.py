"""InstrumentedObjectStore: each request of a store is counted and timed.  It stands next to the store, below the
retries: every attempt is a request, and is paid for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from broker.metrics.object_store_metrics import ObjectStoreMetrics, StoreUsage
from broker.objectstore.decorated import DecoratedObjectStore, Request
from broker.objectstore.errors import (
    AccessDenied,
    Corrupt,
    NotFound,
    ObjectStoreError,
    PreconditionFailed,
    Throttled,
    Unavailable,
)
from broker.objectstore.object_store import ObjectStore

T = TypeVar("T")

OK: Final = "ok"
OTHER: Final = "failed"  # no answer of the store: cancelled by its caller, or a defect
_OUTCOMES: Final[tuple[tuple[type[ObjectStoreError], str], ...]] = (
    (NotFound, "not_found"),
    (PreconditionFailed, "precondition_failed"),
    (Corrupt, "corrupt"),
    (Throttled, "throttled"),
    (AccessDenied, "access_denied"),
    (Unavailable, "unavailable"),
)
_NOT_BILLED: Final = frozenset({"throttled", "unavailable"})  # S3 bills no answer with a status of 5xx


class InstrumentedObjectStore(DecoratedObjectStore):
    def __init__(self, inner: ObjectStore, metrics: ObjectStoreMetrics) -> None:
        super().__init__(inner)
        self._metrics = metrics

    async def _around(self, request: Request, call: Callable[[], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        started = loop.time()
        outcome, received_bytes = OTHER, 0
        try:
            result = await call()
            outcome = OK
            if isinstance(result, bytes):
                received_bytes = len(result)
            return result
        except ObjectStoreError as error:
            outcome = next(name for kind, name in _OUTCOMES if isinstance(error, kind))
            raise
        finally:
            labels = (self.name, request.operation.value)
            self._metrics.requests.labels(*labels, outcome).increment()
            self._metrics.request_seconds.labels(*labels).observe(loop.time() - started)
            if moved_bytes := len(request.body) + received_bytes:
                self._metrics.bytes.labels(*labels).increment(moved_bytes)
            if outcome not in _NOT_BILLED:
                usage = self._metrics.usage.setdefault(labels, StoreUsage())
                usage.requests += 1
                usage.bytes += moved_bytes if outcome in (OK, OTHER) else 0
