"""InstrumentedObjectStore: what moves which series."""

import asyncio

import pytest

from broker.common.chance import Chance
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.metrics.registry import MetricsRegistry
from broker.objectstore.decorated import Operation
from broker.objectstore.errors import AccessDenied, BucketNotFound, NotFound, ObjectStoreError, PreconditionFailed
from broker.objectstore.failing_object_store import FailingObjectStore, Fault, FaultPlan, Latency
from broker.objectstore.instrumented import InstrumentedObjectStore
from tests.support.memory_object_store import MemoryObjectStore
from tests.support.sim_loop import SimLoop, simulate

NAME = "memory://bucket"


def test_requests_bytes_and_seconds() -> None:
    async def story(loop: SimLoop) -> None:
        metrics = ObjectStoreMetrics(MetricsRegistry())
        plan = FaultPlan(latencies={Operation.PUT: Latency(0.2), Operation.GET_RANGE: Latency(0.03)})
        store = InstrumentedObjectStore(FailingObjectStore(MemoryObjectStore(), Chance(1), plan), metrics)
        await store.put("a", b"x" * 100)
        await store.put("b", b"x" * 50)
        await store.get_range("a", 10, 30)
        await store.head("a")
        requests, moved, seconds = metrics.requests, metrics.bytes, metrics.request_seconds
        assert requests.labels(NAME, "put", "ok").value == 2
        assert requests.labels(NAME, "get_range", "ok").value == 1
        assert moved.labels(NAME, "put").value == 150
        assert moved.labels(NAME, "get_range").value == 30
        assert dict(moved.samples()).keys() == {(NAME, "put"), (NAME, "get_range")}
        assert seconds.labels(NAME, "put").total == pytest.approx(0.4)
        assert seconds.labels(NAME, "get_range").total == pytest.approx(0.03)
        assert seconds.labels(NAME, "head").count == 1

    simulate(story)


def test_every_end_of_a_request_is_an_outcome() -> None:
    class Refusing(MemoryObjectStore):
        error: type[Exception] = AccessDenied

        async def probe(self) -> None:
            raise self.error("no")

    async def story(loop: SimLoop) -> None:
        metrics = ObjectStoreMetrics(MetricsRegistry())
        inner = Refusing()
        failing = FailingObjectStore(inner, Chance(1))
        store = InstrumentedObjectStore(failing, metrics)
        await store.put_if_absent("a", b"xy")
        with pytest.raises(PreconditionFailed):
            await store.put_if_absent("a", b"xy")
        failing.fail_next(Operation.PUT_IF_ABSENT, Fault.SLOW_DOWN, Fault.RESET, Fault.BLACK_HOLE)
        for _ in range(2):
            with pytest.raises(ObjectStoreError):
                await store.put_if_absent("b", b"xy")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await store.put_if_absent("b", b"xy")
        outcomes = {labels: counter.value for labels, counter in metrics.requests._children.items()}
        names = ("ok", "precondition_failed", "throttled", "unavailable", "failed")
        assert outcomes == {(NAME, "put_if_absent", outcome): 1 for outcome in names}
        assert metrics.bytes.labels(NAME, "put_if_absent").value == 10
        with pytest.raises(NotFound):
            await store.head("b")
        with pytest.raises(AssertionError):
            await store.get_range("a", -1, 5)
        for error, outcome in ((AccessDenied, "access_denied"), (BucketNotFound, "unavailable"), (OSError, "failed")):
            inner.error = error
            with pytest.raises(error):
                await store.probe()
            assert metrics.requests.labels(NAME, "probe", outcome).value == 1
        assert metrics.requests.labels(NAME, "head", "not_found").value == 1
        failing.fail_next(Operation.GET_RANGE, Fault.SHORT_READ)
        with pytest.raises(ObjectStoreError):
            await store.get_range("a", 0, 2)
        assert metrics.requests.labels(NAME, "get_range", "corrupt").value == 1
        billed = {operation: (used.requests, used.bytes) for (_, operation), used in metrics.usage.items()}
        assert billed == {  # of the five puts two were refused with 5xx, and one of three was not accepted
            "put_if_absent": (3, 4),
            "head": (1, 0),
            "probe": (2, 0),
            "get_range": (2, 0),
        }

    simulate(story)
