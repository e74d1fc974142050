"""RemoteLogReaders: reads of remote storage for clients, so many at once, and so many that wait (KIP-405).

Kafka: RemoteLogManager's remoteStorageReaderThreadPool.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import structlog

from broker.common.errors import KafkaError
from broker.common.tasks import BackgroundTasks
from broker.tiering.errors import RemoteStorageError
from broker.tiering.remote_log_stats import RemoteLogStats

log = structlog.get_logger(__name__)

T = TypeVar("T")
Work: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]


class RemoteLogReaders:
    """First come, first served.  Limits are asked each time: remote.log.reader.threads and .max.pending.tasks."""

    def __init__(self, reads_max: Callable[[], int], waiting_max: Callable[[], int], stats: RemoteLogStats) -> None:
        self._reads_max = reads_max
        self._waiting_max = waiting_max
        self._stats = stats
        self._tasks = BackgroundTasks("remote-log-reader")
        self._is_open = False
        self._waiting: dict[asyncio.Future[Any], Work] = {}
        self._running: dict[asyncio.Future[Any], asyncio.Task[None]] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator["RemoteLogReaders"]:
        """Reads happen within this; those that have not ended at its end fail with RemoteStorageError."""
        self._is_open = True
        self._count()
        try:
            async with self._tasks:
                yield self
                self._is_open = False
        finally:
            self._is_open = False
            for done in [*self._waiting, *self._running]:
                _fail(done, _closed())

    def submit(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> "asyncio.Future[T]":
        """Do it when it is its turn; to cancel the future takes it back.  RemoteStorageError when too many wait."""
        if not self._is_open:
            raise _closed()
        if len(self._running) >= self._reads_max() and len(self._waiting) >= self._waiting_max():
            raise RemoteStorageError(f"{len(self._waiting)} reads of remote storage wait already: no room for {name}")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[done] = work
        done.add_done_callback(self._taken_back)
        self._start_waiting()
        return done

    def _taken_back(self, done: "asyncio.Future[Any]") -> None:
        if self._waiting.pop(done, None) is not None:
            self._count()
        if done.cancelled() and done in self._running:
            self._running[done].cancel()

    def _start_waiting(self) -> None:
        while self._is_open and self._waiting and len(self._running) < self._reads_max():
            done = next(iter(self._waiting))
            work = self._waiting.pop(done)
            if not done.done():
                task = self._running[done] = self._tasks.start("read", self._run(done, work))
                task.add_done_callback(lambda _, done=done: self._ended(done))  # type: ignore[misc]
        self._count()

    async def _run(self, done: "asyncio.Future[Any]", work: Work) -> None:
        """Nothing that one read does, or finds in a bucket, is a reason to stop: whoever waits is told."""
        try:
            result = await work()
        except Exception as error:
            if not isinstance(error, KafkaError):
                log.exception("remote_log_read_failed")
            _fail(done, error)
        else:
            if not done.done():
                done.set_result(result)

    def _ended(self, done: "asyncio.Future[Any]") -> None:
        del self._running[done]
        _fail(done, _closed())
        self._start_waiting()

    def _count(self) -> None:
        self._stats.readers_busy = len(self._running)
        self._stats.readers_max = self._reads_max() if self._is_open else 0
        self._stats.read_queue_size = len(self._waiting)


def _fail(done: "asyncio.Future[Any]", error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
        done.exception()  # nobody may wait for it any more


def _closed() -> RemoteStorageError:
    return RemoteStorageError("remote storage is being closed")
