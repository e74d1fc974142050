"""SimLoop: asyncio in virtual time.  Nothing ever waits; when all is quiet, the clock jumps to the next timer.

`asyncio.sleep`, `asyncio.timeout`, `call_later`, task groups and executors work as they are.  Executor work runs
inline after a delay drawn from the seed, so a whole run is a function of its seed.  When every task waits and no timer
is set nothing can ever happen again: that raises `Deadlock` with the names of those who wait.
"""

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

EXECUTOR_CALLS_PER_SECOND = 2000.0  # the mean delay of a hop to a thread and back is half a millisecond
EPOCH_MS = 1_700_000_000_000  # the wall clock of a simulation starts here


class Deadlock(RuntimeError):
    """Every task waits and no timer is set."""


class _TimeJump(selectors.BaseSelector):
    """A selector without sockets: waiting for a while is moving the clock by that while."""

    def __init__(self) -> None:
        self.loop: SimLoop | None = None
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = selectors.SelectorKey(fileobj, descriptor, events, data)
        self._keys[descriptor] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[fileobj if isinstance(fileobj, int) else fileobj.fileno()]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert self.loop is not None
        if timeout is None:
            waiting = sorted(task.get_name() for task in asyncio.all_tasks(self.loop))
            raise Deadlock(f"every task waits and no timer is set: {', '.join(waiting)}")
        self.loop.advance(timeout)
        return []

    def close(self) -> None:
        self._keys.clear()


class SimLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is virtual and whose chance comes from one seed."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self._now = 0.0
        self.seconds_per_look = 0.0  # that pass whenever somebody looks at the clock
        self.on_quiet: Callable[[], None] = lambda: None  # called before each jump of the time
        selector = _TimeJump()
        super().__init__(selector=selector)
        selector.loop = self
        self._clock_resolution = 1e-9
        self.failures: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.failures.append(context))

    def time(self) -> float:
        self._now += self.seconds_per_look
        return self._now

    def advance(self, seconds: float) -> None:
        if seconds > 0:
            self.on_quiet()
            self._now += seconds

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        """Run `func` inline after a drawn delay."""
        result: asyncio.Future[T] = self.create_future()

        def finish() -> None:
            if result.cancelled():
                return
            try:
                result.set_result(func(*args))
            except Exception as error:
                result.set_exception(error)

        self.call_later(self.random.expovariate(EXECUTOR_CALLS_PER_SECOND), finish)
        return result

    def raise_failures(self) -> None:
        """Raise what was reported to the loop's exception handler: a failed callback or background task."""
        for context in self.failures:
            if (error := context.get("exception")) is not None:
                raise error
            raise RuntimeError(f"{context['message']} {context.get('task', '')!r}")


class SimClock:
    """Wall time that moves with a loop's virtual time and can be made to jump."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start_ms: int = EPOCH_MS) -> None:
        self._loop = loop
        self._start_ms = start_ms

    def now_ms(self) -> int:
        return self._start_ms + round(self._loop.time() * 1000)

    def jump(self, by_ms: int) -> None:
        self._start_ms += by_ms


def simulate(story: Callable[[SimLoop], Coroutine[Any, Any, T]], *, seed: int = 0) -> T:
    """Run a story to its end in virtual time; whatever failed in the background fails it too."""
    loop = SimLoop(seed)
    asyncio.set_event_loop(loop)
    try:
        result = loop.run_until_complete(story(loop))
        loop.raise_failures()
        return result
    finally:
        _finish(loop)
        asyncio.set_event_loop(None)
        loop.close()


def _finish(loop: SimLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
