"""FailingObjectStore: every fault does what it says, and a run is a function of its seed."""

import asyncio
from collections import Counter

import pytest

from broker.common.chance import Chance
from broker.objectstore.decorated import Operation
from broker.objectstore.errors import Corrupt, NotFound, ObjectStoreError, Throttled, Unavailable
from broker.objectstore.failing_object_store import FailingObjectStore, Fault, FaultPlan, Latency
from tests.support.memory_object_store import MemoryObjectStore
from tests.support.sim_loop import SimLoop, simulate


@pytest.mark.parametrize(
    ("fault", "error", "stored"),
    [
        (Fault.SLOW_DOWN, Throttled, None),
        (Fault.RESET, Unavailable, None),
        (Fault.LOST_REPLY, Unavailable, b"0123456789"),
        (Fault.BLACK_HOLE, Unavailable, None),
        (Fault.TORN_PUT, Unavailable, b"01234"),
    ],
)
@pytest.mark.parametrize("operation", [Operation.PUT, Operation.PUT_IF_ABSENT])
def test_faults_of_a_put(
    fault: Fault, error: type[ObjectStoreError], stored: bytes | None, operation: Operation
) -> None:
    async def story(loop: SimLoop) -> None:
        memory = MemoryObjectStore()
        store = FailingObjectStore(memory, Chance(1))
        store.fail_next(operation, fault)
        put = store.put if operation is Operation.PUT else store.put_if_absent
        with pytest.raises(error, match=fault):
            await put("a", b"0123456789")
        assert memory.objects.get("a") == stored
        assert store.occurred == {fault: 1}
        assert loop.time() == (2 if fault is Fault.BLACK_HOLE else 0)
        await put("b", b"x")

    simulate(story)


def test_a_refusal_that_is_lost_is_unknown_too() -> None:
    async def story(loop: SimLoop) -> None:
        store = FailingObjectStore(MemoryObjectStore(), Chance(1))
        await store.put("a", b"x")
        store.fail_next(Operation.PUT_IF_ABSENT, Fault.LOST_REPLY)
        with pytest.raises(Unavailable):
            await store.put_if_absent("a", b"x")

    simulate(story)


def test_faults_of_a_get() -> None:
    async def story(loop: SimLoop) -> None:
        store = FailingObjectStore(MemoryObjectStore(), Chance(1))
        await store.put("a", b"0123456789")
        store.fail_next(Operation.GET_RANGE, Fault.NOT_FOUND, Fault.SHORT_READ, Fault.FLIPPED_BYTE)
        with pytest.raises(NotFound):
            await store.get_range("a", 0, 10)
        with pytest.raises(Corrupt):
            await store.get_range("a", 0, 10)
        wrong = await store.get_range("a", 0, 10)
        assert sum(here != there for here, there in zip(wrong, b"0123456789", strict=True)) == 1
        assert await store.get_range("a", 0, 10) == b"0123456789"

    simulate(story)


def test_a_stale_listing_is_the_one_before() -> None:
    async def story(loop: SimLoop) -> None:
        store = FailingObjectStore(MemoryObjectStore(), Chance(1))
        store.fail_next(Operation.LIST, Fault.STALE_LIST)
        await store.put("a", b"")
        assert [found.key async for found in store.list("")] == []
        assert [found.key async for found in store.list("")] == ["a"]
        await store.put("b", b"")
        await store.delete_many(["a"])
        store.fail_next(Operation.LIST, Fault.STALE_LIST)
        assert [found.key async for found in store.list("")] == ["a"]
        assert [found.key async for found in store.list("")] == ["b"]

    simulate(story)


def test_a_bucket_that_is_down_answers_nothing_until_it_is_back() -> None:
    async def story(loop: SimLoop) -> None:
        store = FailingObjectStore(MemoryObjectStore(), Chance(1), FaultPlan(down=Fault.BLACK_HOLE))
        for question in (store.probe(), store.head("a"), store.put("a", b"")):
            with pytest.raises(Unavailable):
                await question
        assert loop.time() == 6
        store.plan.down = None
        await store.put("a", b"")

    simulate(story)


def test_a_fault_that_cannot_befall_an_operation_is_a_mistake() -> None:
    with pytest.raises(AssertionError):
        FailingObjectStore(MemoryObjectStore(), Chance(1)).fail_next(Operation.PUT, Fault.STALE_LIST)


def test_latencies_have_the_quantiles_asked_for() -> None:
    chance, latency = Chance(5), Latency(median=0.006, p99=0.02)
    drawn = sorted(latency.draw(chance) for _ in range(20_000))
    assert drawn[10_000] == pytest.approx(0.006, rel=0.05)
    assert drawn[19_800] == pytest.approx(0.02, rel=0.1)
    assert Latency().draw(chance) == 0
    assert Latency(0.5).draw(chance) == 0.5


def run(seed: int) -> tuple[list[str], float, Counter[Fault]]:
    async def story(loop: SimLoop) -> tuple[list[str], float, Counter[Fault]]:
        plan = FaultPlan(dict.fromkeys(Fault, 0.05), Latency(0.01, 0.1))
        store = FailingObjectStore(MemoryObjectStore(), Chance(seed), plan)
        results: list[str] = []

        async def work(number: int) -> None:
            for step in range(20):
                key = f"{number}/{step}"
                for question in (store.put(key, b"0123"), store.get_range(key, 0, 4), store.list_page(f"{number}/")):
                    try:
                        results.append(f"{key} {await question}")
                    except ObjectStoreError as error:
                        results.append(f"{key} {error}")

        await asyncio.gather(*(work(number) for number in range(5)))
        return results, loop.time(), store.occurred

    return simulate(story, seed=seed)


def test_folders_may_be_missing_from_a_stale_listing() -> None:
    async def story(loop: SimLoop) -> None:
        memory = MemoryObjectStore()
        store = FailingObjectStore(memory, Chance(1))
        await memory.put("p/a/1", b"")
        store.fail_next(Operation.LIST, Fault.STALE_LIST)
        assert [each async for each in store.list_folders("p/")] == []
        assert [each async for each in store.list_folders("p/")] == ["p/a/"]

    simulate(story)


def test_a_run_is_a_function_of_its_seed_and_every_fault_occurs() -> None:
    first, again, other = run(1), run(1), run(2)
    assert first == again
    assert first[0] != other[0]
    assert set(first[2]) == set(Fault)
