"""Segments with their files, and a storage manager over a store in memory."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from broker.common.buffers import Buffer
from broker.common.chance import Chance
from broker.common.disk import DiskExecutor, InlineDiskExecutor
from broker.common.file_system import FileSystem, read_file
from broker.log.log_segment import LogSegment
from broker.log.producer_state_entry import CompletedTxn
from broker.log.segment_cache import SegmentCache
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.metrics.registry import MetricsRegistry
from broker.objectstore.failing_object_store import FailingObjectStore
from broker.objectstore.object_store import ObjectStore
from broker.objectstore.retrying import RetryPolicy
from broker.records.memory_records_builder import records_batch
from broker.records.record_batch import RecordBatch
from broker.tiering.local_tiered_storage import LocalTieredStorage
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata
from broker.tiering.remote_storage_context import RemoteStorageContext, RemoteStorageSettings
from broker.tiering.remote_storage_manager import LogSegmentData
from tests.support.memory_object_store import MemoryObjectStore
from tests.support.sim_disk import SimFileSystem

from .segment_world import FINISHED, segment

DIRECTORY = Path("/log/topic-0")
BUCKET = "file:///bucket"
EPOCHS = b"0\n1\n0 0\n"
SNAPSHOT = b"a snapshot"


class Made(NamedTuple):
    """A closed segment: what is told of it, its files, and the bytes of its log."""

    segment: RemoteLogSegmentMetadata
    data: LogSegmentData
    log: bytes


class Aborted(NamedTuple):
    """A transaction whose ABORT marker is the last record of the segment it is given with."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def batch(offset: int, *, count: int = 1, size: int = 10, timestamp: int = 1000) -> bytearray:
    """Records one millisecond apart."""
    entries = [(timestamp + place, b"k", b"v" * size) for place in range(count)]
    return records_batch(*entries, base_offset=offset)


def make_segment(
    disk: FileSystem,
    number: int,
    batches: Sequence[bytearray],
    *,
    aborted: Sequence[Aborted] = (),
    interval: int = 0,
    directory: Path = DIRECTORY,
) -> Made:
    """The files of a segment of these batches, as the log makes them; with `interval` 0 each batch but the first has
    an entry in the offset index."""
    disk.make_directories(directory)
    parsed = [RecordBatch.parse(each) for each in batches]
    local = LogSegment.create(
        disk,
        SegmentCache(segments_max=10),
        directory,
        parsed[0].base_offset,
        index_size_max=100_000,
        created_ms=0,
        index_interval_bytes=interval,
    )
    buffers: list[Buffer] = list(batches)
    local.write(buffers)
    local.accept(parsed)
    for each in aborted:
        completed = CompletedTxn(each.producer_id, each.first_offset, each.last_offset, is_aborted=True)
        local.add_aborted(completed, each.last_stable_offset)
    local.seal()
    next_offset = parsed[-1].next_offset
    snapshot = directory / f"{next_offset:020d}.snapshot"
    file = disk.open(snapshot, create=True)
    file.write_at(0, [SNAPSHOT])
    file.close()
    data = LogSegmentData(
        log_segment=local.records.path,
        offset_index=local.offset_index.path,
        time_index=local.time_index.path,
        transaction_index=local.transaction_index.path if aborted else None,
        producer_snapshot_index=snapshot,
        leader_epoch_index=EPOCHS,
    )
    told = segment(
        number,
        parsed[0].base_offset,
        next_offset - 1,
        state=FINISHED,
        size=local.size_bytes,
        max_timestamp_ms=local.largest_timestamp,
    )
    local.close()
    return Made(dataclasses.replace(told, is_txn_index_empty=not aborted), data, read_file(disk, local.records.path))


class RecordingStore(MemoryObjectStore):
    """`ranges`: first and last byte of what was read of logs."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ranges: list[tuple[int, int]] = []

    async def get_range(self, key: str, position: int, size_bytes: int) -> bytes:
        if key.endswith(".log"):
            self.ranges.append((position, position + size_bytes - 1))
        return await super().get_range(key, position, size_bytes)


class Bucket:
    """One store in memory; `failing` makes it fail, `inner` is what is in it."""

    def __init__(self) -> None:
        self.inner = RecordingStore(BUCKET)
        self.failing = FailingObjectStore(self.inner, Chance(1))

    async def open(self, _: str) -> ObjectStore:
        return self.failing

    @property
    def objects(self) -> dict[str, bytes]:
        return self.inner.objects


def settings(**changes: object) -> RemoteStorageSettings:
    one = RemoteStorageSettings("LocalTieredStorage", BUCKET, retries=RetryPolicy(attempts_max=2))
    return dataclasses.replace(one, **changes)  # type: ignore[arg-type]


def context(
    bucket: Bucket | None,
    file_system: FileSystem | None = None,
    *,
    disk: DiskExecutor | None = None,
    storage_settings: RemoteStorageSettings | None = None,
) -> RemoteStorageContext:
    return RemoteStorageContext(
        storage_settings or settings(),
        "cluster",
        file_system or SimFileSystem(),
        disk or InlineDiskExecutor(),
        Chance(1),
        ObjectStoreMetrics(MetricsRegistry()),
        None if bucket is None else bucket.open,
    )


def storage_manager(
    bucket: Bucket, file_system: FileSystem, storage_settings: RemoteStorageSettings | None = None
) -> LocalTieredStorage:
    return LocalTieredStorage(context(bucket, file_system, storage_settings=storage_settings))
