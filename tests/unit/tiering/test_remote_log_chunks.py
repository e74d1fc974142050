"""Chunks of remote logs: which ranges are asked for, what stays in memory, what is read ahead."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from broker.common.tasks import BackgroundTasks
from broker.objectstore.decorated import Operation
from broker.objectstore.failing_object_store import Fault
from broker.tiering.errors import RemoteStorageError
from broker.tiering.object_names import ObjectKind, ObjectNames
from broker.tiering.remote_log_chunks import ABANDONED_SECONDS, READ_AHEADS_MAX, RemoteLogChunks
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata
from tests.support.sim_disk import SimFileSystem
from tests.support.sim_loop import SimLoop, simulate

from .segment_world import segment
from .storage_world import Bucket, storage_manager

LOG = bytes(range(95))
CHUNK = 20
NAMES = ObjectNames("cluster")


class World:
    def __init__(self) -> None:
        self.bucket = Bucket()
        self.storage = storage_manager(self.bucket, SimFileSystem())
        self.segments = [segment(number, 0, 9, size=len(LOG)) for number in range(8)]

    @contextlib.asynccontextmanager
    async def chunks(self, cache_bytes: int = 1000, read_ahead_chunks: int = 2) -> AsyncIterator[RemoteLogChunks]:
        async with self.storage.running(), BackgroundTasks("test") as tasks:
            for each in self.segments:
                await self.bucket.inner.put(NAMES.name(each, ObjectKind.LOG), LOG)
            yield RemoteLogChunks(
                self.storage,
                tasks,
                chunk_bytes=CHUNK,
                cache_bytes=cache_bytes,
                read_ahead_chunks=read_ahead_chunks,
            )

    @property
    def one(self) -> RemoteLogSegmentMetadata:
        return self.segments[0]

    def asked(self) -> list[tuple[int, int]]:
        """Since it was asked last."""
        ranges, self.bucket.inner.ranges = self.bucket.inner.ranges, []
        return ranges


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("position", "size", "asked"),
    [
        (0, 5, [(0, 19)]),
        (15, 5, [(0, 19)]),
        (15, 6, [(0, 19), (20, 39)]),
        (20, 20, [(20, 39)]),
        (25, 50, [(20, 39), (40, 59), (60, 79)]),
        (94, 1, [(80, 94)]),
        (79, 1000, [(60, 79), (80, 94)]),
        (95, 10, []),
        (1000, 10, []),
    ],
)
async def test_a_read_asks_for_the_chunks_it_touches(position: int, size: int, asked: list[tuple[int, int]]) -> None:
    world = World()
    async with world.chunks() as chunks:
        assert await chunks.read(world.one, position, size) == LOG[position : position + size]
        assert world.asked() == asked
        assert await chunks.read(world.one, position, size) == LOG[position : position + size]
        assert world.asked() == []
        assert chunks.fetches == len(asked)


async def test_52_readers_of_one_chunk_cause_one_request() -> None:
    world = World()
    async with world.chunks() as chunks:
        answers = await asyncio.gather(*(chunks.read(world.one, position, 5) for position in range(10)))
        assert answers == [LOG[position : position + 5] for position in range(10)]
        assert world.asked() == [(0, 19)]


async def test_the_cache_has_a_bound_and_what_was_unused_for_longest_goes() -> None:
    world = World()
    async with world.chunks(3 * CHUNK) as chunks:
        for position in (0, 20, 40, 0, 60):
            await chunks.read(world.one, position, 1)
        assert (chunks.cached_bytes, chunks.fetches) == (60, 4)
        world.asked()
        for position in (0, 40, 60, 20):
            await chunks.read(world.one, position, 1)
        assert world.asked() == [(20, 39)]
        assert chunks.cached_bytes == 60
        await chunks.read(world.one, 0, len(LOG))  # more than the cache holds
        assert chunks.cached_bytes <= 60


async def test_a_cache_too_small_for_a_chunk_still_answers() -> None:
    world = World()
    async with world.chunks(1) as chunks:
        assert await chunks.read(world.one, 10, 20) == LOG[10:30]
        assert chunks.cached_bytes == 0


async def test_the_next_chunks_are_read_ahead_for_who_goes_on() -> None:
    world = World()
    async with world.chunks() as chunks:
        await chunks.read(world.one, 0, 5)  # does not say that it goes on
        await settle()
        assert world.asked() == [(0, 19)]
        await chunks.read(world.one, 5, 6, read_ahead=True)
        await settle()
        assert world.asked() == [(20, 39), (40, 59)]
        await chunks.read(world.one, 11, 10, read_ahead=True)
        await settle()
        assert world.asked() == [(60, 79)]
        await chunks.read(world.one, 60, 20, read_ahead=True)  # there is one after it
        await settle()
        assert world.asked() == [(80, 94)]
        await chunks.read(world.one, 80, 15, read_ahead=True)  # and none after that
        await settle()
        assert world.asked() == []


async def test_nothing_is_read_ahead_where_that_is_off() -> None:
    world = World()
    async with world.chunks(read_ahead_chunks=0) as chunks:
        await chunks.read(world.one, 0, 20, read_ahead=True)
        await settle()
        assert world.asked() == [(0, 19)]


async def test_a_read_joins_the_read_ahead() -> None:
    world = World()
    async with world.chunks() as chunks:
        await chunks.read(world.one, 0, 20, read_ahead=True)
        assert await chunks.read(world.one, 20, 20) == LOG[20:40]
        await settle()
        assert world.asked() == [(0, 19), (20, 39), (40, 59)]


async def test_read_aheads_are_few_and_failures_of_them_are_nobodys() -> None:
    world = World()
    async with world.chunks() as chunks:
        for each in world.segments:
            await chunks.read(each, 0, 1)
        await asyncio.gather(*(chunks.read(each, 0, 20, read_ahead=True) for each in world.segments))
        world.asked()
        world.bucket.failing.fail_next(Operation.GET_RANGE, *[Fault.NOT_FOUND] * READ_AHEADS_MAX)
        await settle()
        assert chunks.fetches == len(world.segments) + READ_AHEADS_MAX
        assert world.asked() == []
        assert await chunks.read(world.one, 20, 20) == LOG[20:40]


async def test_what_was_read_to_its_end_goes_before_what_is_being_read() -> None:
    world = World()
    async with world.chunks(4 * CHUNK, read_ahead_chunks=0) as chunks:
        await chunks.read(world.segments[1], 0, 5, read_ahead=True)
        for position in range(0, 60, 20):
            await chunks.read(world.one, position, 20, read_ahead=True)
        await chunks.read(world.one, 40, 1)  # a look back does not make it one that is being read
        world.asked()
        for position in (60, 80):
            await chunks.read(world.one, position, 15, read_ahead=True)
        assert world.asked() == [(60, 79), (80, 94)]
        await chunks.read(world.segments[1], 5, 5, read_ahead=True)
        assert world.asked() == []
        assert chunks.cached_bytes <= 80


async def test_many_who_read_at_once_cost_hardly_more_than_they_read() -> None:
    """More than there is room for: nothing is read ahead soon, and nobody's chunk goes before it was read."""
    world = World()
    async with world.chunks(len(world.segments) * CHUNK) as chunks:
        for position in range(0, len(LOG), 10):
            for each in world.segments:
                assert await chunks.read(each, position, 10, read_ahead=True) == LOG[position : position + 10]
            await settle()
        assert len(world.asked()) <= 1.2 * 5 * len(world.segments)  # the first find room, and lose what they read ahead


def test_chunks_that_nobody_asked_for_any_more_make_room_for_reading_ahead() -> None:
    async def story(loop: SimLoop) -> None:
        world = World()
        async with world.chunks(3 * CHUNK) as chunks:
            for each in world.segments[1:4]:
                await chunks.read(each, 0, 5)
            await asyncio.sleep(ABANDONED_SECONDS - 1)
            await chunks.read(world.one, 0, 5, read_ahead=True)
            await settle()
            assert world.asked() == [(0, 19)] * 4
            await asyncio.sleep(2)
            await chunks.read(world.one, 5, 5, read_ahead=True)
            await settle()
            assert world.asked() == [(20, 39), (40, 59)]
            assert chunks.cached_bytes == 60

    simulate(story)


async def test_failures_are_told_and_not_kept() -> None:
    world = World()
    async with world.chunks() as chunks:
        world.bucket.failing.fail_next(Operation.GET_RANGE, Fault.SHORT_READ)
        with pytest.raises(RemoteStorageError):
            await chunks.read(world.one, 0, 20)
        assert chunks.cached_bytes == 0
        assert await chunks.read(world.one, 0, 20) == LOG[:20]


async def test_what_a_storage_manager_gives_too_little_of_is_no_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    async def short(*_: object) -> AsyncIterator[bytes]:
        yield b"abc"
        yield b"def"

    world = World()
    async with world.chunks() as chunks:
        monkeypatch.setattr(world.storage, "fetch_log_segment", short)
        with pytest.raises(RemoteStorageError, match="6 bytes at 20 where 20 were expected"):
            await chunks.read(world.one, 20, 1)


async def test_what_was_wrong_is_fetched_again() -> None:
    world = World()
    async with world.chunks() as chunks:
        for each in world.segments[:2]:
            await chunks.read(each, 0, 40)
        chunks.forget(world.one)
        assert chunks.cached_bytes == 40
        world.asked()
        await chunks.read(world.one, 0, 1)
        await chunks.read(world.segments[1], 0, 40)
        assert world.asked() == [(0, 19)]
