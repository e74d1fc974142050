"""PartitionLogs: the records that brokers have on their disks, to compare with what a bucket holds of them.

Read as files beside running brokers, which only append to them: what is cut or deleted meanwhile is not found.
"""

import os
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from broker.common.errors import CorruptMessageError, StorageFailure
from broker.common.file_system import OsFileSystem
from broker.config.setting import ConfigError
from broker.log.log_file_names import LOG_SUFFIX, offset_of_file, parse_log_directory
from broker.log.partition_metadata_file import PartitionMetadataFile
from broker.records.record_batch import BATCH_HEADER_SIZE, LOG_OVERHEAD, RecordBatch
from broker.wal.objects.wal_entry import WalEntry

READ_SIZE: Final = 1 << 20
_BASE_OFFSET_SIZE: Final = 8


@dataclass(slots=True)
class LogComparison:
    """Batches by what came of them.  `different` are sentences: same offset and leader epoch, other bytes."""

    equal: int = 0
    superseded: int = 0  # the log has a batch of another epoch there, or none that begins there: its leader was deposed
    absent: int = 0  # the log does not have these offsets: deleted, or not yet there
    different: list[str] | None = None

    def add_different(self, sentence: str) -> None:
        self.different = [*(self.different or ()), sentence]


class PartitionLogs:
    """The logs in some brokers' data directories, by partition and topic id.  ConfigError for what is no directory."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._logs: dict[tuple[UUID, int], list[_Log]] = {}
        for directory in directories:
            if not directory.is_dir():
                raise ConfigError(f"--log-dir={str(directory)!r}: there is no such directory.")
            for entry in sorted(directory.iterdir()):
                self._add(entry)

    def _add(self, directory: Path) -> None:
        name = parse_log_directory(directory.name)
        if name is None or name.suffix or not directory.is_dir():
            return
        try:
            topic_id = PartitionMetadataFile(OsFileSystem(), directory).read()
        except StorageFailure:
            return
        if topic_id is not None:
            self._logs.setdefault((topic_id, name.topic_partition.partition), []).append(_Log(directory))

    def compare(self, entry: WalEntry, found: Sequence[RecordBatch]) -> LogComparison:
        """Each batch of a slice with every log of its partition.

        (epoch, offset) names a batch once and for all, so that equal names with other bytes are damage; other epochs
        are not: what a deposed leader uploaded may never have become part of the log.
        """
        comparison = LogComparison()
        for log in self._logs.get((entry.partition.topic_id, entry.partition.partition), ()):
            for batch in found:
                log.compare(batch, comparison)
        return comparison


class _Log:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._segments: dict[int, _Segment] = {}
        self._bases: list[int] = []

    def compare(self, batch: RecordBatch, comparison: LogComparison) -> None:
        segment = self._segment_of(batch.base_offset)
        if segment is None:
            comparison.absent += 1
            return
        mine = segment.batch_at(batch.base_offset)
        if mine is None:
            if segment.has_reached(batch.base_offset):
                comparison.superseded += 1
            else:
                comparison.absent += 1
        elif mine.partition_leader_epoch != batch.partition_leader_epoch:
            comparison.superseded += 1
        elif bytes(mine.buffer) == bytes(batch.buffer):
            comparison.equal += 1
        else:
            comparison.add_different(
                f"offset {batch.base_offset} of epoch {batch.partition_leader_epoch} has other bytes in {segment.path}"
            )

    def _segment_of(self, offset: int) -> "_Segment | None":
        base = self._base_of(offset)
        if base is None or (base == self._bases[-1] and not self._open(base).has_reached(offset)):
            self._bases = sorted(
                offset_of_file(path.name) for path in self._directory.glob(f"*{LOG_SUFFIX}") if path.name[:20].isdigit()
            )
            base = self._base_of(offset)
        return None if base is None else self._open(base)

    def _base_of(self, offset: int) -> int | None:
        index = bisect_left(self._bases, offset + 1) - 1
        return self._bases[index] if index >= 0 else None

    def _open(self, base: int) -> "_Segment":
        segment = self._segments.get(base)
        if segment is None:
            segment = self._segments[base] = _Segment(self._directory / f"{base:020d}{LOG_SUFFIX}")
        return segment


class _Segment:
    """Where each batch of a file begins, learned once and continued when the file grows: 16 bytes for each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offsets = array("q")
        self._positions = array("q")
        self._scanned_to = 0

    def has_reached(self, offset: int) -> bool:
        """Whether the file has a batch that begins there or later."""
        self._scan()
        return bool(self._offsets) and self._offsets[-1] >= offset

    def batch_at(self, base_offset: int) -> RecordBatch | None:
        """The batch that begins there; None when none does, or the file is gone."""
        self._scan()
        index = bisect_left(self._offsets, base_offset)
        if index == len(self._offsets) or self._offsets[index] != base_offset:
            return None
        position = self._positions[index]
        is_last = index + 1 == len(self._positions)
        end = self._scanned_to if is_last else self._positions[index + 1]
        try:
            with self.path.open("rb") as file:
                return RecordBatch.parse(os.pread(file.fileno(), end - position, position))
        except (FileNotFoundError, CorruptMessageError):
            return None

    def _scan(self) -> None:
        try:
            with self.path.open("rb") as file:
                for offset, position, end in self._headers(file.fileno()):
                    self._offsets.append(offset)
                    self._positions.append(position)
                    self._scanned_to = end
        except FileNotFoundError:
            return

    def _headers(self, descriptor: int) -> Iterator[tuple[int, int, int]]:
        """(base offset, position, end) of the whole batches not seen before."""
        size = os.fstat(descriptor).st_size
        position, chunk_position, chunk = self._scanned_to, 0, b""
        while position + BATCH_HEADER_SIZE <= size:
            if not chunk_position <= position <= chunk_position + len(chunk) - BATCH_HEADER_SIZE:
                chunk_position, chunk = position, os.pread(descriptor, READ_SIZE, position)
                if len(chunk) < BATCH_HEADER_SIZE:
                    return
            at = position - chunk_position
            offset = int.from_bytes(chunk[at : at + _BASE_OFFSET_SIZE], "big", signed=True)
            length = int.from_bytes(chunk[at + _BASE_OFFSET_SIZE : at + LOG_OVERHEAD], "big", signed=True)
            end = position + LOG_OVERHEAD + length
            if length <= 0 or end > size:
                return
            yield offset, position, end
            position = end
