"""RemoteIndexCache: indexes of remote segments on the local disk (Kafka's class of that name)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog

from broker.common.disk import DiskExecutor
from broker.common.errors import StorageFailure
from broker.common.file_system import FileSystem
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.log.abstract_index import CorruptIndexError
from broker.log.log_file_names import DELETED_SUFFIX, REMOTE_INDEX_CACHE_DIRECTORY
from broker.tiering.errors import RemoteResourceNotFoundError, RemoteStorageError, reading_remote_storage
from broker.tiering.remote_index_files import (
    IndexFiles,
    RemoteIndexes,
    find_files,
    index_files,
    load_files,
    remove_files,
    write_files,
)
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata
from broker.tiering.remote_storage_manager import IndexType, RemoteStorageManager
from broker.tiering.single_flight import SingleFlight

log = structlog.get_logger(__name__)

MEMORY_MAX_BYTES: Final = 64 << 20  # a segment of 1 GiB has indexes of 5 MiB: those in use, and few others


class RemoteIndexCache:
    """Files of many segments, of which those used last are in memory too.  What was unused for longest goes first.

    A segment's id is all that tells its indexes apart, and they never change: a segment that is deleted needs no word
    here, its indexes age.  Many who want the same ones cause one download.  The newest ones stay even if they alone
    are larger than the limit.
    """

    def __init__(
        self,
        log_directory: Path,
        size_max_bytes: int,
        storage: RemoteStorageManager,
        file_system: FileSystem,
        disk: DiskExecutor,
        *,
        memory_max_bytes: int = MEMORY_MAX_BYTES,
    ) -> None:
        """`size_max_bytes` is `remote.log.index.file.cache.total.size.bytes`."""
        self._directory = log_directory / REMOTE_INDEX_CACHE_DIRECTORY
        self._size_max_bytes = size_max_bytes
        self._memory_max_bytes = memory_max_bytes
        self._storage = storage
        self._file_system = file_system
        self._disk = disk
        self._tasks = BackgroundTasks("remote-index-cache")
        self._flights: SingleFlight[UUID, RemoteIndexes] = SingleFlight(self._tasks)
        self._files: dict[UUID, IndexFiles] = {}  # the one used longest ago comes first; so below
        self._loaded: dict[UUID, tuple[int, RemoteIndexes]] = {}
        self.size_bytes = 0
        self.memory_bytes = 0
        self.downloads = 0  # segments whose indexes were fetched from remote storage
        self.corruptions = 0  # files that were not what they had been

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Takes over what an earlier run left, and leaves the files to the next one.  StorageFailure."""
        for segment_id, files in await self._disk.run(self._find):
            self._keep_files(segment_id, files)
        async with self._tasks:
            self._evict()
            yield

    async def indexes(self, segment: RemoteLogSegmentMetadata) -> RemoteIndexes:
        """Those of a segment, loaded.  They can be used as long as one likes, whatever becomes of the files.

        RemoteStorageError, also when what is stored cannot be the segment's; StorageFailure when the disk is full.
        """
        found = self._loaded.pop(segment.segment_id, None)
        if found is not None:
            self._loaded[segment.segment_id] = found
            self._touch(segment.segment_id)
            return found[1]
        return await self._flights.run(segment.segment_id, lambda: self._obtain(segment))

    def resize(self, size_max_bytes: int) -> None:
        """The limit is another one from now on."""
        self._size_max_bytes = size_max_bytes
        self._evict()

    def follow(self, config: ConfigHolder[BrokerConfig]) -> None:
        """The setting may change while the broker runs."""
        config.on_change(lambda _, changed: self.resize(changed.remote_log_index_file_cache_total_size_bytes))

    def remove(self, segment_ids: Iterable[UUID]) -> None:
        """A partition is deleted.  Indexes that are being fetched stay, and age."""
        for segment_id in segment_ids:
            if segment_id in self._files and segment_id not in self._flights:
                self._drop(segment_id)

    async def _obtain(self, segment: RemoteLogSegmentMetadata) -> RemoteIndexes:
        """While it runs the segment is in flight, and nobody else touches its files."""
        segment_id = segment.segment_id
        if segment_id in self._files:
            self._touch(segment_id)
            try:
                return self._keep_loaded(segment, await self._load(self._files[segment_id], segment))
            except CorruptIndexError as error:
                self.corruptions += 1
                log.warning("remote_index_corrupt", error=str(error))
                await self._remove(self._forget(segment_id).paths(self._directory))
        with reading_remote_storage(f"an index of remote segment {segment_id}"):
            contents = await self._download(segment)
        files = index_files(segment, contents)
        try:
            await self._disk.run(write_files, self._file_system, self._directory, files, contents)
            indexes = await self._load(files, segment)
        except CorruptIndexError as error:
            await self._remove(files.paths(self._directory))
            raise RemoteStorageError(f"the stored indexes of segment {segment_id} are corrupt: {error}") from error
        except StorageFailure:
            await self._remove(files.paths(self._directory))
            raise
        self._keep_files(segment_id, files)
        self._evict()
        return self._keep_loaded(segment, indexes)

    async def _download(self, segment: RemoteLogSegmentMetadata) -> tuple[bytes, bytes, bytes]:
        self.downloads += 1
        try:
            async with asyncio.TaskGroup() as group:
                offset = group.create_task(self._storage.fetch_index(segment, IndexType.OFFSET), name="offset-index")
                time = group.create_task(self._storage.fetch_index(segment, IndexType.TIMESTAMP), name="time-index")
                aborted = group.create_task(self._fetch_transactions(segment), name="transaction-index")
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return offset.result(), time.result(), aborted.result()

    async def _fetch_transactions(self, segment: RemoteLogSegmentMetadata) -> bytes:
        """Most segments have no aborted transactions, and then no index of them."""
        if segment.is_txn_index_empty:
            return b""
        try:
            return await self._storage.fetch_index(segment, IndexType.TRANSACTION)
        except RemoteResourceNotFoundError:
            return b""

    def _find(self) -> list[tuple[UUID, IndexFiles]]:
        return list(find_files(self._file_system, self._directory))

    async def _load(self, files: IndexFiles, segment: RemoteLogSegmentMetadata) -> RemoteIndexes:
        return await self._disk.run(load_files, self._file_system, self._directory, files, segment)

    def _keep_files(self, segment_id: UUID, files: IndexFiles) -> None:
        self._files[segment_id] = files
        self.size_bytes += files.size_bytes

    def _keep_loaded(self, segment: RemoteLogSegmentMetadata, indexes: RemoteIndexes) -> RemoteIndexes:
        """In memory they take about as much as on the disk."""
        size_bytes = self._files[segment.segment_id].size_bytes
        self._loaded[segment.segment_id] = size_bytes, indexes
        self.memory_bytes += size_bytes
        while self.memory_bytes > self._memory_max_bytes and len(self._loaded) > 1:
            self._unload(next(iter(self._loaded)))
        return indexes

    def _unload(self, segment_id: UUID) -> None:
        size_bytes, _ = self._loaded.pop(segment_id, (0, None))
        self.memory_bytes -= size_bytes

    def _touch(self, segment_id: UUID) -> None:
        self._files[segment_id] = self._files.pop(segment_id)

    def _forget(self, segment_id: UUID) -> IndexFiles:
        self._unload(segment_id)
        files = self._files.pop(segment_id)
        self.size_bytes -= files.size_bytes
        return files

    def _evict(self) -> None:
        for segment_id in list(self._files)[:-1]:
            if self.size_bytes <= self._size_max_bytes:
                return
            if segment_id not in self._flights:
                self._drop(segment_id)

    def _drop(self, segment_id: UUID) -> None:
        """The names are free at once, for the same segment may be wanted again; the files go in the background."""
        aside = []
        for path in self._forget(segment_id).paths(self._directory):
            aside.append(path.with_name(path.name + DELETED_SUFFIX))
            with contextlib.suppress(FileNotFoundError, StorageFailure):  # a start removes what is left
                self._file_system.rename(path, aside[-1])
        self._tasks.start("remove", self._remove(tuple(aside)))

    async def _remove(self, paths: tuple[Path, ...]) -> None:
        try:
            await self._disk.run(remove_files, self._file_system, paths)
        except StorageFailure as failure:
            log.warning("remote_index_not_removed", error=str(failure))
