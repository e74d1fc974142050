"""SimBuckets: one bucket per zone in virtual time, shared by all nodes: slow, down, throttling, lying, as told.

A bucket is a machine of its own: what it was asked it does, even if whoever asked has died or given up meanwhile.
"""

import asyncio
import contextvars
import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

from broker.common.chance import Chance
from broker.objectstore.decorated import DecoratedObjectStore, Operation, Request
from broker.objectstore.errors import BucketNotFound, ObjectStoreError, Throttled
from broker.objectstore.failing_object_store import FailingObjectStore, FaultPlan, Latency
from broker.objectstore.object_store import ObjectStore
from broker.wal.storage.bucket_wal_storage_manager import BucketWalStorageManager
from broker.wal.storage.wal_storage_context import WalStorageContext
from tests.support.memory_object_store import MemoryObjectStore
from tests.support.sim_loop import EPOCH_MS, SimLoop

T = TypeVar("T")

LATENCY: Final = Latency(median=0.005, p99=0.06)  # of S3 Express, with a tail in which objects overtake each other


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, and when it arrived."""

    at: float
    operation: Operation
    key: str


class _DatedStore(MemoryObjectStore):
    """Its times are wall times, as those of a store are."""

    def _store(self, key: str, data: bytes) -> None:
        super()._store(key, data)
        self.modified_ms[key] += EPOCH_MS


class SimBucket(DecoratedObjectStore):
    """`objects` is what it holds, `faults.plan` what befalls requests, `latency` how long each way takes half of."""

    def __init__(self, loop: SimLoop, url: str, trace: Callable[[str], None]) -> None:
        self.store = _DatedStore(url)
        self.faults = FailingObjectStore(self.store, Chance(loop.random.getrandbits(64)))
        super().__init__(self.faults)
        self.latency = LATENCY
        self.refused: frozenset[Operation] = frozenset()  # kinds of requests that are answered with 503
        self.asked: list[Asked] = []
        self.bytes_read = 0
        self._chance = Chance(loop.random.getrandbits(64))
        self._loop = loop
        self._trace = trace
        self._context = contextvars.Context()  # nobody's, so that it goes on whoever dies

    @property
    def objects(self) -> dict[str, bytes]:
        return self.store.objects

    def count(self, *operations: Operation) -> int:
        """How many requests of these kinds there were."""
        return sum(each.operation in operations for each in self.asked)

    @property
    def is_troubled(self) -> bool:
        return self.faults.plan != FaultPlan() or self.latency != LATENCY or bool(self.refused)

    def heal(self) -> None:
        self.faults.plan = FaultPlan()
        self.latency = LATENCY
        self.refused = frozenset()

    async def _around(self, request: Request, call: Callable[[], Awaitable[T]]) -> T:
        work = self._loop.create_task(
            self._serve(request, call), name=f"bucket:{request.operation}", context=self._context
        )
        answer = await asyncio.shield(work)
        if isinstance(answer, ObjectStoreError):
            raise answer
        return answer

    async def _serve(self, request: Request, call: Callable[[], Awaitable[T]]) -> T | ObjectStoreError:
        await asyncio.sleep(self.latency.draw(self._chance) / 2)
        self.asked.append(Asked(self._loop.time(), request.operation, request.key))
        self._trace(f"{self._loop.time():.9f} {self.name} {request.operation} {request.key}")
        answer: T | ObjectStoreError
        try:
            if request.operation in self.refused:
                raise Throttled(f"{self.name}: {request.operation} {request.key}: injected")
            answer = await call()
        except ObjectStoreError as error:
            answer = error
        if isinstance(answer, bytes):
            self.bytes_read += len(answer)
        await asyncio.sleep(self.latency.draw(self._chance) / 2)
        return answer


class SimBuckets:
    """The buckets of one run by their URLs; `install` makes them those that storage managers find."""

    def __init__(self, loop: SimLoop, zones: int, trace: Callable[[str], None] = lambda line: None) -> None:
        self.urls = [f"file:///zone-{zone}" for zone in range(zones)]
        self.by_url = {url: SimBucket(loop, url, trace) for url in self.urls}
        self._loop, self._trace = loop, trace

    def add(self, url: str) -> SimBucket:
        """One of no zone."""
        bucket = self.by_url[url] = SimBucket(self._loop, url, self._trace)
        return bucket

    def install(self) -> None:
        """For this context, and the nodes started in it."""
        _buckets.set(self)

    @staticmethod
    def installed() -> "SimBuckets":
        return _buckets.get()

    async def open(self, url: str) -> ObjectStore:
        if url not in self.by_url:
            raise BucketNotFound(f"there is no {url}")
        return self.by_url[url]

    def zone(self, number: int) -> SimBucket:
        return self.by_url[self.urls[number]]

    def zone_of(self, node_id: int) -> int:
        """In which zone a broker stands."""
        return node_id % len(self.urls)

    @property
    def occurred(self) -> Counter[str]:
        """Faults that befell requests, by name."""
        counts: Counter[str] = Counter()
        for bucket in self.by_url.values():
            for fault, count in bucket.faults.occurred.items():
                counts[f"bucket {fault}"] += count
        return counts


_buckets: contextvars.ContextVar[SimBuckets] = contextvars.ContextVar("buckets")


class SimWalStorageManager(BucketWalStorageManager):
    """The product's own, on the buckets of the simulation."""

    SCHEME: ClassVar[str] = "file"

    def __init__(self, context: WalStorageContext) -> None:
        super().__init__(dataclasses.replace(context, open_store=_buckets.get().open))


STORAGE_MANAGER: Final = f"{SimWalStorageManager.__module__}.{SimWalStorageManager.__name__}"
