"""The index cache: one download for many, a limit, a restart, files that went bad, disks and stores that refuse."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar
from uuid import UUID

import pytest

from broker.common.disk import DiskExecutor, InlineDiskExecutor
from broker.common.errors import StorageFailure
from broker.config.config_holder import ConfigHolder
from broker.objectstore.decorated import Operation
from broker.objectstore.failing_object_store import Fault
from broker.tiering.errors import RemoteResourceNotFoundError, RemoteStorageError
from broker.tiering.remote_index_cache import RemoteIndexCache
from tests.support.builders import broker_config
from tests.support.sim_disk import SimFileSystem

from .storage_world import Aborted, Bucket, Made, batch, make_segment, storage_manager

P = ParamSpec("P")
T = TypeVar("T")

LOGS = Path("/logs")
CACHE = LOGS / "remote-log-index-cache"
SIZE = 2 * 8 + 12 + 34  # of the three indexes of each segment here


class World:
    def __init__(self, segments: int = 3) -> None:
        self.now_ms = 0
        self.remote_disk, self.disk = SimFileSystem(), SimFileSystem(lambda: self.now_ms)
        self.disk.make_directories(LOGS)
        self.bucket = Bucket()
        self.storage = storage_manager(self.bucket, self.remote_disk)
        self.made = [self._make(number) for number in range(1, segments + 1)]

    def _make(self, number: int) -> Made:
        base = 10 * number
        batches = [batch(base + place) for place in range(3)]
        return make_segment(self.remote_disk, number, batches, aborted=[Aborted(5, base, base + 2, base + 3)])

    @contextlib.asynccontextmanager
    async def cache(
        self, size_max_bytes: int = 1000, disk: DiskExecutor | None = None, **keywords: int
    ) -> AsyncIterator[RemoteIndexCache]:
        async with self.storage.running():
            for each in self.made:
                await self.storage.copy_log_segment_data(each.segment, each.data)
            cache = RemoteIndexCache(
                LOGS, size_max_bytes, self.storage, self.disk, disk or InlineDiskExecutor(), **keywords
            )
            async with cache.running():
                yield cache

    async def ask(self, cache: RemoteIndexCache, *numbers: int) -> None:
        """Each answer is checked to be that segment's."""
        for number in numbers:
            self.now_ms += 1
            indexes = await cache.indexes(self.made[number - 1].segment)
            size = len(self.made[number - 1].log) // 3
            base = 10 * number
            assert indexes.offset_index.entries() == [(base + 1, size), (base + 2, 2 * size)]
            assert [entry.first_offset for entry in indexes.transaction_index.entries()] == [base]

    def cached(self) -> Sequence[int]:
        """Base offsets of the segments whose files are there."""
        names = self.disk.list_directory(CACHE)
        assert len(names) % 3 == 0, names
        return sorted({int(name.partition("_")[0]) for name in names})


async def test_52_many_readers_cause_one_download() -> None:
    world = World()
    async with world.cache() as cache:
        one = world.made[0].segment
        answers = await asyncio.gather(*(cache.indexes(one) for _ in range(10)))
        assert all(each is answers[0] for each in answers)
        assert cache.downloads == 1
        await world.ask(cache, 1, 2, 1)
        assert (cache.downloads, cache.size_bytes, cache.memory_bytes) == (2, 2 * SIZE, 2 * SIZE)
        assert world.cached() == [10, 20]


async def test_52_what_was_unused_for_longest_goes() -> None:
    world = World()
    async with world.cache(2 * SIZE) as cache:
        await world.ask(cache, 1, 2, 1, 3)
        await asyncio.sleep(0)
        assert world.cached() == [10, 30]
        assert (cache.size_bytes, cache.memory_bytes, cache.downloads) == (2 * SIZE, 2 * SIZE, 3)
        await world.ask(cache, 1, 3)
        assert cache.downloads == 3
        await world.ask(cache, 2)
        assert cache.downloads == 4


async def test_the_newest_stays_whatever_the_limit() -> None:
    world = World()
    async with world.cache(1) as cache:
        await world.ask(cache, 1, 1)
        assert (cache.downloads, cache.size_bytes) == (1, SIZE)
        await world.ask(cache, 2)
        await asyncio.sleep(0)
        assert world.cached() == [20]


async def test_evicted_indexes_can_still_be_used_and_their_names_again() -> None:
    world = World()
    async with world.cache(SIZE) as cache:
        held = await cache.indexes(world.made[0].segment)
        await world.ask(cache, 2, 1, 2, 1)  # no time for files to be removed in between but a turn of the loop
        assert held.offset_index.lookup(11).offset == 11
        await asyncio.sleep(0)
        assert world.cached() == [10]
        assert cache.downloads == 5


async def test_52_the_limit_can_be_changed() -> None:
    world = World()
    async with world.cache() as cache:
        await world.ask(cache, 1, 2, 3)
        cache.resize(SIZE)
        await asyncio.sleep(0)
        assert (world.cached(), cache.size_bytes) == ([30], SIZE)
        cache.resize(3 * SIZE)
        await world.ask(cache, 1, 2, 3)
        assert (world.cached(), cache.downloads) == ([10, 20, 30], 5)


async def test_52_the_limit_follows_the_settings() -> None:
    world = World()
    config = ConfigHolder(broker_config())
    async with world.cache() as cache:
        await world.ask(cache, 1, 2, 3)
        cache.follow(config)
        config.update(broker_config({"remote.log.index.file.cache.total.size.bytes": str(2 * SIZE)}))
        await asyncio.sleep(0)
        assert (world.cached(), cache.size_bytes) == ([20, 30], 2 * SIZE)


async def test_memory_has_a_bound_of_its_own() -> None:
    world = World()
    async with world.cache(memory_max_bytes=SIZE) as cache:
        await world.ask(cache, 1, 2)
        assert (cache.size_bytes, cache.memory_bytes) == (2 * SIZE, SIZE)
        world.bucket.objects.clear()  # from the disk, then
        await world.ask(cache, 1, 2, 1)
        assert (cache.downloads, cache.memory_bytes, world.cached()) == (2, SIZE, [10, 20])


async def test_52_a_restart_finds_the_files_and_evicts_by_their_age() -> None:
    world = World()
    async with world.cache() as cache:
        await world.ask(cache, 2, 1, 3)
    assert world.cached() == [10, 20, 30]
    world.disk.open(CACHE / "40_AAAAAAAAAAAAAAAAAAAABA.index", create=True).close()
    async with world.cache(2 * SIZE) as cache:
        await asyncio.sleep(0)
        assert (world.cached(), cache.size_bytes, cache.memory_bytes) == ([10, 30], 2 * SIZE, 0)
        world.bucket.objects.clear()
        await world.ask(cache, 1, 3)
        assert cache.downloads == 0


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
async def test_52_a_file_that_went_bad_is_fetched_again_once(suffix: str) -> None:
    world = World()
    async with world.cache() as cache:
        await world.ask(cache, 1)
    file = world.disk.open(CACHE / f"10_AAAAAAAAAAAAAAAAAAAAAQ{suffix}")
    file.write_at(0, [b"\xff" * file.size()])
    file.close()
    async with world.cache() as cache:
        await world.ask(cache, 1, 1)
        assert (cache.corruptions, cache.downloads, cache.size_bytes) == (1, 1, SIZE)
        assert cache.memory_bytes == SIZE


async def test_what_is_stored_wrongly_is_told_and_not_kept() -> None:
    world = World()
    async with world.cache() as cache:
        name = next(name for name in world.bucket.objects if name.endswith(".index"))
        right, world.bucket.objects[name] = world.bucket.objects[name], b"\xff" * 16
        with pytest.raises(RemoteStorageError, match=r"stored indexes of segment .* are corrupt"):
            await cache.indexes(world.made[0].segment)
        assert (world.cached(), cache.size_bytes) == ([], 0)
        world.bucket.objects[name] = right
        await world.ask(cache, 1)


async def test_a_missing_index_is_told_but_for_that_of_transactions() -> None:
    world = World()
    one = world.made[0].segment
    async with world.cache() as cache:
        names = {
            name.rpartition(".")[2]: name for name in world.bucket.objects if one.segment_id.int == 1 and "10-" in name
        }
        del world.bucket.objects[names["txnindex"]]
        indexes = await cache.indexes(one)
        assert indexes.transaction_index.is_empty
        assert cache.size_bytes == SIZE - 34
        cache.remove([one.segment_id])
        del world.bucket.objects[names["timeindex"]]
        with pytest.raises(RemoteResourceNotFoundError, match=r"there is no .*\.timeindex"):
            await cache.indexes(one)


async def test_failures_of_the_store_are_told_to_all_who_wait() -> None:
    world = World()
    async with world.cache() as cache:
        world.bucket.failing.fail_next(
            Operation.HEAD, *[Fault.RESET] * 4
        )  # each of three requests, and one of their repetitions
        one = world.made[0].segment
        answers = await asyncio.gather(cache.indexes(one), cache.indexes(one), return_exceptions=True)
        assert [type(each) for each in answers] == [RemoteStorageError] * 2
        assert cache.size_bytes == 0
        await world.ask(cache, 1)


async def test_a_full_disk_is_told_and_leaves_nothing() -> None:
    world = World()
    async with world.cache() as cache:
        world.disk.budget_bytes = 20
        with pytest.raises(StorageFailure):
            await cache.indexes(world.made[0].segment)
        assert (world.disk.list_directory(CACHE), cache.size_bytes, world.disk.open_files) == ([], 0, 0)
        world.disk.heal()
        await world.ask(cache, 1)


async def test_indexes_of_a_deleted_partition_are_removed() -> None:
    world = World()
    async with world.cache() as cache:
        await world.ask(cache, 1, 2)
        cache.remove([UUID(int=1), UUID(int=77)])
        await asyncio.sleep(0)
        assert (world.cached(), cache.size_bytes, cache.memory_bytes) == ([20], SIZE, SIZE)


async def test_a_file_that_cannot_be_removed_is_removed_by_the_next_start() -> None:
    world = World()
    async with world.cache() as cache:
        await world.ask(cache, 1)
        world.disk.fail(CACHE, "remove")
        cache.remove([UUID(int=1)])
        await asyncio.sleep(0)
        assert [name.rpartition(".")[2] for name in world.disk.list_directory(CACHE)] == ["deleted"] * 3
        assert cache.size_bytes == 0
    world.disk.heal()
    async with world.cache():
        assert world.disk.list_directory(CACHE) == []


class GatedDisk(InlineDiskExecutor):
    """Waits before it reads or writes anything while the gate is shut."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        await self.gate.wait()
        return function(*args, **kwargs)


async def test_what_is_read_from_the_disk_counts_as_used() -> None:
    world = World()
    async with world.cache(2 * SIZE, memory_max_bytes=1) as cache:
        await world.ask(cache, 1, 2, 1, 3)
        await asyncio.sleep(0)
        assert (world.cached(), cache.downloads) == ([10, 30], 3)


async def test_files_that_are_being_read_are_not_evicted() -> None:
    world = World()
    disk = GatedDisk()
    async with world.cache(disk=disk, memory_max_bytes=1) as cache:
        await world.ask(cache, 1, 2)
        disk.gate.clear()
        asking = asyncio.create_task(world.ask(cache, 1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await world.ask(cache, 2)  # in memory: the first one is the one used longest ago now
        cache.resize(1)
        cache.remove([UUID(int=1)])
        disk.gate.set()
        await asking
        assert (cache.corruptions, cache.downloads, world.cached()) == (0, 2, [10, 20])
