"""ProducerStateManager: idempotent producers and open transactions of one partition (Kafka's class of that name)."""

import contextlib
from bisect import insort
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import structlog

from broker.common.buffers import Buffer
from broker.common.errors import CorruptMessageError, InvalidRecordError, StorageFailure
from broker.common.file_system import FileSystem, read_file
from broker.common.identifiers import NO_OFFSET
from broker.log.log_append import ActiveProducer
from broker.log.log_file_names import SNAPSHOT_SUFFIX, TEMPORARY_SUFFIX, offset_file_name, offset_of_file
from broker.log.producer_snapshot import CorruptSnapshotError, decode_snapshot, encode_snapshot
from broker.log.producer_state_entry import (
    CompletedTxn,
    ProducerAppendInfo,
    ProducerStateEntry,
    TxnMetadata,
)
from broker.records.append_origin import AppendOrigin
from broker.records.control_record import EndTransactionMarker
from broker.records.record_batch import RecordBatch

if TYPE_CHECKING:
    from broker.log.log_segments import LogSegments

log = structlog.get_logger(__name__)

REFUSED_PRODUCERS_MAX: Final = 1000  # more new producers than that do not meet one full disk


def parse_marker(batch: RecordBatch) -> EndTransactionMarker | None:
    """The end-of-transaction marker a control batch holds; None for other control records and for empty batches."""
    record = next(iter(batch.records()), None)
    return None if record is None else EndTransactionMarker.parse(record)


class ProducerStateManager:
    """State of all offsets below `map_end_offset`.

    Snapshots in the partition's directory make a restart short: `<offset>.snapshot` holds the state below the offset
    in its name.  They are a short cut only, unless the log's first records are in remote storage alone: of producers
    down there only they tell.
    """

    __slots__ = (
        "_directory",
        "_distrusted",
        "_expected_first",
        "_file_system",
        "_missed",
        "_ongoing",
        "_producers",
        "_snapshots",
        "_unreplicated",
        "expiration_ms",
        "map_end_offset",
        "unsynced_snapshots",
    )

    def __init__(self, file_system: FileSystem, directory: Path, expiration_ms: int) -> None:
        self._file_system = file_system
        self._directory = directory
        self.expiration_ms = expiration_ms
        self._producers: dict[int, ProducerStateEntry] = {}
        self._ongoing: dict[int, TxnMetadata] = {}  # by first offset, ascending
        self._unreplicated: dict[int, TxnMetadata] = {}  # completed, but the marker is not below the high watermark
        self._distrusted: list[int] = []
        self._expected_first: dict[int, tuple[int, int]] = {}  # epoch and sequence by unknown producer; not stored
        self._missed: dict[int, bytes] = {}  # snapshots the disk has refused, by offset
        self._snapshots: list[int] = []  # offsets of the snapshot files, ascending
        self.map_end_offset = 0
        self.unsynced_snapshots: list[int] = []

    # -- what it knows ---------------------------------------------------------------------------------------------

    @property
    def producers(self) -> Mapping[int, ProducerStateEntry]:
        return MappingProxyType(self._producers)

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._ongoing and not self._unreplicated

    @property
    def has_open_or_unreplicated_transactions(self) -> bool:
        return bool(self._ongoing or self._unreplicated)

    @property
    def snapshot_offsets(self) -> tuple[int, ...]:
        return tuple(self._snapshots)

    @property
    def latest_snapshot_offset(self) -> int | None:
        return self._snapshots[-1] if self._snapshots else None

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest transaction whose end is not replicated yet."""
        first = next(iter(self._ongoing), None)
        if self._unreplicated:
            earliest = min(self._unreplicated)
            return earliest if first is None else min(first, earliest)
        return first

    def active_producers(self) -> list[ActiveProducer]:
        return [
            ActiveProducer(
                entry.producer_id,
                entry.producer_epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                NO_OFFSET if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
            )
            for entry in self._producers.values()
        ]

    def last_entry(self, producer_id: int) -> ProducerStateEntry | None:
        return self._producers.get(producer_id)

    # -- appends ---------------------------------------------------------------------------------------------------

    def prepare_update(self, producer_id: int, origin: AppendOrigin) -> ProducerAppendInfo:
        """What an append of this producer is checked against and collected in; `update` applies it."""
        entry = self._producers.get(producer_id)
        expected = self._expected_first.get(producer_id) if entry is None and self._expected_first else None
        return ProducerAppendInfo(producer_id, entry, origin, expected)

    def expect_first(self, batch: RecordBatch) -> None:
        """The disk refused this batch.  If its producer is not known, no later batch of its epoch may come before it:
        the client has sent several at once and repeats the refused one, which would be out of order then."""
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        if producer_id in self._producers:
            return
        known = self._expected_first.get(producer_id)
        if known is not None and known[0] >= epoch:
            return
        if len(self._expected_first) >= REFUSED_PRODUCERS_MAX:
            del self._expected_first[next(iter(self._expected_first))]
        self._expected_first[producer_id] = (epoch, batch.base_sequence)

    def update(self, info: ProducerAppendInfo) -> None:
        """The append was written: its changes are the state now.  Transactions it ended: `complete_txn`."""
        if not info.is_changed:
            return  # its only batch was refused
        entry = info.entry
        if entry is None:
            entry = ProducerStateEntry(info.producer_id)
            self._producers[info.producer_id] = entry
            self._expected_first.pop(info.producer_id, None)
        info.apply_to(entry)
        for txn in info.started:
            self._ongoing[txn.first_offset] = txn

    def last_stable_offset_after(self, completed: CompletedTxn) -> int:
        """Where the last stable offset goes once `completed` is replicated."""
        for txn in self._ongoing.values():
            if txn.producer_id != completed.producer_id:
                return txn.first_offset
        return completed.last_offset + 1

    def complete_txn(self, completed: CompletedTxn) -> None:
        """The marker is in the log; the transaction stays unstable until the marker is replicated."""
        txn = self._ongoing.pop(completed.first_offset)
        self._unreplicated[txn.first_offset] = txn._replace(last_offset=completed.last_offset)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        if self._unreplicated:
            self._unreplicated = {
                first_offset: txn
                for first_offset, txn in self._unreplicated.items()
                if txn.last_offset is not None and txn.last_offset >= high_watermark
            }

    def replay(self, batch: RecordBatch) -> list[CompletedTxn]:
        """A batch read back from the log; returns the transactions it ended, already completed here."""
        if not batch.has_producer_id:
            self.map_end_offset = batch.next_offset
            return []
        info = self.prepare_update(batch.producer_id, AppendOrigin.REPLICATION)
        if batch.is_control:
            marker = parse_marker(batch)
            if marker is not None:
                info.check_marker(batch.producer_epoch, marker.coordinator_epoch)
                info.append_marker(
                    batch.producer_epoch,
                    marker.coordinator_epoch,
                    batch.last_offset,
                    batch.max_timestamp,
                    is_abort=not marker.is_commit,
                )
                self.update(info)
        else:
            info.append(batch, batch.base_offset, batch.max_timestamp)
            self.update(info)
        self.map_end_offset = batch.next_offset
        return info.completed

    def catch_up(self, segments: "LogSegments", end_offset: int) -> None:
        """Replay the log from `map_end_offset` to `end_offset`.  Waits for the disk.

        Batches that cannot be read are passed over: they are below the recovery point, where nothing is checked.
        """
        start = self.map_end_offset
        if start >= end_offset:
            return
        for segment in segments.from_offset(start):
            if segment.base_offset >= end_offset:
                break
            try:
                position = segment.position_of(start) if segment.base_offset < start else 0
                for _, batch in segment.records.batches(segment.size_bytes if position is None else position):
                    if batch.base_offset >= end_offset:
                        break
                    if batch.last_offset >= start:
                        for completed in self.replay(batch):
                            self.complete_txn(completed)
            except (CorruptMessageError, InvalidRecordError) as error:
                log.warning("producer_state_incomplete", segment=str(segment.records.path), error=str(error))
        self.map_end_offset = end_offset

    def remove_expired(self, now_ms: int) -> int:
        """Forget producers that have been idle for long and have no open transaction; returns how many."""
        limit = now_ms - self.expiration_ms
        expired = [
            producer_id
            for producer_id, entry in self._producers.items()
            if entry.current_txn_first_offset is None and entry.last_timestamp <= limit
        ]
        for producer_id in expired:
            del self._producers[producer_id]
            self._expected_first.pop(producer_id, None)
        return len(expired)

    # -- snapshots, truncation -------------------------------------------------------------------------------------

    def load_snapshot_names(self, names: list[str]) -> None:
        """The snapshot files among the names of the directory."""
        offsets = []
        for name in names:
            if name.endswith(SNAPSHOT_SUFFIX):
                try:
                    offsets.append(offset_of_file(name))
                except ValueError:
                    log.warning("snapshot_name_ignored", path=str(self._directory / name))
        self._snapshots = sorted(offsets)

    def remove_stray_snapshots(self, segment_base_offsets: list[int]) -> None:
        """Keep what is named after a segment, and the newest of the others if it is above the last segment."""
        bases = set(segment_base_offsets)
        strays = [offset for offset in self._snapshots if offset not in bases]
        if strays and segment_base_offsets and strays[-1] > segment_base_offsets[-1]:
            strays.pop()
        for offset in strays:
            self.remove_snapshot(offset)

    def remove_snapshots_above(self, offset: int) -> None:
        self._remove_snapshots(lambda snapshot: snapshot > offset)

    def distrust_snapshots_above(self, offset: int) -> None:
        """Do not use them, as records they tell of may be lost: recovery writes them anew or `remove_distrusted`."""
        self._distrusted = [snapshot for snapshot in self._snapshots if snapshot > offset]
        self._snapshots = [snapshot for snapshot in self._snapshots if snapshot <= offset]

    def remove_distrusted(self) -> None:
        """Remove the files that were not written anew."""
        for offset in self._distrusted:
            if offset not in self._snapshots:
                self._remove_quietly(self.snapshot_path(offset))
        self._distrusted = []

    def remove_snapshot(self, offset: int) -> None:
        """Forget a snapshot and remove its file; what the disk refuses is found again at the next start."""
        self._missed.pop(offset, None)
        if offset in self._snapshots:
            self._snapshots.remove(offset)
            try:
                self._file_system.remove(self.snapshot_path(offset))
            except StorageFailure as failure:
                log.warning("snapshot_not_removed", error=str(failure))

    def forget_snapshot(self, offset: int) -> Path | None:
        """Forget a snapshot whose file the caller deletes with its segment; None when there is none."""
        self._missed.pop(offset, None)
        if offset not in self._snapshots:
            return None
        self._snapshots.remove(offset)
        return self.snapshot_path(offset)

    def snapshot_path(self, offset: int) -> Path:
        return self._directory / offset_file_name(offset, SNAPSHOT_SUFFIX)

    def existing_snapshot_path(self, offset: int) -> Path:
        """StorageFailure when there is none."""
        if offset not in self._snapshots:
            raise StorageFailure(f"{self.snapshot_path(offset)}: no such snapshot")
        return self.snapshot_path(offset)

    def moved_to(self, directory: Path) -> None:
        self._directory = directory

    def take_snapshot(self) -> None:
        """Write the state at `map_end_offset`, unless the newest snapshot is as new.  Never fails: `write_missed` makes
        up for it."""
        offset = self.map_end_offset
        if offset <= (self._snapshots[-1] if self._snapshots else 0):
            return
        self._missed[offset] = encode_snapshot(self._producers.values())
        try:
            self._write_missed(offset)
        except StorageFailure as failure:
            log.warning("producer_snapshot_failed", offset=offset, error=str(failure))

    def write_missed(self) -> bool:
        """Write the snapshots that could not be written; returns whether there were any.  StorageFailure: try again."""
        missed = sorted(self._missed)
        for offset in missed:
            self._write_missed(offset)
        return bool(missed)

    def _write_missed(self, offset: int) -> None:
        path = self.snapshot_path(offset)
        try:
            self._write(path, self._missed[offset])
        except StorageFailure:
            self._remove_quietly(path)
            raise
        del self._missed[offset]
        insort(self._snapshots, offset)
        self.unsynced_snapshots.append(offset)

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Forget what is beyond `log_end_offset`: the state becomes that of the newest snapshot at or below it, and
        the caller replays the log from `map_end_offset`."""
        self._remove_snapshots(lambda offset: offset > log_end_offset or offset <= log_start_offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
            return
        self._clear()
        self.map_end_offset = log_start_offset
        for offset in reversed(self._snapshots[:]):
            try:
                entries = decode_snapshot(read_file(self._file_system, self.snapshot_path(offset)))
            except (CorruptSnapshotError, FileNotFoundError) as error:
                log.warning("producer_snapshot_unusable", path=str(self.snapshot_path(offset)), error=str(error))
                self.remove_snapshot(offset)
                continue
            self._restore(entries, now_ms)
            self.map_end_offset = offset
            return

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Nothing is known any more, and no snapshot is left."""
        self._clear()
        self._remove_snapshots(lambda _: True)
        self.map_end_offset = offset

    def prepare_restore(self, offset: int, content: Buffer) -> list[ProducerStateEntry]:
        """Put the content of a snapshot aside as the one at `offset`, for `complete_restore`; returns what is in it.
        CorruptMessageError, StorageFailure: nothing changed."""
        try:
            entries = decode_snapshot(content)
        except CorruptSnapshotError as error:
            raise CorruptMessageError(f"Producer snapshot at {offset} for {self._directory.name}: {error}") from error
        self._write(self._path_aside(offset), content)
        return entries

    def complete_restore(self, offset: int, entries: list[ProducerStateEntry], now_ms: int) -> None:
        """After `truncate_fully_and_start_at(offset)`: the state is what was prepared.  StorageFailure."""
        self._file_system.rename(self._path_aside(offset), self.snapshot_path(offset))
        self._snapshots.append(offset)
        self.unsynced_snapshots.append(offset)
        self._restore(entries, now_ms)

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        self.on_high_watermark_updated(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)

    def _restore(self, entries: list[ProducerStateEntry], now_ms: int) -> None:
        limit = now_ms - self.expiration_ms
        for entry in sorted(entries, key=lambda entry: entry.current_txn_first_offset or 0):
            first_offset = entry.current_txn_first_offset
            if first_offset is None and entry.last_timestamp <= limit:
                continue
            self._producers[entry.producer_id] = entry
            if first_offset is not None:
                self._ongoing[first_offset] = TxnMetadata(entry.producer_id, first_offset)

    def _write(self, path: Path, content: Buffer) -> None:
        file = self._file_system.open(path, create=True)
        try:
            file.write_at(0, [content])
            if file.size() > len(content):
                file.truncate(len(content))
        finally:
            file.close()

    def _path_aside(self, offset: int) -> Path:
        return self._directory / offset_file_name(offset, SNAPSHOT_SUFFIX + TEMPORARY_SUFFIX)

    def _clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._expected_first.clear()

    def _remove_snapshots(self, is_gone: Callable[[int], bool]) -> None:
        for offset in [offset for offset in (*self._snapshots, *self._missed) if is_gone(offset)]:
            self.remove_snapshot(offset)

    def _remove_quietly(self, path: Path) -> None:
        with contextlib.suppress(StorageFailure):
            self._file_system.remove(path)
