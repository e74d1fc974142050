"""Requests that get no answer end nevertheless."""

import asyncio

import pytest

from broker.common.chance import Chance
from broker.objectstore.deadline import SLOWEST_BYTES_PER_SECOND, DeadlineObjectStore
from broker.objectstore.decorated import Operation
from broker.objectstore.errors import Unavailable
from broker.objectstore.failing_object_store import FailingObjectStore, FaultPlan, Latency
from tests.support.memory_object_store import MemoryObjectStore
from tests.support.sim_loop import SimLoop, simulate


def test_writes_and_reads_have_their_own_time_and_large_bodies_more() -> None:
    async def story(loop: SimLoop) -> None:
        slow = FailingObjectStore(MemoryObjectStore(), Chance(1))
        timed = DeadlineObjectStore(slow, write_ms=1000, read_ms=200)
        slow.plan = FaultPlan(latency=Latency(1.5))
        for call, seconds in ((timed.put("a", b""), 1.0), (timed.head("a"), 0.2), (timed.delete_many(["a"]), 0.2)):
            before = loop.time()
            with pytest.raises(Unavailable, match=f"memory://bucket: .* a: no answer within {seconds} s"):
                await call
            assert loop.time() - before == pytest.approx(seconds)
        await timed.put("large", bytes(SLOWEST_BYTES_PER_SECOND))  # a second more
        assert (await slow.head("large")).size_bytes == SLOWEST_BYTES_PER_SECOND

    simulate(story)


def test_what_is_over_in_time_is_as_it_was() -> None:
    async def story(loop: SimLoop) -> None:
        inner = MemoryObjectStore()
        failing = FailingObjectStore(inner, Chance(1), FaultPlan(latencies={Operation.GET_RANGE: Latency(0.1)}))
        timed = DeadlineObjectStore(failing, write_ms=1000, read_ms=200)
        await timed.put("a", b"abc")
        assert await timed.get_range("a", 1, 2) == b"bc"
        assert loop.time() == pytest.approx(0.1)
        with pytest.raises(TimeoutError):  # somebody else's time was over
            async with asyncio.timeout(0.05):
                await timed.get_range("a", 1, 2)

    simulate(story)
