"""RetryingObjectStore: pauses, what is repeated, and how unknown outcomes are settled."""

import pytest
from crc32c import crc32c

from broker.common.chance import Chance
from broker.objectstore.decorated import Operation
from broker.objectstore.errors import NotFound, PreconditionFailed, Refused, Throttled, Unavailable
from broker.objectstore.failing_object_store import FailingObjectStore, Fault, FaultPlan
from broker.objectstore.objects import ObjectHead
from broker.objectstore.retrying import RetryingObjectStore, RetryPolicy, holds_exactly
from tests.support.memory_object_store import MemoryObjectStore
from tests.support.sim_loop import SimLoop, simulate

NO_JITTER = RetryPolicy(attempts_max=5, backoff_ms=20, backoff_max_ms=100, jitter=0)


def make(policy: RetryPolicy = NO_JITTER) -> tuple[MemoryObjectStore, FailingObjectStore, RetryingObjectStore]:
    memory = MemoryObjectStore()
    failing = FailingObjectStore(memory, Chance(1))
    return memory, failing, RetryingObjectStore(failing, Chance(2), policy)


def test_pauses_double_up_to_a_bound() -> None:
    assert [NO_JITTER.delay_seconds(n, Chance(1)) for n in range(1, 6)] == [0.02, 0.04, 0.08, 0.1, 0.1]
    drawn = [RetryPolicy(jitter=0.2).delay_seconds(1, Chance(seed)) for seed in range(200)]
    assert 0.016 <= min(drawn) < 0.0165 and 0.0235 < max(drawn) <= 0.024


def test_failures_are_repeated_after_pauses_and_the_last_one_is_told() -> None:
    async def story(loop: SimLoop) -> None:
        memory, failing, store = make()
        failing.fail_next(Operation.PUT, Fault.SLOW_DOWN, Fault.RESET)
        await store.put("a", b"x")
        assert memory.objects == {"a": b"x"}
        assert loop.time() == pytest.approx(0.06)
        failing.fail_next(Operation.PUT, *[Fault.SLOW_DOWN] * 4, Fault.RESET, Fault.SLOW_DOWN)
        with pytest.raises(Unavailable, match="reset"):
            await store.put("b", b"x")
        assert loop.time() == pytest.approx(0.06 + 0.02 + 0.04 + 0.08 + 0.1)

    simulate(story)


def test_final_errors_and_probes_are_asked_once() -> None:
    async def story(loop: SimLoop) -> None:
        _, failing, store = make()
        with pytest.raises(NotFound):
            await store.head("a")
        failing.fail_next(Operation.PROBE, Fault.RESET)
        with pytest.raises(Unavailable):
            await store.probe()
        await store.probe()
        assert loop.time() == 0

    simulate(story)


@pytest.mark.parametrize("heads_lost", [0, 2])
def test_ones_own_put_whose_answer_was_lost_is_a_success(heads_lost: int) -> None:
    async def story(loop: SimLoop) -> None:
        memory, failing, store = make()
        failing.fail_next(Operation.PUT_IF_ABSENT, Fault.LOST_REPLY)
        failing.fail_next(Operation.HEAD, *[Fault.RESET] * heads_lost)
        await store.put_if_absent("a", b"mine")
        assert memory.objects == {"a": b"mine"}
        assert failing.occurred.total() == 1 + heads_lost

    simulate(story)


def test_a_first_refusal_is_final_even_for_the_same_bytes() -> None:
    """Two who race with equal bytes must not both win; it is the lost answer that makes the difference."""

    async def story(loop: SimLoop) -> None:
        memory, _, store = make()
        await memory.put("a", b"same")
        with pytest.raises(PreconditionFailed):
            await store.put_if_absent("a", b"same")

    simulate(story)


@pytest.mark.parametrize("theirs", [b"their", b"theirs, longer"])
def test_a_strangers_object_is_not_ones_own(theirs: bytes) -> None:
    async def story(loop: SimLoop) -> None:
        memory, failing, store = make()
        await memory.put("a", theirs)
        failing.fail_next(Operation.PUT_IF_ABSENT, Fault.RESET)
        with pytest.raises(PreconditionFailed):
            await store.put_if_absent("a", b"mine!")
        assert memory.objects == {"a": theirs}

    simulate(story)


def test_a_torn_object_is_not_taken_for_a_success() -> None:
    async def story(loop: SimLoop) -> None:
        memory, failing, store = make()
        failing.fail_next(Operation.PUT_IF_ABSENT, Fault.TORN_PUT)
        with pytest.raises(PreconditionFailed):
            await store.put_if_absent("a", b"0123456789")
        assert memory.objects == {"a": b"01234"}

    simulate(story)


def test_the_outcome_stays_unknown_when_nothing_is_answered() -> None:
    async def story(loop: SimLoop) -> None:
        _, failing, store = make()
        failing.plan = FaultPlan(down=Fault.BLACK_HOLE, black_hole_seconds=2)
        with pytest.raises(Unavailable):
            await store.put_if_absent("a", b"x")
        assert failing.occurred == {Fault.BLACK_HOLE: 5}
        assert loop.time() == pytest.approx(10.24)

    simulate(story)


def test_a_completed_upload_whose_answer_was_lost_is_a_success() -> None:
    async def story(loop: SimLoop) -> None:
        memory, failing, store = make()
        upload = await store.start_upload("a")
        part = await store.upload_part(upload, 1, 0, b"x" * 10)
        failing.fail_next(Operation.COMPLETE_UPLOAD, Fault.LOST_REPLY)
        await store.complete_upload(upload, [part])
        assert memory.objects == {"a": b"x" * 10}
        with pytest.raises(NotFound):
            await store.complete_upload(upload, [part])

    simulate(story)


def test_an_upload_that_has_gone_is_no_success_when_the_object_is_another() -> None:
    async def story(loop: SimLoop) -> None:
        memory, failing, store = make()
        upload = await store.start_upload("a")
        part = await store.upload_part(upload, 1, 0, b"x" * 10)
        await memory.abort_upload(upload)
        await memory.put("a", b"other")
        failing.fail_next(Operation.COMPLETE_UPLOAD, Fault.SLOW_DOWN)
        with pytest.raises(NotFound):
            await store.complete_upload(upload, [part])

    simulate(story)


class WithoutChecksums(MemoryObjectStore):
    async def head(self, key: str, *, checksum: bool = False) -> ObjectHead:
        head = await super().head(key)
        return ObjectHead(head.size_bytes, head.last_modified_ms, None)


@pytest.mark.parametrize("kind", [MemoryObjectStore, WithoutChecksums])
async def test_holding_exactly_these_bytes(kind: type[MemoryObjectStore]) -> None:
    store = kind()
    await store.put("a", b"mine")
    await store.put("empty", b"")
    assert await holds_exactly(store, "a", 4, crc32c(b"mine"))
    assert await holds_exactly(store, "empty", 0, crc32c(b""))
    assert not await holds_exactly(store, "a", 4, crc32c(b"your"))
    assert not await holds_exactly(store, "a", 5, crc32c(b"mine"))
    assert not await holds_exactly(store, "b", 4, crc32c(b"mine"))


def test_kinds_of_error_that_end_the_attempts() -> None:
    class Refusing(MemoryObjectStore):
        asked = 0

        async def head(self, key: str, *, checksum: bool = False) -> ObjectHead:
            Refusing.asked += 1
            raise Refused(key) if Refusing.asked == 1 else Throttled(key)

    async def story(loop: SimLoop) -> None:
        store = RetryingObjectStore(Refusing(), Chance(1), NO_JITTER)
        with pytest.raises(Refused):
            await store.head("a")
        assert Refusing.asked == 1
        with pytest.raises(Throttled):
            await store.head("a")
        assert Refusing.asked == 6

    simulate(story)
