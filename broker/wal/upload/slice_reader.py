"""SliceReader: from a range that was reserved to the slice with its bytes: one segment's, whole batches."""

import asyncio
from collections.abc import Callable
from typing import Final
from uuid import UUID

from broker.common.disk import DiskExecutor
from broker.common.errors import (
    CorruptMessageError,
    OffsetMovedToTieredStorageError,
    OffsetOutOfRangeError,
    StorageFailure,
)
from broker.log.file_records import FileSlice, read, read_cached
from broker.log.unified_log import UnifiedLog
from broker.wal.objects.wal_slice import SliceReadError, WalSlice, build_slice
from broker.wal.upload.upload_queue import SliceRead

IN_LOOP_BYTES_MAX: Final = 512 * 1024  # copied from the page cache in a tenth of a millisecond
BREATHE_SECONDS: Final = 0.0005  # of work in a row: then the loop gets its turn


class RangeDeletedError(SliceReadError):
    """The log on this disk starts after the range began: it is read from the new start on."""


class SliceReader:
    """Reads as a fetch does: what the page cache has in the loop, the rest in a thread."""

    def __init__(self, disk: DiskExecutor, new_id: Callable[[], UUID]) -> None:
        self._disk = disk
        self._new_id = new_id
        self._worked_since = 0.0

    async def read(self, log: UnifiedLog, wanted: SliceRead) -> WalSlice | None:
        """The slice; None when its first batch is larger than the room in the object.

        `SliceGapError`, `RangeDeletedError`, or another `SliceReadError`: the disk or the bytes are not as they should
        be.  A slice never spans two segments: what the log has rolled over since comes with the next one.
        """
        found = self._find(log, wanted)
        if wanted.room is not None and found.size > wanted.room:
            return None  # a single batch: nothing else exceeds the size that was asked for
        return self._built(wanted, await self._bytes_of(found))

    async def breathe(self) -> None:
        """Let others have the loop if it has been worked for long; a reader of many slices calls it in between."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._worked_since > BREATHE_SECONDS:
            await asyncio.sleep(0)
            self._worked_since = loop.time()

    def _find(self, log: UnifiedLog, wanted: SliceRead) -> FileSlice:
        try:
            found = log.read(wanted.start_offset, wanted.size_max, wanted.upper_offset, min_one_batch=True)
        except (OffsetOutOfRangeError, OffsetMovedToTieredStorageError) as error:
            if wanted.start_offset < log.local_log_start_offset:
                raise RangeDeletedError(f"The log starts here at {log.local_log_start_offset}") from error
            raise SliceReadError(str(error)) from error
        except (StorageFailure, CorruptMessageError) as error:
            raise SliceReadError(str(error)) from error
        if found.file_slice is None:
            raise SliceReadError(f"Nothing of {wanted.partition.topic_partition} at {wanted.start_offset}")
        return found.file_slice

    async def _bytes_of(self, found: FileSlice) -> "memoryview | bytes | bytearray":
        try:
            data = read_cached(found) if found.size <= IN_LOOP_BYTES_MAX else None
            if data is None:
                data = await self._disk.run(read, found)
        except (StorageFailure, OSError) as error:
            raise SliceReadError(str(error)) from error
        if len(data) < found.size:
            raise SliceReadError(f"{found} was cut to {len(data)} bytes meanwhile")
        return data

    def _built(self, wanted: SliceRead, records: "memoryview | bytes | bytearray") -> WalSlice | None:
        return build_slice(
            wanted.partition,
            self._new_id(),
            wanted.reservation.token,
            records,
            start_offset=wanted.start_offset,
            upper_offset=wanted.upper_offset,
            size_max=wanted.size_max,
            room=wanted.room,
        )
