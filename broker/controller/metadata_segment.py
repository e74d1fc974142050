"""MetadataSegment: one `.log` file of the metadata log, and what makes its end trustworthy after a crash."""

from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Final

from broker.common.buffers import Buffer
from broker.common.errors import CorruptMessageError, StorageFailure
from broker.common.file_system import File, FileSystem
from broker.records.record_batch import BATCH_HEADER_SIZE, MAGIC, RecordBatch, batches

INDEX_INTERVAL_BYTES: Final = 4096  # Kafka's index.interval.bytes
_MAGIC_POSITION: Final = 16


class MetadataLogCorruptError(Exception):
    """Bytes that were flushed are broken: nothing after them may be trusted, and the node must not start."""


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


class MetadataSegment:
    """Batches from `base_offset` to `next_offset` (exclusive).

    A sparse index of (offset, position) pairs is kept in memory: metadata logs are small and read mostly at the end.
    """

    def __init__(self, file_system: FileSystem, directory: Path, base_offset: int) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0
        self.path = directory / segment_name(base_offset)
        self.file: File = file_system.open(self.path, create=True)
        self._index_offsets: list[int] = []
        self._index_positions: list[int] = []

    def recover(self, on_batch: Callable[[RecordBatch], None], *, is_last: bool) -> int:
        """Read all batches; returns the bytes cut off the end.

        At most one batch is ever written before the one in front of it is flushed, so after a crash only the last
        one can be torn: it is cut.  Anything broken before it was flushed once: MetadataLogCorruptError.
        """
        size = self.file.size()
        data = self.file.read_at(0, size) if size else b""
        position = 0
        while position < size:
            batch = _valid_batch(data, position, self.next_offset)
            if batch is None:
                self._refuse_unless_torn(data, position, is_last)
                break
            self._note(batch, position)
            on_batch(batch)
            position += batch.size_bytes
        self.size_bytes = position
        if position < size:
            self.file.truncate(position)
            self.file.sync()
        return size - position

    def _refuse_unless_torn(self, data: Buffer, position: int, is_last: bool) -> None:
        where = f"{self.path} at position {position} (offset {self.next_offset})"
        if not is_last:
            raise MetadataLogCorruptError(f"{where}: a batch is broken, and later segments follow")
        if _has_valid_batch_after(bytes(data), position, self.next_offset):
            raise MetadataLogCorruptError(f"{where}: a batch is broken, and whole batches follow it")

    def append(self, data: Buffer) -> RecordBatch:
        """Write one batch behind the others.  StorageFailure leaves the segment as it was."""
        batch = RecordBatch.parse(data)
        try:
            self.file.write_at(self.size_bytes, [data])
        except StorageFailure:
            self._cut_back()
            raise
        self._note(batch, self.size_bytes)
        self.size_bytes += len(data)
        return batch

    def _cut_back(self) -> None:
        try:
            self.file.truncate(self.size_bytes)
        except StorageFailure:  # the next append overwrites it, and recovery cuts it
            return

    def _note(self, batch: RecordBatch, position: int) -> None:
        if not self._index_positions or position - self._index_positions[-1] >= INDEX_INTERVAL_BYTES:
            self._index_offsets.append(batch.base_offset)
            self._index_positions.append(position)
        self.next_offset = batch.next_offset

    def read(self, offset: int, size_max: int, end_offset: int) -> bytes:
        """Whole batches from the one that holds `offset` on, all below `end_offset`; one at least, however big."""
        slot = bisect_right(self._index_offsets, offset) - 1
        position = self._index_positions[slot] if slot >= 0 else 0
        window = INDEX_INTERVAL_BYTES + size_max
        while True:
            data = self.file.read_at(position, min(window, self.size_bytes - position))
            start = end = skipped = 0
            for batch in batches(data):
                if batch.next_offset > end_offset or (end > start and end + batch.size_bytes - start > size_max):
                    return bytes(data[start:end])
                if batch.last_offset < offset:
                    skipped += batch.size_bytes
                    start = end = skipped
                else:
                    end += batch.size_bytes
            if end > start or position + window >= self.size_bytes:
                return bytes(data[start:end])
            window *= 2  # one batch is larger than the window, or the ones before it fill it

    def close(self) -> None:
        self.file.close()


def _valid_batch(data: Buffer, position: int, expected_offset: int) -> RecordBatch | None:
    try:
        batch = RecordBatch.parse(data, position)
        batch.ensure_valid()
    except CorruptMessageError:
        return None
    return batch if batch.base_offset == expected_offset else None


def _has_valid_batch_after(data: bytes, position: int, expected_offset: int) -> bool:
    magic_at = data.find(MAGIC, position + 1 + _MAGIC_POSITION)
    while magic_at >= 0:
        start = magic_at - _MAGIC_POSITION
        if len(data) - start < BATCH_HEADER_SIZE:
            return False
        try:
            batch = RecordBatch.parse(data, start)
        except CorruptMessageError:
            pass
        else:
            if batch.base_offset > expected_offset and batch.is_crc_valid():
                return True
        magic_at = data.find(MAGIC, magic_at + 1)
    return False
