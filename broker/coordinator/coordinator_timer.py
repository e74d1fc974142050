"""CoordinatorTimer: the timers of one shard, by key."""

import asyncio
from collections.abc import Callable, Hashable

import structlog

log = structlog.get_logger(__name__)


class CoordinatorTimer:
    """At most one timer per key (Kafka's CoordinatorTimer).

    Setting a key again replaces its timer, and a timer which was replaced or cancelled never runs, even when it was
    already due: a loop may have queued it.  An action that fails is logged and is not repeated.
    """

    def __init__(self) -> None:
        self._timers: dict[Hashable, _Timer] = {}

    def schedule(self, key: Hashable, delay_ms: int, action: Callable[[], None]) -> None:
        """Run `action` in the loop after the delay, unless the key is set again or cancelled before."""
        self.cancel(key)
        timer = _Timer(self, key, action)
        self._timers[key] = timer
        timer.handle = asyncio.get_running_loop().call_later(max(delay_ms, 0) / 1000, timer.fire)

    def cancel(self, key: Hashable) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None and timer.handle is not None:
            timer.handle.cancel()

    def cancel_all(self) -> None:
        for key in list(self._timers):
            self.cancel(key)

    def is_scheduled(self, key: Hashable) -> bool:
        return key in self._timers

    def __len__(self) -> int:
        return len(self._timers)

    def _take(self, key: Hashable, timer: "_Timer") -> bool:
        """Whether `timer` is still the one of its key; then it is used up."""
        if self._timers.get(key) is not timer:
            return False
        del self._timers[key]
        return True


class _Timer:
    __slots__ = ("_action", "_key", "_owner", "handle")

    def __init__(self, owner: CoordinatorTimer, key: Hashable, action: Callable[[], None]) -> None:
        self._owner = owner
        self._key = key
        self._action = action
        self.handle: asyncio.TimerHandle | None = None

    def fire(self) -> None:
        if not self._owner._take(self._key, self):
            return
        try:
            self._action()
        except Exception:  # one broken group must not stop the timers of the others
            log.exception("coordinator_timer_failed", key=str(self._key))
