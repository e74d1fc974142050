"""CircuitBreaker: when it opens, what it sends meanwhile, and how it closes."""

import asyncio

import pytest
from structlog.testing import capture_logs

from broker.common.chance import Chance
from broker.objectstore.circuit_breaker import CircuitBreaker, CircuitPolicy, CircuitState
from broker.objectstore.decorated import Operation
from broker.objectstore.errors import (
    AccessDenied,
    CircuitOpen,
    NotFound,
    ObjectStoreError,
    Refused,
    Throttled,
    Unavailable,
)
from broker.objectstore.failing_object_store import FailingObjectStore, Fault, FaultPlan, Latency
from broker.objectstore.objects import ObjectHead
from tests.support.memory_object_store import MemoryObjectStore
from tests.support.sim_loop import SimLoop, simulate


def make(policy: CircuitPolicy | None = None) -> tuple[FailingObjectStore, CircuitBreaker, list[CircuitState]]:
    changes: list[CircuitState] = []
    failing = FailingObjectStore(MemoryObjectStore(), Chance(1))
    return failing, CircuitBreaker(failing, policy, changes.append), changes


async def fail(store: CircuitBreaker, times: int) -> None:
    for _ in range(times):
        with pytest.raises(Unavailable):
            await store.put("a", b"")


def test_five_failures_in_a_row_open_it_and_nothing_is_sent() -> None:
    async def story(loop: SimLoop) -> None:
        failing, store, changes = make()
        failing.plan.down = Fault.RESET
        await fail(store, 4)
        assert not store.is_open
        await fail(store, 1)
        assert store.is_open and changes == [CircuitState.OPEN]
        with pytest.raises(CircuitOpen):
            await store.get_range("a", 0, 1)
        assert failing.occurred == {Fault.RESET: 5}
        await store.close()

    simulate(story)


def test_a_success_between_them_starts_the_count_anew() -> None:
    async def story(loop: SimLoop) -> None:
        failing, store, _ = make()
        for _ in range(3):
            failing.fail_next(Operation.PUT, *[Fault.RESET] * 4)
            await fail(store, 4)
            await store.put("a", b"")
        assert store.state is CircuitState.CLOSED

    simulate(story)


def test_three_seconds_without_a_success_open_it() -> None:
    async def story(loop: SimLoop) -> None:
        failing, store, _ = make()
        failing.plan = FaultPlan(down=Fault.BLACK_HOLE, black_hole_seconds=2)
        await fail(store, 1)
        assert not store.is_open
        await fail(store, 1)
        assert store.is_open and loop.time() == 4
        await store.close()

    simulate(story)


def test_a_probe_every_five_seconds_and_then_one_request_decides() -> None:
    async def story(loop: SimLoop) -> None:
        failing, store, changes = make()
        failing.plan.down = Fault.RESET
        await fail(store, 5)
        await asyncio.sleep(12)
        assert failing.occurred == {Fault.RESET: 7}  # two probes
        failing.plan.down = None
        await asyncio.sleep(4)
        assert store.state is CircuitState.HALF_OPEN
        failing.fail_next(Operation.PUT, Fault.RESET)
        await fail(store, 1)
        assert store.is_open
        await asyncio.sleep(5.1)
        await store.put("a", b"")
        half, closed, opened = CircuitState.HALF_OPEN, CircuitState.CLOSED, CircuitState.OPEN
        assert changes == [opened, half, opened, half, closed]
        await asyncio.sleep(60)
        assert failing.occurred.total() == 8

    simulate(story)


def test_it_is_told_once_however_many_probes_are_answered_and_requests_then_fail() -> None:
    async def story(loop: SimLoop) -> None:
        failing, store, changes = make()
        with capture_logs() as lines:
            for _ in range(2):
                failing.fail_next(Operation.PUT, *[Fault.RESET] * 8)
                await fail(store, 5)
                for _ in range(3):  # it can be read, and not written to
                    await asyncio.sleep(5.1)
                    await fail(store, 1)
                await asyncio.sleep(5.1)
                await store.put("a", b"")
        assert changes.count(CircuitState.OPEN) == 8
        told = [line["event"] for line in lines if line["log_level"] != "debug"]
        assert told == ["bucket_unavailable", "bucket_available"] * 2
        assert [line["log_level"] for line in lines[:5]] == ["warning", "debug", "debug", "debug", "info"]

    simulate(story)


def test_answers_that_are_no_failures() -> None:
    async def story(loop: SimLoop) -> None:
        failing, store, _ = make()
        for _ in range(3):
            failing.fail_next(Operation.PUT, *[Fault.RESET] * 4)
            await fail(store, 4)
            with pytest.raises(NotFound):
                await store.head("missing")  # the bucket answers
        failing.plan.down = Fault.SLOW_DOWN
        for _ in range(20):
            with pytest.raises(Throttled):
                await store.put("a", b"")
        assert store.state is CircuitState.CLOSED

    simulate(story)


def test_throttling_between_failures_does_not_hide_them() -> None:
    async def story(loop: SimLoop) -> None:
        failing, store, _ = make()
        for _ in range(4):
            failing.fail_next(Operation.PUT, Fault.RESET, Fault.SLOW_DOWN)
            await fail(store, 1)
            with pytest.raises(Throttled):
                await store.put("a", b"")
        failing.fail_next(Operation.PUT, Fault.RESET)
        await fail(store, 1)
        assert store.is_open
        await store.close()

    simulate(story)


class Refusing(MemoryObjectStore):
    def __init__(self, error: type[ObjectStoreError]) -> None:
        super().__init__()
        self.error = error

    async def head(self, key: str, *, checksum: bool = False) -> ObjectHead:
        raise self.error(key)


@pytest.mark.parametrize(("error", "opens"), [(AccessDenied, True), (Refused, False)])
def test_a_refusal_counts_when_it_is_the_buckets(error: type[ObjectStoreError], opens: bool) -> None:
    async def story(loop: SimLoop) -> None:
        store = CircuitBreaker(Refusing(error))
        for _ in range(5):
            with pytest.raises(error):
                await store.head("a")
        assert store.is_open is opens
        await store.close()

    simulate(story)


def test_answers_to_what_was_asked_before_it_opened_change_nothing() -> None:
    async def story(loop: SimLoop) -> None:
        failing, store, changes = make(CircuitPolicy(failures_max=1, open_seconds=5))
        failing.plan.latencies[Operation.HEAD] = Latency(6)
        failing.plan.latencies[Operation.LIST] = Latency(1)
        failing.fail_next(Operation.HEAD, Fault.RESET)
        late_failure = store.head("a")
        late_success = store.list_page("")
        failing.fail_next(Operation.PUT, Fault.RESET)
        results = await asyncio.gather(late_failure, late_success, store.put("a", b""), return_exceptions=True)
        assert isinstance(results[0], Unavailable) and isinstance(results[2], Unavailable)
        assert changes == [CircuitState.OPEN, CircuitState.HALF_OPEN]

    simulate(story)


def test_closing_ends_the_probes() -> None:
    async def story(loop: SimLoop) -> None:
        failing, store, _ = make()
        failing.plan.down = Fault.RESET
        await fail(store, 5)
        await store.close()
        assert len(asyncio.all_tasks()) == 1

    simulate(story)
