"""MetadataLog: `__cluster_metadata-0` on the disk, in Kafka's files; the log, its snapshots and its epochs."""

from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from broker.common.buffers import Buffer
from broker.common.errors import OffsetOutOfRangeError, StorageFailure
from broker.common.file_system import File, FileSystem
from broker.common.identifiers import CLUSTER_METADATA_TOPIC, NO_EPOCH
from broker.controller.disk_reserve import DiskReserve
from broker.controller.metadata_segment import MetadataLogCorruptError, MetadataSegment
from broker.controller.metadata_snapshot import PART_SUFFIX, SnapshotId, read_checkpoint
from broker.records.record_batch import RecordBatch
from broker.schemas.cluster_metadata import MetadataRecord

RESERVE_FILE: Final = "disk-reserve"
DIRECTORY_NAME: Final = f"{CLUSTER_METADATA_TOPIC}-0"
SNAPSHOTS_KEPT: Final = 2  # an observer that reads the last but one can finish

log = structlog.get_logger(__name__)


class OffsetAndEpoch(NamedTuple):
    offset: int
    epoch: int


class FetchPosition(NamedTuple):
    """Whether a follower's log agrees with ours (Kafka's ValidOffsetAndEpoch): both None means it does."""

    diverging: OffsetAndEpoch | None = None
    snapshot: SnapshotId | None = None


VALID_POSITION: Final = FetchPosition()


class MetadataLog:
    """Owned by the controller.  Appends are synchronous; making them durable is `active_file.sync` in a thread.

    start_offset <= high_watermark <= end_offset; at most one batch lies between the last two.
    """

    def __init__(self, file_system: FileSystem, directory: Path) -> None:
        self.directory = directory / DIRECTORY_NAME
        self.end_offset = 0
        self.high_watermark = 0
        self.bytes_since_snapshot = 0
        self.last_append_time_ms = -1
        self.reserve = DiskReserve(file_system, self.directory / RESERVE_FILE)
        self._file_system = file_system
        self._segments: list[MetadataSegment] = []
        self._snapshots: list[SnapshotId] = []
        self._epochs: list[OffsetAndEpoch] = []  # where each epoch starts
        self.high_watermark_listeners: dict[Callable[[], None], None] = {}

    # Recovery

    def open(self, on_snapshot: Callable[[list[MetadataRecord], SnapshotId], None]) -> list[RecordBatch]:
        """Recover the files: hands over the latest whole snapshot and returns the batches after it.

        MetadataLogCorruptError when bytes that were flushed are broken.  Runs once, before anything is served.
        """
        self._file_system.make_directories(self.directory)
        self._file_system.sync_directory(self.directory.parent)
        names = self._file_system.list_directory(self.directory)
        for name in names:
            if name.endswith((PART_SUFFIX, ".tmp", ".deleted")):
                self._file_system.remove(self.directory / name)
        snapshot = self._load_latest_snapshot(names, on_snapshot)
        batches = self._recover_segments(names)
        if snapshot is not None and self.end_offset < snapshot.end_offset:
            self._start_over_at(snapshot)
            batches = []
        start = snapshot.end_offset if snapshot is not None else 0
        if self.start_offset > start:
            raise MetadataLogCorruptError(
                f"{self.directory} begins at {self.start_offset} and has no snapshot before it"
            )
        rest = [batch for batch in batches if batch.base_offset >= start]
        self.bytes_since_snapshot = sum(batch.size_bytes for batch in rest)
        return rest

    def _load_latest_snapshot(
        self, names: list[str], on_snapshot: Callable[[list[MetadataRecord], SnapshotId], None]
    ) -> SnapshotId | None:
        found = sorted(filter(None, map(SnapshotId.parse, names)))
        self._snapshots = [snapshot for snapshot in found if not snapshot.is_bootstrap]
        for snapshot in reversed(list(self._snapshots)):
            try:
                records = read_checkpoint(self._file_system, self.directory / snapshot.file_name)
            except MetadataLogCorruptError as error:
                log.warning("metadata_snapshot_broken", snapshot=snapshot.file_name, error=str(error))
                self._snapshots.remove(snapshot)
                continue
            on_snapshot(records, snapshot)
            return snapshot
        return None

    def _recover_segments(self, names: list[str]) -> list[RecordBatch]:
        bases = sorted(int(name.removesuffix(".log")) for name in names if name.endswith(".log"))
        found: list[RecordBatch] = []
        for base_offset in bases:
            segment = MetadataSegment(self._file_system, self.directory, base_offset)
            if self._segments and base_offset != self.end_offset:
                raise MetadataLogCorruptError(f"{segment.path} does not follow offset {self.end_offset}")
            cut = segment.recover(found.append, is_last=base_offset == bases[-1])
            if cut:
                log.warning("metadata_log_tail_cut", file=segment.path.name, size_bytes=cut, offset=segment.next_offset)
            self._segments.append(segment)
            self.end_offset = segment.next_offset
        for batch in found:
            self._note_epoch(batch.partition_leader_epoch, batch.base_offset)
            self.last_append_time_ms = batch.max_timestamp
        if not self._segments:
            self._add_segment(self._snapshots[-1].end_offset if self._snapshots else 0)
        return found

    def _start_over_at(self, snapshot: SnapshotId) -> None:
        """The log ends before its snapshot: an operator removed it, and the snapshot has all of it."""
        for segment in self._segments:
            segment.close()
            self._file_system.remove(segment.path)
        self._segments, self._epochs = [], []
        self._add_segment(snapshot.end_offset)

    def _add_segment(self, base_offset: int) -> None:
        self._segments.append(MetadataSegment(self._file_system, self.directory, base_offset))
        self._file_system.sync_directory(self.directory)
        self.end_offset = base_offset

    # Appending

    @property
    def active_file(self) -> File:
        """What has to be synced to make appended batches durable."""
        return self._segments[-1].file

    @property
    def active_size_bytes(self) -> int:
        return self._segments[-1].size_bytes

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def start_offset(self) -> int:
        return self._segments[0].base_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, NO_EPOCH in an empty log."""
        if self._epochs:
            return self._epochs[-1].epoch
        return self._snapshots[-1].epoch if self._snapshots else NO_EPOCH

    def append(self, data: Buffer) -> None:
        """Write one batch at the end.  StorageFailure leaves the log as it was."""
        batch = self._append_with_reserve(data)
        assert batch.base_offset == self.end_offset, f"batch at {batch.base_offset}, log ends at {self.end_offset}"
        self.end_offset = batch.next_offset
        self.bytes_since_snapshot += batch.size_bytes
        self.last_append_time_ms = batch.max_timestamp
        self._note_epoch(batch.partition_leader_epoch, batch.base_offset)

    def _append_with_reserve(self, data: Buffer) -> RecordBatch:
        try:
            return self._segments[-1].append(data)
        except StorageFailure:
            if not self.reserve.release():
                raise
        return self._segments[-1].append(data)

    def advance_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is durable; wakes whoever waits for it."""
        assert self.high_watermark <= offset <= self.end_offset, (self.high_watermark, offset, self.end_offset)
        if offset > self.high_watermark:
            self.high_watermark = offset
            for listener in list(self.high_watermark_listeners):
                listener()

    def roll(self) -> None:
        """Begin a new segment, unless the active one is empty.  Everything in the old one must be durable."""
        if self.active_size_bytes:
            self._add_segment(self.end_offset)

    def _note_epoch(self, epoch: int, offset: int) -> None:
        if not self._epochs or self._epochs[-1].epoch < epoch:
            self._epochs.append(OffsetAndEpoch(offset, epoch))

    # Reading

    def read(self, offset: int, size_max: int) -> bytes:
        """Whole batches below the high watermark from the one that holds `offset`; empty at the high watermark."""
        if offset >= self.high_watermark:
            return b""
        if offset < self.start_offset:
            raise OffsetOutOfRangeError(f"{offset} is below the start of the metadata log, {self.start_offset}")
        slot = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1
        return self._segments[slot].read(offset, size_max, self.high_watermark)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The largest known epoch up to `epoch` and where it ends (RaftLog.endOffsetForEpoch)."""
        slot = bisect_right(self._epochs, epoch, key=lambda entry: entry.epoch)
        if slot == 0:
            if self._snapshots and self._snapshots[0].epoch == epoch:
                return OffsetAndEpoch(self._snapshots[0].end_offset, epoch)
            return OffsetAndEpoch(self.start_offset, self._snapshots[0].epoch if self._snapshots else 0)
        end = self._epochs[slot].offset if slot < len(self._epochs) else self.end_offset
        return OffsetAndEpoch(end, self._epochs[slot - 1].epoch)

    def check_position(self, offset: int, last_epoch: int) -> FetchPosition:
        """Whether a follower that ends at `offset`, with a last record of `last_epoch`, can go on from there.

        An empty follower is always told to take the snapshot when there is one (RaftLog.validateOffsetAndEpoch).
        """
        latest = self.latest_snapshot
        if latest is not None:
            earliest = self._snapshots[0]
            is_before_log = offset < self.start_offset or last_epoch < earliest.epoch
            if offset == 0 or is_before_log or (offset == self.start_offset and last_epoch != self._epoch_before_log()):
                return FetchPosition(snapshot=latest)
        elif offset == 0:
            return VALID_POSITION
        end = self.end_offset_for_epoch(last_epoch)
        if end.epoch != last_epoch or end.offset < offset:
            return FetchPosition(diverging=end)
        return VALID_POSITION

    def _epoch_before_log(self) -> int:
        """The epoch of the record just before the log's first one, as the snapshot there knows it."""
        for snapshot in self._snapshots:
            if snapshot.end_offset == self.start_offset:
                return snapshot.epoch
        return self._snapshots[0].epoch

    # Snapshots

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self._snapshots[-1] if self._snapshots else None

    def has_snapshot(self, snapshot: SnapshotId) -> bool:
        return snapshot in self._snapshots

    def snapshot_path(self, snapshot: SnapshotId) -> Path:
        return self.directory / snapshot.file_name

    def read_snapshot(self, snapshot: SnapshotId, position: int, size_max: int) -> tuple[int, bytes]:
        """The size of a snapshot and a piece of it."""
        file = self._file_system.open(self.snapshot_path(snapshot))
        try:
            return file.size(), bytes(file.read_at(position, size_max))
        finally:
            file.close()

    def add_snapshot(self, snapshot: SnapshotId) -> list[Path]:
        """A snapshot has been written: returns the files nobody needs any more, to be removed in a thread."""
        assert snapshot.end_offset <= self.high_watermark, (snapshot, self.high_watermark)
        self._snapshots.append(snapshot)
        self.bytes_since_snapshot = sum(
            segment.size_bytes for segment in self._segments if segment.next_offset > snapshot.end_offset
        )
        obsolete = [self.snapshot_path(old) for old in self._snapshots[:-SNAPSHOTS_KEPT]]
        self._snapshots = self._snapshots[-SNAPSHOTS_KEPT:]
        oldest = self._snapshots[0].end_offset
        while len(self._segments) > 1 and self._segments[0].next_offset <= oldest:
            segment = self._segments.pop(0)
            segment.close()
            obsolete.append(segment.path)
        self._forget_epochs_before(self.start_offset)
        return obsolete

    def _forget_epochs_before(self, offset: int) -> None:
        while len(self._epochs) > 1 and self._epochs[1].offset <= offset:
            self._epochs.pop(0)

    def close(self) -> None:
        for segment in self._segments:
            segment.close()
