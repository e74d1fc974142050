"""Reading slices from a real log: segments, cold files, deleted ranges, and what is damaged."""

import asyncio

import pytest

from broker.common.chance import Chance
from broker.common.disk import InlineDiskExecutor
from broker.records.record_batch import batches
from broker.wal.objects.wal_slice import ReservationToken, SliceReadError, WalSlice
from broker.wal.upload.partition_uploads import Reservation
from broker.wal.upload.slice_reader import BREATHE_SECONDS, RangeDeletedError, SliceReader
from broker.wal.upload.upload_queue import SliceRead
from tests.support.tiered_partition import tier
from tests.unit.log.log_world import LogWorld
from tests.unit.wal.wal_world import FOO


class Reading:
    """A log, and a reader whose visits to the disk are counted."""

    def __init__(self, **config: object) -> None:
        self.world = LogWorld(**config)
        self.visits = 0
        self.cut_bytes = 0
        reading = self

        class Disk(InlineDiskExecutor):
            async def run(self, function, *args, **kwargs):  # type: ignore[no-untyped-def]
                reading.visits += 1
                data = await super().run(function, *args, **kwargs)
                return data[: len(data) - reading.cut_bytes]

        self.reader = SliceReader(Disk(), Chance(1).uuid)

    async def read(
        self, start: int = 0, upper: int | None = None, size_max: int = 1 << 20, room: int | None = None
    ) -> WalSlice | None:
        token = ReservationToken(5, 0, 1)
        reservation = Reservation(FOO, token, start, starts_run=True, first_dirty_ms=0)
        end = self.world.log.log_end_offset if upper is None else upper
        return await self.reader.read(self.world.log, SliceRead(reservation, start, end, size_max, room))

    async def offsets(self, *args: int, **keywords: int) -> tuple[int, int]:
        built = await self.read(*args, **keywords)
        assert built is not None
        return built.start_offset, built.end_offset


async def test_whole_batches_from_where_the_range_begins_to_the_end() -> None:
    reading = Reading()
    for count in (2, 3, 1):
        reading.world.append(count, epoch=5)
    assert await reading.offsets() == (0, 5)
    assert await reading.offsets(2) == (2, 5)
    assert await reading.offsets(0, 5) == (0, 4)  # appended since, and not of this range
    assert await reading.offsets(3) == (2, 5)  # a high watermark within a batch
    built = await reading.read()
    assert built is not None
    assert built.size == reading.world.log.size_bytes
    assert [batch.base_offset for batch in batches(built.records)] == [0, 2, 5]
    assert reading.visits == 0


async def test_17_a_slice_ends_with_its_segment() -> None:
    reading = Reading(segment_bytes=200)
    for _ in range(6):
        reading.world.append(epoch=5)
    assert reading.world.log.segments.base_offsets == [0, 2, 4]
    assert [await reading.offsets(start) for start in (0, 2, 4)] == [(0, 1), (2, 3), (4, 5)]


async def test_a_batch_that_has_no_room_is_not_even_read() -> None:
    reading = Reading()
    reading.world.append(size=1000, epoch=5)
    reading.world.disk.is_cached = False
    assert await reading.read(room=500, size_max=500) is None
    assert reading.visits == 0
    assert await reading.offsets(size_max=500) == (0, 0)  # alone, whatever its size
    assert reading.visits == 1  # not in the page cache


async def test_what_is_deleted_is_told_apart_from_what_is_damaged() -> None:
    reading = Reading()
    for _ in range(4):
        reading.world.append(epoch=5)
    reading.world.log.maybe_increment_log_start_offset(2, "test")
    with pytest.raises(RangeDeletedError):
        await reading.read(0)
    with pytest.raises(SliceReadError, match="Nothing of foo-2 at 4"):
        await reading.read(4)
    with pytest.raises(SliceReadError, match="upto 4"):
        await reading.read(9)


async def test_what_has_left_the_disk_for_remote_storage_is_as_good_as_deleted() -> None:
    reading = Reading(tiered=True)
    for _ in range(4):
        reading.world.append(epoch=5)
    reading.world.log.update_high_watermark(4)
    tier(reading.world.log, 2)
    with pytest.raises(RangeDeletedError, match="starts here at 2"):
        await reading.read(1)
    assert await reading.offsets(2) == (2, 3)


async def test_a_disk_that_fails_is_a_slice_that_cannot_be_read() -> None:
    reading = Reading()
    reading.world.append(epoch=5)
    reading.world.disk.is_cached = False
    reading.world.disk.crash(Chance(1))
    with pytest.raises(SliceReadError):
        await reading.read()


async def test_a_file_that_is_cut_while_it_is_read_gives_no_slice() -> None:
    reading = Reading()
    reading.world.append(epoch=5)
    reading.world.append(epoch=5)
    reading.world.disk.is_cached = False
    reading.cut_bytes = 1
    with pytest.raises(SliceReadError, match="was cut to"):
        await reading.read()


async def test_a_batch_of_a_later_epoch_is_none_of_the_leaders() -> None:
    reading = Reading()
    reading.world.append(epoch=6)
    with pytest.raises(SliceReadError, match="epoch 6"):
        await reading.read()


async def test_a_reader_of_many_slices_gives_way() -> None:
    reading = Reading()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(others())
    await asyncio.sleep(0)
    await reading.reader.breathe()
    loop = asyncio.get_running_loop()
    began = turns
    await reading.reader.breathe()
    assert turns == began
    until = loop.time() + 2 * BREATHE_SECONDS
    while loop.time() < until:
        pass
    await reading.reader.breathe()
    assert turns > began
    task.cancel()
