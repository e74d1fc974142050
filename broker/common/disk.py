"""The only thread pool: fsync, cold reads, deletes and compression of big batches wait here, not in the loop.

A thread is given file descriptors and bytes, never an object whose state the loop also changes.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

DISK_THREADS = 4  # fsync, cold reads and deletes side by side; more would only queue in the device


class DiskExecutor(Protocol):
    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking function off the loop and return its result or raise its exception."""

    def submit(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":
        """Start a blocking function off the loop; the future's result arrives in the loop."""

    def close(self) -> None:
        """Wait for what was submitted; nothing may be submitted any more."""


class ThreadDiskExecutor:
    """The real one."""

    def __init__(self, threads: int = DISK_THREADS) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="disk")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.submit(function, *args, **kwargs)

    def submit(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._pool, lambda: function(*args, **kwargs))

    def close(self) -> None:
        self._pool.shutdown(wait=True)


class InlineDiskExecutor:
    """Runs at once in the caller: unit tests and tools."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    def submit(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:  # handed to whoever awaits, like a pool does
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Nothing is under way."""
