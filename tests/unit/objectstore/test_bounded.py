"""BoundedObjectStore: so many at once, so many in the queue, in order."""

import asyncio

import pytest

from broker.common.chance import Chance
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.metrics.registry import MetricsRegistry
from broker.objectstore.bounded import BoundedObjectStore
from broker.objectstore.decorated import Operation
from broker.objectstore.errors import Throttled, Unavailable
from broker.objectstore.failing_object_store import FailingObjectStore, Fault, FaultPlan, Latency
from tests.support.memory_object_store import MemoryObjectStore
from tests.support.sim_loop import SimLoop, simulate


def metrics() -> ObjectStoreMetrics:
    return ObjectStoreMetrics(MetricsRegistry())


def test_requests_take_turns() -> None:
    async def story(loop: SimLoop) -> None:
        slow = FailingObjectStore(MemoryObjectStore(), Chance(1), FaultPlan(latency=Latency(1)))
        store = BoundedObjectStore(slow, metrics(), concurrent_max=2, waiting_max=10)
        done: list[tuple[str, float]] = []

        async def put(key: str) -> None:
            await store.put(key, b"")
            done.append((key, loop.time()))

        await asyncio.gather(*(put(key) for key in "abcde"))
        assert done == [("a", 1), ("b", 1), ("c", 2), ("d", 2), ("e", 3)]
        assert store.waiting_count == 0

    simulate(story)


def test_beyond_the_queue_the_answer_is_throttled_at_once() -> None:
    async def story(loop: SimLoop) -> None:
        slow = FailingObjectStore(MemoryObjectStore(), Chance(1), FaultPlan(latency=Latency(1)))
        counted = metrics()
        store = BoundedObjectStore(slow, counted, concurrent_max=1, waiting_max=1)
        results = await asyncio.gather(*(store.put(key, b"") for key in "abc"), return_exceptions=True)
        assert results[:2] == [None, None]
        assert isinstance(results[2], Throttled)
        assert counted.queue_full.labels("memory://bucket").value == 1
        assert loop.time() == 2

    simulate(story)


def test_failures_and_cancelled_waits_give_their_turns_back() -> None:
    async def story(loop: SimLoop) -> None:
        slow = FailingObjectStore(MemoryObjectStore(), Chance(1), FaultPlan(latency=Latency(1)))
        slow.fail_next(Operation.PUT, Fault.RESET)
        store = BoundedObjectStore(slow, metrics(), concurrent_max=1, waiting_max=5)
        with pytest.raises(Unavailable):
            await store.put("a", b"")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.gather(store.put("b", b""), store.put("c", b""))
        assert store.waiting_count == 0
        await store.put("d", b"")

    simulate(story)
