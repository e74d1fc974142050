"""CleanedSegment: the segment that takes the place of a group of others, while it is written."""

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from broker.common.disk import DiskExecutor
from broker.common.errors import StorageFailure
from broker.common.file_system import FileSystem
from broker.log.cleaner.io_throttle import IoThrottle
from broker.log.log_environment import LogEnvironment
from broker.log.log_file_names import CLEANED_SUFFIX
from broker.log.log_segment import LogSegment
from broker.log.transaction_index import AbortedTransaction
from broker.log.unified_log import UnifiedLog
from broker.records.record_batch import RecordBatch


class CleanedSegment:
    """Its files are called `.cleaned`, and a start removes such files.  `create`, `write` as often as needed, `finish`;
    then it is on the device, and the log may take it.  Or `discard`.

    StorageFailure: it is to be discarded.
    """

    def __init__(self, segment: LogSegment, file_system: FileSystem, disk: DiskExecutor, throttle: IoThrottle) -> None:
        self.segment = segment
        self._file_system = file_system
        self._disk = disk
        self._throttle = throttle

    @classmethod
    async def create(
        cls, log: UnifiedLog, base_offset: int, environment: LogEnvironment, disk: DiskExecutor, throttle: IoThrottle
    ) -> "CleanedSegment":
        config = log.config

        def create() -> LogSegment:
            return LogSegment.create(
                environment.file_system,
                environment.segment_cache,
                log.directory,
                base_offset,
                index_size_max=config.segment_index_bytes,
                created_ms=environment.clock.now_ms(),
                index_interval_bytes=config.index_interval_bytes,
                suffix=CLEANED_SUFFIX,
            )

        return cls(await disk.run(create), environment.file_system, disk, throttle)

    async def write(self, batches: Sequence[RecordBatch]) -> None:
        """Some batches that stay, whole and in order."""
        records = self.segment.records
        size = await self._disk.run(records.file.write_at, records.size_bytes, [batch.buffer for batch in batches])
        self.segment.accept(batches)
        await self._throttle.spend(size)

    async def finish(self, aborted: Iterable[AbortedTransaction], last_source: Path) -> None:
        """Everything is written: bring it to the device, as old as the last segment it replaces, which says of an empty
        segment how old its records were."""
        segment = self.segment
        segment.add_last_time_entry()
        segment.transaction_index.extend(aborted)
        segment.write_indexes()
        await self._disk.run(_settle, self._file_system, segment.records.path, segment.index_paths(), last_source)
        segment.is_sealed = True
        segment.is_flushed = True

    def discard(self) -> None:
        """What the disk does not remove now is removed at the next start: as long as one file is called `.cleaned`, so
        those that are called otherwise already go first."""
        self.segment.close()
        with contextlib.suppress(StorageFailure):
            for path in sorted(self.segment.paths, key=lambda path: path.suffix == CLEANED_SUFFIX):
                self._file_system.remove(path)


def _settle(file_system: FileSystem, log_path: Path, index_paths: Sequence[Path], last_source: Path) -> None:
    file_system.set_modified_ms(log_path, file_system.modified_ms(last_source))
    for path in (log_path, *index_paths):
        file = file_system.open(path)
        try:
            file.sync()
        finally:
            file.close()
    file_system.sync_directory(log_path.parent)
