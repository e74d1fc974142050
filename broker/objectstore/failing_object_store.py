"""FailingObjectStore: a store that is slow, refuses, loses answers and lies, as told; for tests and drills."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import exp, log, pi, sin, sqrt
from typing import Any, Final, TypeVar

from broker.common.chance import Chance
from broker.objectstore.decorated import DecoratedObjectStore, Operation, Request
from broker.objectstore.errors import Corrupt, NotFound, ObjectStoreError, Throttled, Unavailable
from broker.objectstore.object_store import ObjectStore
from broker.objectstore.objects import FolderPage, ListPage

T = TypeVar("T")


class Fault(StrEnum):
    """What can go wrong with a request."""

    SLOW_DOWN = "slow_down"  # refused with 503, not done
    RESET = "reset"  # the connection broke before it was done
    LOST_REPLY = "lost_reply"  # done, and nobody heard of it
    BLACK_HOLE = "black_hole"  # no answer until the client gives up; not done
    TORN_PUT = "torn_put"  # half of the body is stored, then the connection broke: no store may, a broken one does
    NOT_FOUND = "not_found"  # an object that is there is not found
    SHORT_READ = "short_read"  # the object seems to end early
    FLIPPED_BYTE = "flipped_byte"  # one byte of what is read is wrong
    STALE_LIST = "stale_list"  # the listing is the one before: new objects are missing, deleted ones are there


_READS: Final = frozenset({Operation.GET_RANGE})
_PUTS: Final = frozenset({Operation.PUT, Operation.PUT_IF_ABSENT})
_APPLIES_TO: Final[Mapping[Fault, frozenset[Operation]]] = {
    Fault.TORN_PUT: _PUTS,
    Fault.NOT_FOUND: _READS | {Operation.HEAD},
    Fault.SHORT_READ: _READS,
    Fault.FLIPPED_BYTE: _READS,
    Fault.STALE_LIST: frozenset({Operation.LIST}),
}
BEFALLS_EVERY_OPERATION: Final = frozenset(Fault) - _APPLIES_TO.keys()
_LIES: Final = frozenset({Fault.FLIPPED_BYTE, Fault.STALE_LIST})  # answers, and not true
_ERRORS: Final[Mapping[Fault, type[ObjectStoreError]]] = {
    Fault.SLOW_DOWN: Throttled,
    Fault.NOT_FOUND: NotFound,
    Fault.SHORT_READ: Corrupt,
}  # the others are Unavailable

LISTINGS_MAX: Final = 1000  # prefixes whose last page is kept to be told again


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds a request takes, log-normal: half take less than `median`, one of a hundred more than `p99`."""

    median: float = 0.0
    p99: float = 0.0

    def draw(self, chance: Chance) -> float:
        if self.median <= 0 or self.p99 <= self.median:
            return self.median
        normal = sqrt(-2 * log(1 - chance.random())) * sin(2 * pi * chance.random())
        return self.median * exp(normal * log(self.p99 / self.median) / 2.326)


@dataclass(slots=True)
class FaultPlan:
    """What happens from now on: probabilities per request, latencies per operation (`latency` for the others)."""

    probabilities: dict[Fault, float] = field(default_factory=dict)
    latency: Latency = field(default_factory=Latency)
    latencies: dict[Operation, Latency] = field(default_factory=dict)
    black_hole_seconds: float = 2.0  # when the client gives up
    down: Fault | None = None  # every request ends like this: a bucket lost with its zone

    def latency_of(self, operation: Operation) -> Latency:
        return self.latencies.get(operation, self.latency)


class FailingObjectStore(DecoratedObjectStore):
    """Faults by `plan`, drawn from `chance`, or the next ones by `fail_next`.  `occurred` counts them.

    Listings are kept to be told again; without `keeps_listings` only while the plan wants some to be stale.
    """

    def __init__(
        self, inner: ObjectStore, chance: Chance, plan: FaultPlan | None = None, *, keeps_listings: bool = True
    ) -> None:
        super().__init__(inner)
        self._keeps_listings = keeps_listings
        self.plan = plan or FaultPlan()
        self.occurred: Counter[Fault] = Counter()
        self._chance = chance
        self._next: dict[Operation, list[Fault]] = {}
        self._listings: dict[str, ListPage] = {}

    def fail_next(self, operation: Operation, *faults: Fault) -> None:
        """The next requests of this kind end like this, one after the other; then it is the plan's turn again."""
        for fault in faults:
            assert operation in _APPLIES_TO.get(fault, frozenset(Operation)), f"{fault} cannot befall {operation}"
        self._next.setdefault(operation, []).extend(faults)

    async def _around(self, request: Request, call: Callable[[], Awaitable[T]]) -> T:
        fault = self._fault_of(request.operation)
        await asyncio.sleep(self.plan.latency_of(request.operation).draw(self._chance))
        if fault is None:
            return self._remembered(request, await call())
        self.occurred[fault] += 1
        if fault in _LIES:
            return self._falsified(fault, request, await call())
        await self._fail(fault, request, call)
        raise _ERRORS.get(fault, Unavailable)(f"{self.name}: {request.operation} {request.key}: injected {fault}")

    async def _fail(self, fault: Fault, request: Request, call: Callable[[], Awaitable[T]]) -> None:
        """What is done, or waited for, before the error."""
        if fault is Fault.LOST_REPLY:
            with contextlib.suppress(ObjectStoreError):  # a refusal is lost as well
                await call()
        elif fault is Fault.BLACK_HOLE:
            await asyncio.sleep(self.plan.black_hole_seconds)
        elif fault is Fault.TORN_PUT:
            half = memoryview(request.body)[: len(request.body) // 2]
            put = self._inner.put if request.operation is Operation.PUT else self._inner.put_if_absent
            await put(request.key, half)

    def _falsified(self, fault: Fault, request: Request, answer: T) -> T:
        false: Any = answer
        if isinstance(answer, bytes) and fault is Fault.FLIPPED_BYTE:
            false = bytearray(answer)
            false[self._chance.below(len(false))] ^= 0x55
            false = bytes(false)
        elif isinstance(answer, ListPage):
            false = self._listings.get(request.key, ListPage((), None))
        elif isinstance(answer, FolderPage):
            false = FolderPage((), None)  # as it was before there was anything
        lie: T = false
        return lie

    def _remembered(self, request: Request, answer: T) -> T:
        if not self._keeps_listings and Fault.STALE_LIST not in self.plan.probabilities:
            self._listings.clear()
        elif isinstance(answer, ListPage):
            if len(self._listings) >= LISTINGS_MAX:
                self._listings.clear()
            self._listings[request.key] = ListPage(answer.objects, None)
        return answer

    def _fault_of(self, operation: Operation) -> Fault | None:
        if self.plan.down is not None:
            assert self.plan.down not in _APPLIES_TO, f"{self.plan.down} cannot befall every operation"
            return self.plan.down
        if waiting := self._next.get(operation):
            return waiting.pop(0)
        for fault, probability in self.plan.probabilities.items():
            applies = operation in _APPLIES_TO.get(fault, frozenset(Operation))
            if applies and probability > 0 and self._chance.random() < probability:
                return fault
        return None
