"""CircuitBreaker: a bucket that keeps failing is left alone, so that nobody waits for it, until it answers a probe."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

import structlog

from broker.common.tasks import BackgroundTasks
from broker.objectstore.decorated import DecoratedObjectStore, Operation, Request
from broker.objectstore.errors import (
    AccessDenied,
    BucketNotFound,
    CircuitOpen,
    ObjectStoreError,
    Refused,
    Throttled,
    Unavailable,
)
from broker.objectstore.object_store import ObjectStore

log = structlog.get_logger(__name__)

T = TypeVar("T")


class CircuitState(Enum):
    """CLOSED: as if it were not there.  OPEN: nothing is sent but a probe now and then.  HALF_OPEN: the probe was
    answered; the next request closes or opens it."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class CircuitPolicy:
    """So many failures in a row, or so long without a success, open the circuit."""

    failures_max: int = 5
    failing_seconds_max: float = 3
    open_seconds: float = 5


class CircuitBreaker(DecoratedObjectStore):
    """`Unavailable` is a failure; any other answer shows that the bucket is there.

    `Throttled` is neither: a bucket that asks for fewer requests is not gone, and it does not help.  An answer to what
    was asked before the last change of state says nothing about the new one.  While nothing is asked, nothing changes:
    an idle broker makes no request.
    """

    def __init__(
        self,
        inner: ObjectStore,
        policy: CircuitPolicy | None = None,
        on_change: Callable[[CircuitState], None] = lambda state: None,
    ) -> None:
        super().__init__(inner)
        self.state = CircuitState.CLOSED
        self._policy = policy or CircuitPolicy()
        self._on_change = on_change
        self._tasks = BackgroundTasks("circuit-breaker")
        self._failures = 0
        self._failing_since = 0.0
        self._changed_at = float("-inf")
        self._is_told = False

    @property
    def is_open(self) -> bool:
        """Whether requests are refused at once."""
        return self.state is CircuitState.OPEN

    async def close(self) -> None:
        await self._tasks.cancel_all()
        await super().close()

    async def _around(self, request: Request, call: Callable[[], Awaitable[T]]) -> T:
        if self.is_open and request.operation is not Operation.PROBE:
            raise CircuitOpen(f"{self.name} failed {self._failures} times lately and is left alone")
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        try:
            result = await call()
        except ObjectStoreError as error:
            if _is_failure(error):
                self._failed(asked_at, loop.time(), error)
            elif not isinstance(error, Throttled):
                self._succeeded(asked_at)
            raise
        self._succeeded(asked_at)
        return result

    def _succeeded(self, asked_at: float) -> None:
        if asked_at < self._changed_at or self.is_open:
            return
        self._failures = 0
        if self.state is CircuitState.HALF_OPEN:
            self._change(CircuitState.CLOSED)

    def _failed(self, asked_at: float, now: float, error: ObjectStoreError) -> None:
        if asked_at < self._changed_at or self.is_open:
            return
        if self._failures == 0:
            self._failing_since = asked_at
        self._failures += 1
        if (
            self.state is CircuitState.HALF_OPEN
            or self._failures >= self._policy.failures_max
            or now - self._failing_since >= self._policy.failing_seconds_max
        ):
            say = log.debug if self._is_told else log.warning  # once until it is closed again
            say("bucket_unavailable", bucket=self.name, failures=self._failures, error=str(error))
            self._is_told = True
            self._change(CircuitState.OPEN)
            self._tasks.start(f"probe:{self.name}", self._probe_until_alive())

    async def _probe_until_alive(self) -> None:
        while True:
            await asyncio.sleep(self._policy.open_seconds)
            try:
                await self._inner.probe()
            except ObjectStoreError:
                continue
            self._failures = 0
            self._change(CircuitState.HALF_OPEN)
            return

    def _change(self, state: CircuitState) -> None:
        self.state = state
        self._changed_at = asyncio.get_running_loop().time()
        if state is CircuitState.CLOSED:
            self._is_told = False
            log.info("bucket_available", bucket=self.name)
        self._on_change(state)


def _is_failure(error: ObjectStoreError) -> bool:
    """A refusal that concerns the whole bucket is one; a refused request alone shows that the bucket answers."""
    if isinstance(error, Refused):
        return isinstance(error, AccessDenied | BucketNotFound)
    return isinstance(error, Unavailable)
