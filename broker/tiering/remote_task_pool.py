"""RemoteTaskPool: tasks that run again and again with a delay between, so many at once at most.

The counterpart of Kafka's ScheduledThreadPoolExecutor with fixed delay in RemoteLogManager.  Ten thousand waiting tasks
are entries of a heap and one timer.
"""

import asyncio
import functools
import heapq
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

from broker.common.errors import KafkaError, ReplicaNotAvailableError
from broker.common.tasks import BackgroundTasks

log = structlog.get_logger(__name__)


class RemoteTask:
    """One task in a pool; its errors are logged, and it runs again.

    What goes on failing is told once: a bucket may be away for hours, and a broker may lead thousands of partitions.
    """

    __slots__ = ("_is_failing", "_running", "_work", "is_cancelled", "name")

    def __init__(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        self.name = name
        self.is_cancelled = False
        self._is_failing = False
        self._work = work
        self._running: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """It runs no more, and what it is waiting for now is given up."""
        self.is_cancelled = True
        if self._running is not None:
            self._running.cancel()

    def start(self, tasks: BackgroundTasks) -> "asyncio.Task[None]":
        self._running = tasks.start(self.name, self._run())
        return self._running

    def ended(self) -> None:
        self._running = None

    async def _run(self) -> None:
        try:
            await self._work()
            self._is_failing = False
        except ReplicaNotAvailableError as error:  # what is known of the partition is being read
            log.debug("remote_log_task_put_off", task=self.name, error=str(error))
        except KafkaError as error:
            say = log.debug if self._is_failing else log.warning
            say("remote_log_task_failed", task=self.name, error=str(error))
            self._is_failing = True
        except Exception:
            log.exception("remote_log_task_failed", task=self.name)


class RemoteTaskPool:
    """`size` and `delay_ms` are asked each time; `on_busy` is told how many run."""

    def __init__(
        self,
        name: str,
        size: Callable[[], int],
        delay_ms: Callable[[], int],
        on_busy: Callable[[int], None] = lambda busy: None,
    ) -> None:
        self._size = size
        self._delay_ms = delay_ms
        self._on_busy = on_busy
        self._tasks = BackgroundTasks(name)
        self._waiting: list[tuple[float, int, RemoteTask]] = []  # by the loop's time they are due at
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = False
        self._busy = 0

    def __len__(self) -> int:
        """The tasks that wait, cancelled ones among them until they would have been due."""
        return len(self._waiting)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["RemoteTaskPool"]:
        """Tasks run within this."""
        self._is_open = True
        self._start_due()
        try:
            async with self._tasks:
                yield self
                self._close()
        finally:
            self._close()

    def _close(self) -> None:
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()

    def add(self, name: str, work: Callable[[], Awaitable[None]]) -> RemoteTask:
        """Run `work` at once, and then always again `delay_ms` after it has ended."""
        task = RemoteTask(name, work)
        self._put(task, 0)
        self._start_due()
        return task

    def _put(self, task: RemoteTask, delay_ms: int) -> None:
        due = asyncio.get_running_loop().time() + delay_ms / 1000
        heapq.heappush(self._waiting, (due, next(self._numbers), task))

    def _start_due(self) -> None:
        """Those that have been due for longest first, as many as there is room for."""
        now = asyncio.get_running_loop().time()
        while self._is_open and self._waiting and self._waiting[0][0] <= now and self._busy < self._size():
            _, _, task = heapq.heappop(self._waiting)
            if not task.is_cancelled:
                self._count(1)
                task.start(self._tasks).add_done_callback(functools.partial(self._ended, task))
        self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_open and self._waiting and self._waiting[0][0] > now:
            self._timer = asyncio.get_running_loop().call_at(self._waiting[0][0], self._start_due)

    def _ended(self, task: RemoteTask, _: "asyncio.Task[None]") -> None:
        task.ended()
        self._count(-1)
        if not task.is_cancelled:
            self._put(task, self._delay_ms())
        self._start_due()

    def _count(self, change: int) -> None:
        self._busy += change
        self._on_busy(self._busy)
