"""BatchReader: whole batches and their records, in chunks of the file and slices of the loop."""

import asyncio
from typing import Any

import pytest

from broker.common.errors import CorruptMessageError
from broker.log.cleaner import batch_reader
from broker.log.cleaner.batch_reader import SLICE_COST, BatchReader
from broker.log.cleaner.io_throttle import IoThrottle
from broker.records.compression import CompressionType
from broker.records.record_batch import RecordBatch
from tests.unit.log.cleaner.cleaner_world import CleanerWorld


class CountedDisk:
    """Runs at once, and counts."""

    def __init__(self) -> None:
        self.jobs: list[str] = []

    async def run(self, function: Any, *arguments: Any, **keywords: Any) -> Any:
        self.jobs.append(function.__name__)
        return function(*arguments, **keywords)

    def submit(self, function: Any, *arguments: Any, **keywords: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None: ...


def make() -> tuple[BatchReader, CountedDisk]:
    disk = CountedDisk()
    return BatchReader(disk, IoThrottle(lambda: float("inf"))), disk


def world(*sizes: int) -> CleanerWorld:
    filled = CleanerWorld()
    for size in sizes:
        filled.put(("k", "v" * size))
    return filled


async def read(reader: BatchReader, filled: CleanerWorld, position: int = 0, end_offset: int = 100) -> list[int]:
    segment = filled.log.segments.first
    return [batch.base_offset async for batch in reader.batches(segment, end_offset, position)]


@pytest.mark.parametrize("chunk", [1, 70, 100, 1000, 1 << 20])
async def test_every_batch_once_whatever_the_chunks(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_reader, "CHUNK_BYTES", max(chunk, 12))
    filled = world(10, 500, 3, 0, 200)
    reader, disk = make()
    assert await read(reader, filled) == [0, 1, 2, 3, 4]
    assert reader.bytes_read >= filled.log.segments.first.size_bytes
    assert set(disk.jobs) == {"read_at"}
    second = filled.log.segments.first.position_of(1)
    assert second is not None
    assert await read(reader, filled, second) == [1, 2, 3, 4]


async def test_what_is_not_whole_or_valid_or_in_order_is_corrupt() -> None:
    for change in (lambda content: content[:-1], lambda content: content[:-1] + b"\xff", lambda content: bytes(200)):
        filled = world(10, 20)
        path = filled.path(0, ".log")
        filled.disk.overwrite(path, change(filled.disk.read(path)))
        with pytest.raises(CorruptMessageError):
            await read(make()[0], filled)
    with pytest.raises(CorruptMessageError, match="at 1, position"):
        await read(make()[0], world(10, 20), end_offset=1)


async def test_an_absurd_length_is_corrupt_and_not_read() -> None:
    filled = world(10, 20)
    path = filled.path(0, ".log")
    content = bytearray(filled.disk.read(path))
    content[8:12] = (2**31 - 1).to_bytes(4, "big")
    filled.disk.overwrite(path, bytes(content))
    reader, _ = make()
    with pytest.raises(CorruptMessageError):
        await read(reader, filled)
    assert reader.bytes_read <= len(content)


@pytest.mark.parametrize("codec", list(CompressionType))
async def test_records_come_in_slices_and_large_payloads_are_unpacked_elsewhere(codec: CompressionType) -> None:
    filled = CleanerWorld()
    filled.put(*[(f"key{number}", str(number**5)) for number in range(1000)], compression=codec)
    reader, disk = make()
    (found,) = filled.batches()
    parts = [part async for part in reader.records(RecordBatch.parse(bytes(found.buffer)))]
    assert [len(part) for part in parts] == [SLICE_COST] * (1000 // SLICE_COST)
    assert [record.offset for part in parts for record in part] == list(range(1000))
    assert disk.jobs == ([] if codec is CompressionType.NONE else ["decompress"])


async def test_others_have_their_turns() -> None:
    reader, _ = make()
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.ensure_future(count())
    for _ in range(10):
        await reader.spend(SLICE_COST // 2)
    other.cancel()
    assert turns == 5


async def test_what_is_read_is_throttled() -> None:
    spent: list[int] = []

    class Recorded(IoThrottle):
        async def spend(self, size: int) -> None:
            spent.append(size)

    filled = world(10, 20)
    reader = BatchReader(CountedDisk(), Recorded(lambda: 1.0))
    await read(reader, filled)
    assert sum(spent) == filled.log.segments.first.size_bytes
