"""Remote reads: the right batch, its size, the next segment, aborted transactions, timestamps, wrong bytes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.common.disk import InlineDiskExecutor
from broker.common.errors import OffsetOutOfRangeError
from broker.common.tasks import BackgroundTasks
from broker.log.transaction_index import AbortedTransaction
from broker.records.compression import CompressionType
from broker.records.memory_records_builder import records_batch
from broker.records.record_batch import RecordBatch, batches
from broker.tiering.errors import RemoteResourceNotFoundError, RemoteStorageError
from broker.tiering.object_names import ObjectKind, ObjectNames
from broker.tiering.remote_index_cache import RemoteIndexCache
from broker.tiering.remote_log_chunks import RemoteLogChunks
from broker.tiering.remote_log_reader import SEGMENTS_PER_TURN, RemoteLogReader, RemoteRead, SegmentPart
from tests.support.sim_disk import SimFileSystem

from .storage_world import Aborted, Bucket, Made, batch, make_segment, storage_manager

NAMES = ObjectNames("cluster")
SIZE = len(batch(0))  # of a batch of one record
MUCH = 1 << 20


class World:
    """Remote segments, and what is asked about their partition."""

    def __init__(self, *, chunk_bytes: int = 1000) -> None:
        self.remote_disk = SimFileSystem()
        self.bucket = Bucket()
        self.storage = storage_manager(self.bucket, self.remote_disk)
        self.chunk_bytes = chunk_bytes
        self.made: list[Made] = []
        self.ends: dict[UUID, int] = {}  # of segments that go on with what another log has
        self.local: list[AbortedTransaction] = []
        self.local_asked: list[tuple[int, int]] = []

    def add(self, *made: bytearray, aborted: Sequence[Aborted] = (), interval: int = 0, end: int | None = None) -> Made:
        """A segment; `end` is its last offset when there is no record of it."""
        number = len(self.made) + 1
        one = make_segment(
            self.remote_disk,
            number,
            made,
            aborted=aborted,
            interval=interval,
            directory=Path(f"/log-{number}"),
        )
        if end is not None:
            one = one._replace(segment=replace(one.segment, end_offset=end))
        self.made.append(one)
        return one

    async def segment_at(self, offset: int) -> SegmentPart | None:
        for each in self.made:
            if each.segment.start_offset <= offset <= each.segment.end_offset:
                end_offset = self.ends.get(each.segment.segment_id, each.segment.next_offset)
                return SegmentPart(each.segment, end_offset) if offset < end_offset else None
        return None

    def local_aborted(self, fetch_offset: int, upper_bound_offset: int) -> Iterable[AbortedTransaction]:
        self.local_asked.append((fetch_offset, upper_bound_offset))
        return self.local

    @contextlib.asynccontextmanager
    async def reader(self) -> AsyncIterator[RemoteLogReader]:
        disk, cache_disk = InlineDiskExecutor(), SimFileSystem()
        async with self.storage.running(), BackgroundTasks("test") as tasks:
            for each in self.made:
                await self.storage.copy_log_segment_data(each.segment, each.data)
            indexes = RemoteIndexCache(Path("/logs"), MUCH, self.storage, cache_disk, disk)
            chunks = RemoteLogChunks(self.storage, tasks, chunk_bytes=self.chunk_bytes)
            async with indexes.running():
                yield RemoteLogReader(indexes, chunks, disk)

    async def read(
        self,
        reader: RemoteLogReader,
        offset: int,
        size_max: int = MUCH,
        upper_bound: int = MUCH,
        *,
        whole_first: bool = True,
    ) -> bytes:
        found = await reader.read(
            self, offset, size_max, upper_bound, min_one_message=whole_first, only_committed=False
        )
        assert found.aborted is None
        return found.records

    async def aborted(
        self, reader: RemoteLogReader, offset: int, size_max: int = MUCH, upper_bound: int = MUCH
    ) -> list[int]:
        """The producers whose transactions are told of."""
        found = await reader.read(self, offset, size_max, upper_bound, min_one_message=True, only_committed=True)
        assert found.records and found.aborted is not None
        return [each.producer_id for each in found.aborted]


async def test_a_read_begins_with_the_batch_of_the_offset() -> None:
    world = World()
    made = [batch(10), batch(11, count=3), batch(20), batch(21)]
    world.add(*made)
    async with world.reader() as reader:
        for offset, first in ((10, 0), (11, 1), (12, 1), (13, 1), (14, 2), (19, 2), (20, 2), (21, 3)):
            assert await world.read(reader, offset) == b"".join(made[first:]), offset


async def test_34_a_first_batch_that_is_too_large_comes_whole_or_not_at_all() -> None:
    world = World()
    large = batch(0, size=10_000)
    world.add(large, batch(1))
    async with world.reader() as reader:
        assert await world.read(reader, 0, 1024) == large
        assert await world.read(reader, 0, 1024, whole_first=False) == b""
        assert await world.read(reader, 0, len(large), whole_first=False) == large
        assert await world.read(reader, 0, len(large) - 1, whole_first=False) == b""


async def test_a_read_is_of_whole_batches_within_its_size() -> None:
    world = World()
    made = [batch(offset) for offset in range(5)]
    world.add(*made)
    async with world.reader() as reader:
        for size_max, count in ((0, 1), (1, 1), (SIZE, 1), (2 * SIZE - 1, 1), (2 * SIZE, 2), (3 * SIZE + 5, 3)):
            assert await world.read(reader, 1, size_max) == b"".join(made[1 : 1 + count]), size_max


async def test_35_a_read_does_not_cross_segments() -> None:
    world = World()
    first, second = [batch(0), batch(1)], [batch(2), batch(3)]
    world.add(*first)
    world.add(*second)
    async with world.reader() as reader:
        assert await world.read(reader, 0) == b"".join(first)
        assert await world.read(reader, 1) == first[1]
        assert await world.read(reader, 2) == b"".join(second)


async def test_35_the_index_tells_where_to_read() -> None:
    world = World(chunk_bytes=2 * SIZE)
    world.add(*(batch(offset) for offset in range(20)))
    async with world.reader() as reader:
        assert await world.read(reader, 15, SIZE) == batch(15)
        assert world.bucket.inner.ranges == [(14 * SIZE, 16 * SIZE - 1)]


async def test_without_index_entries_batches_are_looked_through() -> None:
    world = World()
    world.add(*(batch(offset) for offset in range(20)), interval=MUCH)
    async with world.reader() as reader:
        assert await world.read(reader, 15, SIZE) == batch(15)


async def test_what_is_not_in_a_segment_is_in_the_next() -> None:
    world = World()
    world.add(batch(0), end=4)  # 1 to 4 were compacted away before the topic was tiered
    world.add(batch(5))
    async with world.reader() as reader:
        assert await world.read(reader, 3) == batch(5)
        del world.made[1]
        found = await reader.read(world, 3, MUCH, MUCH, min_one_message=True, only_committed=True)
        assert found == RemoteRead(next_offset=5)
        with pytest.raises(OffsetOutOfRangeError, match="offset 5"):
            await world.read(reader, 5)


async def test_36_aborted_transactions_whose_markers_are_in_later_segments() -> None:
    world = World()
    one = Aborted(1, 0, 5, 6)  # begins in the first segment, ends in the third
    world.add(batch(0), batch(1))
    world.add(batch(2), batch(3))
    world.add(batch(4), batch(5), aborted=[one])
    async with world.reader() as reader:
        assert await world.aborted(reader, 0) == [1]
        assert world.local_asked == []  # 6 is stable then: nothing later can matter
        assert await world.aborted(reader, 3) == [1]
        world.local = [AbortedTransaction(*one), AbortedTransaction(2, 1, 9, 10)]
        assert await world.aborted(reader, 4) == [1]


async def test_36_and_those_whose_markers_are_in_the_local_log() -> None:
    world = World()
    world.add(batch(0), batch(1))
    world.add(batch(2), batch(3), aborted=[Aborted(1, 0, 3, 1)])  # another one is open from 1 on
    world.local = [AbortedTransaction(1, 0, 3, 1), AbortedTransaction(2, 1, 9, 10)]  # overlaps with the second
    async with world.reader() as reader:
        assert await world.aborted(reader, 0) == [1, 2]
        assert world.local_asked == [(0, 2)]
        assert await world.aborted(reader, 2) == [1, 2]
        assert world.local_asked == [(0, 2), (2, 4)]


async def test_36_only_what_touches_the_records_that_are_returned() -> None:
    world = World()
    aborted = [Aborted(1, 0, 1, 2), Aborted(2, 2, 3, 4), Aborted(3, 4, 5, 6)]
    world.add(*(batch(offset) for offset in range(6)), aborted=aborted)
    async with world.reader() as reader:
        assert await world.aborted(reader, 0) == [1, 2, 3]
        assert await world.aborted(reader, 2) == [2, 3]
        assert await world.aborted(reader, 0, SIZE) == [1]
        assert await world.aborted(reader, 2, SIZE) == [2]


async def test_a_read_ends_below_what_its_reader_may_see() -> None:
    world = World()
    made = [batch(0), batch(1, count=2), batch(3)]
    world.add(*made)
    async with world.reader() as reader:
        for upper_bound, count in ((4, 3), (3, 2), (2, 1), (1, 1), (0, 0)):
            assert await world.read(reader, 0, upper_bound=upper_bound) == b"".join(made[:count]), upper_bound
        found = await reader.read(world, 3, MUCH, 3, min_one_message=True, only_committed=True)
        assert found == RemoteRead()  # not a reason to go on elsewhere


async def test_44_what_a_segment_has_of_another_log_is_not_read() -> None:
    """After an unclean election: the log goes on with other records from offset 2 on."""
    world = World()
    one = world.add(batch(0), batch(1), batch(2), batch(3))
    world.ends[one.segment.segment_id] = 2
    async with world.reader() as reader:
        assert await world.read(reader, 0) == batch(0) + batch(1)
        with pytest.raises(OffsetOutOfRangeError):
            await world.read(reader, 2)


async def test_44_after_it_comes_the_segment_that_the_log_goes_on_with() -> None:
    world = World()
    one = world.add(batch(0), batch(4), batch(5))  # 1 to 3 were compacted away; 2 and up are of another log
    world.ends[one.segment.segment_id] = 2
    async with world.reader() as reader:
        found = await reader.read(world, 1, MUCH, MUCH, min_one_message=True, only_committed=False)
        assert found == RemoteRead(next_offset=2)
        two = world.add(batch(2), batch(3))
        await world.storage.copy_log_segment_data(two.segment, two.data)
        world.made.reverse()  # the one that is in the epoch of the offset is found
        assert await world.read(reader, 1) == two.log


async def test_44_a_marker_of_another_log_ends_no_transaction() -> None:
    world = World()
    one = world.add(batch(0), batch(1), batch(2), aborted=[Aborted(1, 0, 2, 3)])
    world.local = [AbortedTransaction(1, 0, 7, 8)]
    async with world.reader() as reader:
        world.ends[one.segment.segment_id] = 2
        found = await reader.read(world, 0, MUCH, MUCH, min_one_message=True, only_committed=True)
        assert found.aborted == [AbortedTransaction(1, 0, 7, 8)]
        assert world.local_asked == [(0, 2)]


async def test_looking_through_many_segments_lets_others_run() -> None:
    world = World()
    for offset in range(2 * SEGMENTS_PER_TURN + 1):
        world.add(batch(offset))
    turns = []

    async def count_turns() -> None:
        while True:
            turns.append(len(turns))
            await asyncio.sleep(0)

    async with world.reader() as reader:
        await world.aborted(reader, 0)
        counting = asyncio.ensure_future(count_turns())
        await asyncio.sleep(0)
        before = len(turns)
        await world.aborted(reader, 0)
        assert len(turns) > before + 1
        counting.cancel()


async def test_segments_without_aborted_transactions_need_no_index() -> None:
    world = World()
    world.add(batch(0), batch(1))
    second = world.add(batch(2), batch(3))
    async with world.reader() as reader:
        for kind in (ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX):
            del world.bucket.objects[NAMES.name(second.segment, kind)]
        assert await world.aborted(reader, 0) == []
        assert world.local_asked == [(0, 2)]
        with pytest.raises(RemoteResourceNotFoundError):
            await world.read(reader, 2)


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.GZIP])
async def test_25_the_first_record_of_a_timestamp(compression: CompressionType) -> None:
    world = World()
    times = [[1000, 1005], [900, 1010], [1020, 1015]]
    made = [
        records_batch(
            *[(each, None, b"v") for each in pair],
            base_offset=10 + 2 * place,
            compression=compression,
            partition_leader_epoch=place,
        )
        for place, pair in enumerate(times)
    ]
    one = world.add(*made).segment
    async with world.reader() as reader:
        for timestamp, start, expected in (
            (0, 0, (1000, 10, 0)),
            (1000, 10, (1000, 10, 0)),
            (1001, 10, (1005, 11, 0)),
            (1005, 12, (1010, 13, 1)),
            (0, 12, (900, 12, 1)),
            (1011, 10, (1020, 14, 2)),
            (1012, 15, (1015, 15, 2)),
            (1016, 15, None),
            (1021, 10, None),
            (0, 16, None),
        ):
            found = await reader.find_offset_by_timestamp(one, timestamp, start)
            assert found == expected, (timestamp, start)


async def test_25_the_indexes_tell_where_to_look_for_a_timestamp() -> None:
    world = World(chunk_bytes=2 * SIZE)
    one = world.add(*(batch(offset, timestamp=1000 + offset) for offset in range(20))).segment
    async with world.reader() as reader:
        assert await reader.find_offset_by_timestamp(one, 1015, 0) == (1015, 15, -1)
        assert world.bucket.inner.ranges == [(14 * SIZE, 16 * SIZE - 1)]
        assert await reader.find_offset_by_timestamp(one, 0, 18) == (1018, 18, -1)
        assert world.bucket.inner.ranges[1:] == [(18 * SIZE, 20 * SIZE - 1)]


async def test_44_a_timestamp_of_another_log_is_not_found() -> None:
    """After an unclean election: the log goes on with other records from offset 12 on."""
    world = World(chunk_bytes=SIZE)
    one = world.add(*(batch(offset, timestamp=1000 + offset) for offset in range(10, 20))).segment
    async with world.reader() as reader:
        assert await reader.find_offset_by_timestamp(one, 1011, 10, 12) == (1011, 11, -1)
        assert await reader.find_offset_by_timestamp(one, 1012, 10) == (1012, 12, -1)
        world.bucket.inner.ranges.clear()
        assert await reader.find_offset_by_timestamp(one, 1012, 10, 12) is None
        assert await reader.find_offset_by_timestamp(one, 1019, 10, 12) is None
        assert all(position <= 9 * SIZE for position, _ in world.bucket.inner.ranges)


@pytest.mark.parametrize("position", [0, 8, 16, 20, 70, SIZE + 3, 2 * SIZE - 1])
async def test_wrong_bytes_are_told_and_not_kept(position: int) -> None:
    world = World()
    one = world.add(batch(0), batch(1), interval=MUCH)
    name = NAMES.name(one.segment, ObjectKind.LOG)
    async with world.reader() as reader:
        wrong = bytearray(one.log)
        wrong[position] ^= 0x7F
        world.bucket.objects[name] = bytes(wrong)
        with pytest.raises(RemoteStorageError, match=r"segment .* is corrupt at \d+"):
            await world.read(reader, 0)
        world.bucket.objects[name] = one.log
        assert await world.read(reader, 0) == one.log


async def test_a_record_that_cannot_be_decoded_is_told() -> None:
    world = World()
    one = world.add(batch(0))
    name = NAMES.name(one.segment, ObjectKind.LOG)
    async with world.reader() as reader:
        world.bucket.objects[name] = one.log[:-1] + b"\xff"
        with pytest.raises(RemoteStorageError, match="is corrupt at 0"):
            await reader.find_offset_by_timestamp(one.segment, 0, 0)
        world.bucket.objects[name] = one.log
        assert await reader.find_offset_by_timestamp(one.segment, 0, 0) == (1000, 0, -1)


async def test_a_log_that_is_cut_within_a_header_is_told() -> None:
    world = World()
    one = world.add(batch(0), batch(1), interval=MUCH)
    cut = replace(one.segment, segment_size_in_bytes=SIZE + 20)
    async with world.reader() as reader:
        world.made[0] = one._replace(segment=cut)
        with pytest.raises(RemoteStorageError, match=f"corrupt at {SIZE}: 20 bytes are no batch"):
            await world.read(reader, 1)


_SHAPES = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 300)), min_size=1, max_size=6),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60)
@given(shapes=_SHAPES, interval=st.sampled_from([0, 150, MUCH]), chunk=st.sampled_from([64, 333, 5000]), data=st.data())
def test_reads_are_those_of_one_long_list_of_batches(
    shapes: list[list[tuple[int, int, int]]], interval: int, chunk: int, data: st.DataObject
) -> None:
    """Segments of batches (gap before it, records, size of each), against looking through all of them."""
    world = World(chunk_bytes=chunk)
    offset, everything = 0, []
    for shape in shapes:
        made = []
        for gap, count, size in shape:
            made.append(batch(offset + gap, count=count, size=size))
            offset += gap + count
        everything.append(made)
        world.add(*made, interval=interval)
    wanted = data.draw(st.integers(0, offset))
    size_max = data.draw(st.integers(0, 2000))
    whole_first = data.draw(st.booleans())

    async def story() -> bytes | None:
        async with world.reader() as reader:
            try:
                return await world.read(reader, wanted, size_max, whole_first=whole_first)
            except OffsetOutOfRangeError:
                return None

    assert asyncio.run(story()) == _expected(world, everything, wanted, size_max, whole_first)


def _expected(
    world: World, everything: list[list[bytearray]], wanted: int, size_max: int, whole_first: bool
) -> bytes | None:
    for made, segment in zip(everything, (each.segment for each in world.made), strict=True):
        if not segment.start_offset <= wanted <= segment.end_offset:
            continue
        rest = [each for each in made if RecordBatch.parse(each).last_offset >= wanted]
        if len(rest[0]) > size_max:
            return bytes(rest[0]) if whole_first else b""
        fitting = b"".join(rest)[:size_max]
        return b"".join(bytes(each.buffer) for each in batches(fitting))
    return None
