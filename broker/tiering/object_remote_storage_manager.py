"""ObjectRemoteStorageManager: remote segments as objects in one bucket, whatever kind it is."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar, Final

from broker.common.errors import StorageFailure
from broker.config.remote_log_settings import STORAGE_PREFIX
from broker.config.setting import ConfigError
from broker.objectstore.deadline import DeadlineObjectStore
from broker.objectstore.errors import NotFound, ObjectStoreError
from broker.objectstore.file_region import FileRegion
from broker.objectstore.object_store import ObjectStore
from broker.objectstore.object_store_url import dressed, parse_bucket_url
from broker.objectstore.objects import DELETE_MANY_MAX, ObjectInfo
from broker.tiering.errors import RemoteResourceNotFoundError, RemoteStorageError
from broker.tiering.object_names import ObjectKind, ObjectNames
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata
from broker.tiering.remote_storage_context import RemoteStorageContext
from broker.tiering.remote_storage_manager import (
    IndexType,
    LogSegmentData,
    PartitionDirectory,
    RemoteStorageManager,
)

PIECE_BYTES: Final = 4 << 20  # of a log at a time: large enough that the way to the bucket is a small part of it
PARTS_AT_ONCE: Final = 4  # of logs that go up, in memory: several partitions take turns
OBJECTS_AT_ONCE: Final = 100  # of a listing, looked at before others may run

KIND_OF_INDEX: Final = {
    IndexType.OFFSET: ObjectKind.OFFSET_INDEX,
    IndexType.TIMESTAMP: ObjectKind.TIME_INDEX,
    IndexType.PRODUCER_SNAPSHOT: ObjectKind.PRODUCER_SNAPSHOT,
    IndexType.TRANSACTION: ObjectKind.TRANSACTION_INDEX,
    IndexType.LEADER_EPOCH: ObjectKind.LEADER_EPOCHS,
}


class ObjectRemoteStorageManager(RemoteStorageManager):
    """Six objects a segment at most.  A large log goes up in parts, few of them in memory whatever is copied at
    once; it is there whole or not at all."""

    SCHEME: ClassVar[str]  # of the bucket's URL

    def __init__(self, context: RemoteStorageContext) -> None:
        settings = context.settings
        try:
            url = parse_bucket_url(settings.bucket)
        except ValueError as error:
            raise ConfigError(f"{STORAGE_PREFIX}bucket: {error}") from error
        if url.scheme != self.SCHEME:
            raise ConfigError(
                f"{STORAGE_PREFIX}bucket={url} is no {self.SCHEME} bucket, as {type(self).__name__} needs"
            )
        try:
            self._names = ObjectNames(context.cluster_id, settings.key_prefix)
        except ValueError as error:
            raise ConfigError(f"{STORAGE_PREFIX}key.prefix: {error}") from error
        self.bucket = str(url)
        self._context = context
        self._store: ObjectStore | None = None
        self._parts = asyncio.Semaphore(PARTS_AT_ONCE)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        settings = self._context.settings
        try:
            bare = await self._context.open(self.bucket)
        except ValueError as error:
            raise ConfigError(f"{STORAGE_PREFIX}bucket: {error}") from error
        timed = DeadlineObjectStore(bare, write_ms=settings.upload_timeout_ms, read_ms=settings.fetch_timeout_ms)
        self._store = dressed(timed, self._context.chance, self._context.metrics, settings.retries).store
        try:
            yield
        finally:
            store, self._store = self._store, None
            await store.close()

    async def copy_log_segment_data(self, segment: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        with _told_of(segment):
            store = self._opened()
            await self._put_file(segment, ObjectKind.OFFSET_INDEX, data.offset_index)
            await self._put_file(segment, ObjectKind.TIME_INDEX, data.time_index)
            if data.transaction_index is not None:
                await self._put_file(segment, ObjectKind.TRANSACTION_INDEX, data.transaction_index)
            await self._put_file(segment, ObjectKind.PRODUCER_SNAPSHOT, data.producer_snapshot_index)
            await store.put(self._names.name(segment, ObjectKind.LEADER_EPOCHS), data.leader_epoch_index)
            await self._put_file(segment, ObjectKind.LOG, data.log_segment, segment.segment_size_in_bytes)
        return None

    async def fetch_log_segment(
        self, segment: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> AsyncIterator[bytes]:
        name, end = self._names.name(segment, ObjectKind.LOG), segment.segment_size_in_bytes
        if end_position is not None:
            end = min(end, end_position + 1)
        for position in range(start_position, end, PIECE_BYTES):
            with _told_of(segment):
                piece = await self._opened().get_range(name, position, min(PIECE_BYTES, end - position))
            yield piece

    async def fetch_index(self, segment: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        name = self._names.name(segment, KIND_OF_INDEX[index_type])
        with _told_of(segment):
            store = self._opened()
            size_bytes = (await store.head(name)).size_bytes
            return await store.get_range(name, 0, size_bytes) if size_bytes else b""

    async def delete_log_segment_data(self, segment: RemoteLogSegmentMetadata) -> None:
        with _told_of(segment):
            await self._opened().delete_many([self._names.name(segment, kind) for kind in ObjectKind])

    async def partition_directories(self) -> Sequence[PartitionDirectory]:
        found = []
        with _told_of(self._names.cluster_prefix):
            async for folder in self._opened().list_folders(self._names.cluster_prefix):
                with contextlib.suppress(ValueError):  # nobody's we know
                    found.append(PartitionDirectory(folder, *self._names.parse_folder(folder)))
        return found

    async def newest_ms(self, directory: PartitionDirectory) -> int | None:
        newest_ms: int | None = None
        with _told_of(directory.name):
            async for each in self._listed(directory.name):
                newest_ms = max(newest_ms or 0, each.last_modified_ms)
        return newest_ms

    async def delete_partition_directory(self, directory: PartitionDirectory) -> int:
        deleted, batch = 0, list[str]()
        with _told_of(directory.name):
            async for each in self._listed(directory.name):
                batch.append(each.key)
                if len(batch) == DELETE_MANY_MAX:
                    await self._opened().delete_many(batch)
                    deleted, batch = deleted + len(batch), []
            if batch:
                await self._opened().delete_many(batch)
        return deleted + len(batch)

    async def _listed(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Objects of remote segments; what has another name is nobody's we know."""
        number = 0
        async for each in self._opened().list(prefix):
            number += 1
            if number % OBJECTS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if self._names.is_name(each.key):
                yield each

    def _opened(self) -> ObjectStore:
        assert self._store is not None, "not running"
        return self._store

    async def _put_file(
        self, segment: RemoteLogSegmentMetadata, kind: ObjectKind, path: Path, size_bytes: int | None = None
    ) -> None:
        """Its first `size_bytes`, or all of it."""
        disk = self._context.disk
        file = self._context.file_system.open(path)
        try:
            region = FileRegion(file, 0, file.size() if size_bytes is None else size_bytes, disk)
            name, sizes = self._names.name(segment, kind), self._context.settings.part_sizes
            await self._opened().put_file(name, region, sizes, self._parts)
        finally:
            file.close()


@contextlib.contextmanager
def _told_of(what: RemoteLogSegmentMetadata | str) -> Iterator[None]:
    """Errors of stores and disks, as this layer tells them; `what` is the beginning of names where it is no segment."""
    try:
        yield
    except NotFound as error:
        raise RemoteResourceNotFoundError(f"{_text(what)}: {error}") from error
    except (ObjectStoreError, StorageFailure, FileNotFoundError) as error:
        raise RemoteStorageError(f"{_text(what)}: {error}") from error


def _text(what: RemoteLogSegmentMetadata | str) -> str:
    if isinstance(what, str):
        return f"objects below {what}"
    return f"remote segment {what.segment_id} of {what.partition.topic_partition} at {what.start_offset}"
