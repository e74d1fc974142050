"""Operations parked until something they watch changes, or their deadline passes (Kafka's DelayedOperationPurgatory).

There is no race between the check and the parking: both happen in one run of the event loop.  No task and no future
per operation: an operation is told once, by `on_complete`, and answers its client itself.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

import structlog

Key = TypeVar("Key", bound=Hashable)

log = structlog.get_logger(__name__)


class DelayedOperation(ABC):
    """One parked request.  `on_complete` runs exactly once: when the condition holds, or when the deadline passes."""

    __slots__ = ("_timer", "is_completed")

    def __init__(self) -> None:
        self.is_completed = False
        self._timer: asyncio.TimerHandle | None = None

    @abstractmethod
    def try_complete(self) -> bool:
        """True once the condition holds.  Called at parking and on every change of a watched key; changes nothing."""

    @abstractmethod
    def on_complete(self, expired: bool) -> None:
        """Answer the client; `expired` when the deadline passed first."""


class Purgatory(Generic[Key]):
    """Parked operations by the keys they watch.  Its size is bounded by the connections' bound on open requests."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.expired_count = 0
        self._watchers: dict[Key, dict[DelayedOperation, None]] = {}
        self._parked: dict[DelayedOperation, tuple[Key, ...]] = {}

    def complete_or_park(self, operation: DelayedOperation, keys: Iterable[Key], timeout_ms: int) -> bool:
        """Complete the operation now if it can be, else park it; returns whether it completed now."""
        if operation.try_complete():
            self._complete(operation, expired=False)
            return True
        watched = tuple(dict.fromkeys(keys))
        for key in watched:
            self._watchers.setdefault(key, {})[operation] = None
        self._parked[operation] = watched
        loop = asyncio.get_running_loop()
        operation._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._expire, operation)
        return False

    def check(self, key: Key) -> int:
        """Complete every operation that watches `key` and can; returns how many."""
        watchers = self._watchers.get(key)
        if not watchers:
            return 0
        completed = 0
        for operation in list(watchers):
            if operation.is_completed:
                continue
            try:
                ready = operation.try_complete()
            except Exception:  # one broken operation must not starve the watchers after it
                log.exception("delayed_operation_failed", purgatory=self.name)
                ready = True
            if ready:
                self._complete(operation, expired=False)
                completed += 1
        return completed

    def cancel(self, operation: DelayedOperation) -> None:
        """Forget a parked operation without completing it: its client has gone."""
        self._release(operation)

    def _expire(self, operation: DelayedOperation) -> None:
        if not operation.is_completed:
            self.expired_count += 1
            self._complete(operation, expired=True)

    def _complete(self, operation: DelayedOperation, expired: bool) -> None:
        operation.is_completed = True
        self._release(operation)
        operation.on_complete(expired)

    def _release(self, operation: DelayedOperation) -> None:
        if operation._timer is not None:
            operation._timer.cancel()
            operation._timer = None
        for key in self._parked.pop(operation, ()):
            watchers = self._watchers.get(key)
            if watchers is not None:
                watchers.pop(operation, None)
                if not watchers:
                    del self._watchers[key]

    def watched_keys_count(self) -> int:
        return len(self._watchers)

    def __len__(self) -> int:
        return len(self._parked)
