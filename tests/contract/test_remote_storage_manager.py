"""RemoteStorageManager: the same promises from a store in memory, a directory and buckets of S3."""

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from broker.common.chance import Chance
from broker.common.disk import ThreadDiskExecutor
from broker.common.file_system import OsFileSystem, read_file
from broker.common.tasks import BackgroundTasks
from broker.log.transaction_index import AbortedTransaction
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.metrics.registry import MetricsRegistry
from broker.objectstore.objects import PartSizes
from broker.tiering.errors import RemoteResourceNotFoundError
from broker.tiering.object_remote_storage_manager import PIECE_BYTES
from broker.tiering.remote_index_cache import RemoteIndexCache
from broker.tiering.remote_log_chunks import RemoteLogChunks
from broker.tiering.remote_log_reader import RemoteLogReader, SegmentPart
from broker.tiering.remote_storage_context import RemoteStorageContext, RemoteStorageSettings
from broker.tiering.remote_storage_manager import IndexType, RemoteStorageManager, make_remote_storage_manager
from tests.contract.object_stores import S3
from tests.support.s3_server import BUCKET
from tests.unit.tiering.storage_world import EPOCHS, SNAPSHOT, Aborted, Bucket, Made, batch, make_segment

KINDS = ["memory", "directory", *(pytest.param(kind, marks=S3) for kind in ("seaweed", "moto"))]
SMALLEST_PARTS = PartSizes(part_size_bytes=5 << 20, parallel=2)  # that S3 takes


def settings_of(kind: str, request: pytest.FixtureRequest, directory: Path) -> RemoteStorageSettings:
    prefix = f"test-{uuid4().hex}/tiered"
    if kind in ("memory", "directory"):
        return RemoteStorageSettings("LocalTieredStorage", f"file://{directory}", prefix, part_sizes=SMALLEST_PARTS)
    s3 = request.getfixturevalue(kind).settings()
    return RemoteStorageSettings("S3RemoteStorageManager", f"s3://{BUCKET}", prefix, s3, part_sizes=SMALLEST_PARTS)


@pytest.fixture(params=KINDS)
async def manager(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RemoteStorageManager]:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    disk = ThreadDiskExecutor(1)
    made = make_remote_storage_manager(
        RemoteStorageContext(
            settings_of(request.param, request, bucket),
            "cluster",
            OsFileSystem(),
            disk,
            Chance(1),
            ObjectStoreMetrics(MetricsRegistry()),
            Bucket().open if request.param == "memory" else None,
        )
    )
    async with made.running():
        yield made
    disk.close()


def a_segment(directory: Path, number: int, *, size: int = 1000, aborted: bool = True) -> Made:
    transactions = [Aborted(9, 0, 2, 3)] if aborted else []
    batches = [batch(offset, size=size) for offset in range(3)]
    return make_segment(OsFileSystem(), number, batches, aborted=transactions, directory=directory / f"log-{number}")


async def fetched(manager: RemoteStorageManager, made: Made, start: int = 0, end: int | None = None) -> list[bytes]:
    return [piece async for piece in manager.fetch_log_segment(made.segment, start, end)]


async def test_a_segment_is_copied_read_and_deleted(manager: RemoteStorageManager, tmp_path: Path) -> None:
    one, other = a_segment(tmp_path, 1), a_segment(tmp_path, 2, aborted=False)
    for each in (one, other, one):  # again: its first answer was lost
        await manager.copy_log_segment_data(each.segment, each.data)
    assert await fetched(manager, one) == [one.log]
    assert await fetched(manager, one, 100, 199) == [one.log[100:200]]
    assert await fetched(manager, one, len(one.log) - 5, len(one.log) + 5) == [one.log[-5:]]
    disk = OsFileSystem()
    assert await manager.fetch_index(one.segment, IndexType.OFFSET) == read_file(disk, one.data.offset_index)
    assert await manager.fetch_index(one.segment, IndexType.TIMESTAMP) == read_file(disk, one.data.time_index)
    assert await manager.fetch_index(one.segment, IndexType.PRODUCER_SNAPSHOT) == SNAPSHOT
    assert await manager.fetch_index(one.segment, IndexType.LEADER_EPOCH) == EPOCHS
    assert len(await manager.fetch_index(one.segment, IndexType.TRANSACTION)) == 34
    with pytest.raises(RemoteResourceNotFoundError):
        await manager.fetch_index(other.segment, IndexType.TRANSACTION)
    for _ in range(2):
        await manager.delete_log_segment_data(one.segment)
        with pytest.raises(RemoteResourceNotFoundError):
            await fetched(manager, one)
        with pytest.raises(RemoteResourceNotFoundError):
            await manager.fetch_index(one.segment, IndexType.OFFSET)
    assert await fetched(manager, other) == [other.log]


async def test_a_large_log_goes_up_in_parts_and_comes_in_pieces(manager: RemoteStorageManager, tmp_path: Path) -> None:
    made = a_segment(tmp_path, 1, size=4 << 20)
    assert len(made.log) > 12 << 20
    await manager.copy_log_segment_data(made.segment, made.data)
    pieces = await fetched(manager, made)
    assert b"".join(pieces) == made.log
    assert [len(piece) for piece in pieces[:-1]] == [PIECE_BYTES] * 3


async def test_empty_indexes(manager: RemoteStorageManager, tmp_path: Path) -> None:
    made = make_segment(OsFileSystem(), 1, [batch(0)], directory=tmp_path / "log")
    empty = dataclasses.replace(made.data, leader_epoch_index=b"")
    await manager.copy_log_segment_data(made.segment, empty)
    assert await manager.fetch_index(made.segment, IndexType.OFFSET) == b""
    assert await manager.fetch_index(made.segment, IndexType.LEADER_EPOCH) == b""


class Partition:
    """What a reader asks about it."""

    def __init__(self, *made: Made) -> None:
        self._segments = [each.segment for each in made]

    async def segment_at(self, offset: int) -> SegmentPart | None:
        found = (each for each in self._segments if each.start_offset <= offset <= each.end_offset)
        return next((SegmentPart(each, each.next_offset) for each in found), None)

    def local_aborted(self, fetch_offset: int, upper_bound_offset: int) -> list[AbortedTransaction]:
        return [AbortedTransaction(9, 0, upper_bound_offset, upper_bound_offset)]


async def test_a_log_is_read_from_what_is_stored(manager: RemoteStorageManager, tmp_path: Path) -> None:
    batches = [batch(offset, size=1000, timestamp=5000 + offset) for offset in range(6)]
    disk, file_system = ThreadDiskExecutor(2), OsFileSystem()
    first = make_segment(file_system, 1, batches[:3], directory=tmp_path / "log")
    second = make_segment(file_system, 2, batches[3:], aborted=[Aborted(8, 1, 5, 0)], directory=tmp_path / "log")
    for each in (first, second):
        await manager.copy_log_segment_data(each.segment, each.data)
    partition = Partition(first, second)
    async with BackgroundTasks("test") as tasks:
        chunks = RemoteLogChunks(manager, tasks, chunk_bytes=1500)
        cache = RemoteIndexCache(tmp_path / "cache", 1 << 20, manager, file_system, disk)
        async with cache.running():
            reader = RemoteLogReader(cache, chunks, disk)
            offset, records = 0, bytearray()
            while offset < 6:
                found = await reader.read(partition, offset, 2500, 6, min_one_message=True, only_committed=True)
                records += found.records
                assert [each.producer_id for each in found.aborted or ()] == [8, 9]
                offset += len(found.records) // len(batches[0])
            assert records == b"".join(batches)
            assert await reader.find_offset_by_timestamp(second.segment, 5004, 0) == (5004, 4, -1)
            assert cache.downloads == 2
    disk.close()
