import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker.tiering.errors import RemoteStorageError
from broker.tiering.remote_log_readers import RemoteLogReaders
from broker.tiering.remote_log_stats import RemoteLogStats
from tests.support.builders import settle
from tests.support.sim_loop import SimLoop, simulate


class Reads:
    """`began` are the names of reads that have begun, each until its `gates` opens or is given an error."""

    def __init__(self, threads: int = 2, waiting: int = 2) -> None:
        self.threads = threads
        self.stats = RemoteLogStats()
        self.readers = RemoteLogReaders(lambda: self.threads, lambda: waiting, self.stats)
        self.began: list[str] = []
        self.cancelled: list[str] = []
        self.gates: dict[str, asyncio.Future[str]] = {}

    def submit(self, name: str) -> "asyncio.Future[str]":
        return self.readers.submit(name, lambda: self._read(name))

    async def _read(self, name: str) -> str:
        self.began.append(name)
        self.gates[name] = asyncio.get_running_loop().create_future()
        try:
            return await self.gates[name]
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.stats.readers_busy, self.stats.readers_max, self.stats.read_queue_size


def told(reads: Reads, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def run(loop: SimLoop) -> None:
        async with reads.readers.running():
            await story()

    simulate(run)


def test_so_many_at_once_and_first_come_first_served() -> None:
    reads = Reads()

    async def story() -> None:
        assert reads.counts == (0, 2, 0)
        futures = [reads.submit(name) for name in "abcd"]
        await settle()
        assert (reads.began, reads.counts) == (["a", "b"], (2, 2, 2))
        reads.gates["b"].set_result("read")
        await settle()
        assert await futures[1] == "read"
        assert (reads.began, reads.counts) == (["a", "b", "c"], (2, 2, 1))
        for name in "ac":
            reads.gates[name].set_result(name)
        await settle()
        reads.gates["d"].set_result("d")
        assert [await each for each in (futures[0], *futures[2:])] == ["a", "c", "d"]
        await settle()
        assert reads.counts == (0, 2, 0)

    told(reads, story)


def test_32_a_full_queue_refuses() -> None:
    reads = Reads()

    async def story() -> None:
        for name in "abcd":
            reads.submit(name)
        with pytest.raises(RemoteStorageError, match="2 reads of remote storage wait already: no room for e"):
            reads.submit("e")
        await settle()
        reads.gates["a"].set_result("")
        await settle()
        reads.submit("e")
        assert reads.counts == (2, 2, 2)

    told(reads, story)


def test_a_limit_that_is_raised_counts_at_the_next_chance() -> None:
    reads = Reads(threads=1)

    async def story() -> None:
        reads.submit("a")
        reads.submit("b")
        reads.threads = 3
        reads.submit("c")
        await settle()
        assert (reads.began, reads.counts) == (["a", "b", "c"], (3, 3, 0))

    told(reads, story)


def test_what_is_cancelled_while_it_waits_never_begins() -> None:
    reads = Reads(threads=1)

    async def story() -> None:
        reads.submit("a")
        waiting = reads.submit("b")
        reads.submit("c")
        waiting.cancel()
        await settle()
        assert reads.counts == (1, 1, 1)
        reads.gates["a"].set_result("")
        await settle()
        assert reads.began == ["a", "c"]

    told(reads, story)


def test_what_is_cancelled_while_it_runs_makes_room() -> None:
    reads = Reads(threads=1)

    async def story() -> None:
        running = reads.submit("a")
        reads.submit("b")
        await settle()
        running.cancel()
        await settle()
        assert (reads.cancelled, reads.began, reads.counts) == (["a"], ["a", "b"], (1, 1, 0))

    told(reads, story)


def test_what_is_cancelled_at_once_makes_room() -> None:
    reads = Reads(threads=1)

    async def story() -> None:
        running = reads.submit("a")
        reads.submit("b")
        running.cancel()
        await settle()
        assert (reads.cancelled, reads.began[-1], reads.counts) == (["a"], "b", (1, 1, 0))

    told(reads, story)


@pytest.mark.parametrize("error", [RemoteStorageError("slow down"), ZeroDivisionError("a bug")])
def test_an_error_is_told_to_whoever_waits_and_stops_nobody(error: Exception) -> None:
    reads = Reads(threads=1)

    async def story() -> None:
        first, second = reads.submit("a"), reads.submit("b")
        await settle()
        reads.gates["a"].set_exception(error)
        with pytest.raises(type(error)):
            await first
        await settle()
        reads.gates["b"].set_result("fine")
        assert await second == "fine"

    told(reads, story)


def test_the_end_is_told_to_all() -> None:
    reads = Reads(threads=1)

    async def run(loop: SimLoop) -> None:
        with pytest.raises(RemoteStorageError, match="closed"):
            reads.submit("early")
        async with reads.readers.running():
            running, waiting = reads.submit("a"), reads.submit("b")
            await settle()
        for each in (running, waiting):
            with pytest.raises(RemoteStorageError, match="closed"):
                await each
        with pytest.raises(RemoteStorageError, match="closed"):
            reads.submit("late")
        assert (reads.cancelled, reads.began) == (["a"], ["a"])
        await settle()
        assert reads.counts == (0, 0, 0)

    simulate(run)
