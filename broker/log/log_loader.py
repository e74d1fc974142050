"""LogLoader: from the files in a partition's directory to an open log (Kafka's class of that name).

After a clean stop nothing is scanned.  After any other stop every segment from the one that contains the recovery
point is read in full: what is not a whole valid batch is cut, and whatever comes after a cut is dropped, so that the
log is a prefix of what was written.  Index, snapshot and epoch files that the disk refuses to write do not stop it.
"""

from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import structlog

from broker.common.errors import CorruptMessageError, StorageFailure
from broker.common.file_system import FileSystem
from broker.common.identifiers import TopicPartition
from broker.config.topic_config import TopicConfig
from broker.log.abstract_index import CorruptIndexError
from broker.log.file_records import FileRecords
from broker.log.leader_epoch_file_cache import LEADER_EPOCH_CHECKPOINT, LeaderEpochFileCache
from broker.log.local_log import LocalLog, new_segment, segment_jitter_ms
from broker.log.log_environment import LogEnvironment
from broker.log.log_file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_file_name,
    offset_of_file,
    segment_paths,
)
from broker.log.log_segment import LogSegment
from broker.log.log_segments import LogSegments
from broker.log.offset_checkpoint_file import CheckpointFormatError
from broker.log.offset_index import OffsetIndex
from broker.log.partition_metadata_file import (
    PARTITION_METADATA,
    PartitionMetadataFile,
    PartitionMetadataFormatError,
)
from broker.log.producer_state_entry import CompletedTxn
from broker.log.producer_state_manager import ProducerStateManager
from broker.log.time_index import TimeIndex
from broker.log.transaction_index import TransactionIndex
from broker.log.unified_log import UnifiedLog
from broker.records.record_batch import RecordBatch

log = structlog.get_logger(__name__)


class Recovery(NamedTuple):
    """What recovery had to do."""

    segments: int = 0
    scanned_bytes: int = 0
    cut_bytes: int = 0


class LoadedLog(NamedTuple):
    log: UnifiedLog
    recovery: Recovery


def load_log(
    environment: LogEnvironment,
    directory: Path,
    topic_partition: TopicPartition,
    config: TopicConfig,
    *,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    had_clean_shutdown: bool = True,
    was_compacted: bool = False,
    are_settings_known: bool = True,
) -> LoadedLog:
    """Open the log in `directory`, or a new one where there are no files.  Waits for the disk; StorageFailure.

    `was_compacted`: a log cleaner has been here, whatever the topic's configuration says now.  With
    `are_settings_known` False `config` is but a guess, and `UnifiedLog.settle` is to be called when it is not any more.
    """
    loader = LogLoader(
        environment,
        directory,
        topic_partition,
        config,
        may_have_holes=was_compacted or config.is_compact,
        are_settings_known=are_settings_known,
    )
    return loader.load(recovery_point, log_start_offset, had_clean_shutdown)


class LogLoader:
    """Loads one log, once."""

    def __init__(
        self,
        environment: LogEnvironment,
        directory: Path,
        topic_partition: TopicPartition,
        config: TopicConfig,
        *,
        may_have_holes: bool,
        are_settings_known: bool,
    ) -> None:
        self._environment = environment
        self._file_system: FileSystem = environment.file_system
        self._directory = directory
        self._topic_partition = topic_partition
        self._config = config
        self._may_have_holes = may_have_holes
        self._are_settings_known = are_settings_known
        self._may_start_remotely = config.remote_storage_enable or not are_settings_known
        self._log = log.bind(log=str(topic_partition))
        self._segments = LogSegments()
        self._epochs = LeaderEpochFileCache(self._file_system, directory)
        self._producers = ProducerStateManager(self._file_system, directory, environment.producer_id_expiration_ms)
        self._recovery = Recovery()
        self._recovered_from: int | None = None
        self._has_holes = False

    def load(self, recovery_point: int, log_start_offset: int, had_clean_shutdown: bool) -> LoadedLog:
        names = settle_interrupted_work(self._file_system, self._directory)
        topic_id = self._read_topic_id() if PARTITION_METADATA in names else None
        self._producers.load_snapshot_names(names)
        try:
            if LEADER_EPOCH_CHECKPOINT in names:
                self._epochs = LeaderEpochFileCache.load(self._file_system, self._directory)
        except CheckpointFormatError as error:
            self._log.warning("leader_epochs_unreadable", error=str(error))
            had_clean_shutdown, recovery_point = False, 0  # the batches say those of this disk
        untrusted = self._open_segments(names, recovery_point)
        if self._lacks_first_epochs(log_start_offset):
            had_clean_shutdown, recovery_point = False, min(recovery_point, log_start_offset)
        if not had_clean_shutdown and len(self._segments):
            tail = self._segments.from_offset(recovery_point)
            if not self._may_have_holes:  # the batches that began an epoch may be gone
                self._epochs.truncate_from_end(tail[0].base_offset)  # the batches of the tail say them again
            self._producers.distrust_snapshots_above(tail[0].base_offset)  # these may tell of batches that were lost
            self._recover(tail, log_start_offset)
        else:
            for segment in untrusted:
                if segment in self._segments:
                    self._recover([segment], log_start_offset)
        next_offset = self._settle_end(log_start_offset)
        recovery_point = next_offset if had_clean_shutdown else min(recovery_point, next_offset)
        if self._recovered_from is not None:  # its new indexes are not on the device
            recovery_point = min(recovery_point, max(self._recovered_from, log_start_offset))
        if not self._may_start_remotely:
            log_start_offset = max(log_start_offset, self._segments.first.base_offset)
        self._epochs.truncate_from_end(next_offset)
        self._epochs.truncate_from_start(log_start_offset)
        self._epochs.log_start_is_durable(log_start_offset)
        self._load_producer_state(log_start_offset, next_offset, had_clean_shutdown)
        local_log = LocalLog(
            self._environment,
            self._directory,
            self._topic_partition,
            self._config,
            self._segments,
            recovery_point=recovery_point,
            log_end_offset=next_offset,
        )
        self._mark_flushed(recovery_point)
        is_new = not names
        local_log.unsynced_directory = is_new or not had_clean_shutdown
        unified_log = UnifiedLog(
            self._environment,
            local_log,
            self._producers,
            self._epochs,
            log_start_offset=log_start_offset,
            topic_id=topic_id,
            is_synced=not local_log.unsynced_directory,
            are_settings_known=self._are_settings_known,
        )
        self._segments.active.records.release()  # an idle log holds no descriptor
        unified_log.is_dirty = is_new or not had_clean_shutdown or self._recovery.segments > 0
        if self._has_holes:
            unified_log.clean_offset = log_start_offset  # a cleaner has been here, if no checkpoint says where
        return LoadedLog(unified_log, self._recovery)

    def _mark_flushed(self, recovery_point: int) -> None:
        for segment in self._segments:
            if segment.base_offset < recovery_point and segment.is_sealed:
                segment.is_flushed = segment.base_offset != self._recovered_from

    def _lacks_first_epochs(self, log_start_offset: int) -> bool:
        """The file is missing, or was written for a log start that was not written before a crash: that has gone back,
        and the batches say which epochs are below.  Those of remote records are told by remote storage."""
        earliest = self._epochs.earliest_entry
        if earliest is None:
            return any(segment.size_bytes for segment in self._segments)
        if not len(self._segments) or self._may_have_holes:
            return False
        return earliest.start_offset > max(log_start_offset, self._segments.first.base_offset)

    def _read_topic_id(self) -> UUID | None:
        try:
            return PartitionMetadataFile(self._file_system, self._directory).read()
        except PartitionMetadataFormatError as error:
            self._log.warning("partition_metadata_unreadable", error=str(error))
            return None

    # -- segments --------------------------------------------------------------------------------------------------

    def _open_segments(self, names: list[str], recovery_point: int) -> list[LogSegment]:
        """Make the segments of all log files; returns those whose indexes cannot be trusted."""
        known = set(names)
        untrusted = []
        for name in names:
            if name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)):
                if name.partition(".")[0] + LOG_SUFFIX not in known:
                    self._log.warning("orphan_index_removed", file=name)
                    self._remove(self._directory / name)
            elif name.endswith(LOG_SUFFIX):
                segment = self._open_segment(offset_of_file(name), known)
                self._segments.add(segment)
                if not self._is_trusted(segment, known):
                    untrusted.append(segment)
        if not self._may_have_holes:
            self._drop_leftover(recovery_point)
        for segment in list(self._segments)[:-1]:
            segment.is_sealed = True
        return untrusted

    def _drop_leftover(self, recovery_point: int) -> None:
        """A truncation below the first segment did not come to its end: what the log was to begin with is there, and so
        is what was to go.  Then it is as it was before.  (An empty segment whose records were lost lies at or above the
        recovery point, and what follows it goes.)"""
        first = self._segments.first if len(self._segments) > 1 else None
        following = None if first is None or first.size_bytes else self._segments.higher(first.base_offset)
        if first is not None and following is not None and following.base_offset <= recovery_point:
            self._log.warning("truncation_undone", segment=first.base_offset, log_begins_at=following.base_offset)
            self._segments.remove(first.base_offset)
            self._remove(first.records.path)

    def _open_segment(self, base_offset: int, names: set[str]) -> LogSegment:
        log_path, index_path, time_index_path, transaction_index_path = segment_paths(self._directory, base_offset)
        size_max = self._config.segment_index_bytes
        size = self._file_system.size(log_path)
        return LogSegment(
            self._file_system,
            self._environment.segment_cache,
            base_offset,
            FileRecords(self._file_system, log_path, size),
            (
                OffsetIndex(self._file_system, index_path, base_offset, size_max, exists=index_path.name in names),
                TimeIndex(
                    self._file_system, time_index_path, base_offset, size_max, exists=time_index_path.name in names
                ),
                TransactionIndex(
                    self._file_system,
                    transaction_index_path,
                    base_offset,
                    exists=transaction_index_path.name in names,
                ),
            ),
            created_ms=self._environment.clock.now_ms(),
            index_interval_bytes=self._config.index_interval_bytes,
            roll_jitter_ms=segment_jitter_ms(self._environment, self._config),
        )

    def _is_trusted(self, segment: LogSegment, names: set[str]) -> bool:
        if segment.size_bytes and segment.offset_index.path.name not in names:
            self._log.warning("index_missing", segment=segment.base_offset)
            return False
        try:
            if segment.transaction_index.path.name in names:
                segment.transaction_index.sanity_check()
        except CorruptIndexError as error:
            self._log.warning("index_untrusted", segment=segment.base_offset, error=str(error))
            return False
        return True

    # -- recovery --------------------------------------------------------------------------------------------------

    def _recover(self, segments: list[LogSegment], log_start_offset: int) -> None:
        """Read `segments`, consecutive ones, in full.  What follows a cut or a hole is dropped."""
        first = segments[0]
        self._recovered_from = min(first.base_offset, self._recovered_from or first.base_offset)
        self._restore_producers_below(first, log_start_offset)
        expected_offset = first.base_offset
        for number, segment in enumerate(segments):
            if number and not self._may_follow(segment, expected_offset):
                self._log.warning("segments_dropped", from_segment=segment.base_offset, expected=expected_offset)
                self._drop(segments[number:])
                return
            size = segment.size_bytes
            self._producers.map_end_offset = segment.base_offset
            if number:
                self._producers.take_snapshot()
            cut = segment.recover(self._on_batch)
            expected_offset = self._producers.map_end_offset
            done = self._recovery
            self._recovery = Recovery(done.segments + 1, done.scanned_bytes + size, done.cut_bytes + cut)
            if cut:
                self._log.warning("log_cut", segment=segment.base_offset, bytes=cut, log_end_offset=expected_offset)
                self._drop([later for later in self._segments if later.base_offset > segment.base_offset])
                self._sync_cut(segment)
                return

    def _may_follow(self, segment: LogSegment, expected_offset: int) -> bool:
        """A segment that begins below the end of the one before is a leftover of a truncation; one that begins above
        it follows records that were lost, except where compaction makes holes."""
        if segment.base_offset == expected_offset:
            return True
        is_behind_hole = segment.base_offset > expected_offset and self._may_have_holes
        self._has_holes = self._has_holes or is_behind_hole
        return is_behind_hole

    def _on_batch(self, batch: RecordBatch) -> list[tuple[CompletedTxn, int]]:
        self._epochs.recovered(batch.partition_leader_epoch, batch.base_offset)
        aborted = []
        for completed in self._producers.replay(batch):
            if completed.is_aborted:
                aborted.append((completed, self._producers.last_stable_offset_after(completed)))
            self._producers.complete_txn(completed)
        return aborted

    def _restore_producers_below(self, segment: LogSegment, log_start_offset: int) -> None:
        """Producer state at the base of the first segment to recover."""
        base_offset = segment.base_offset
        start = self._producers_start(log_start_offset)
        self._producers.truncate_and_reload(min(start, base_offset), base_offset, self._environment.clock.now_ms())
        self._producers.catch_up(self._segments, base_offset)

    def _producers_start(self, log_start_offset: int) -> int:
        """Snapshots at or below this offset are of no use.  One at the first base may tell of records that are in
        remote storage; others below it are leftovers, as what came after them is not there to be replayed."""
        first = self._segments.first.base_offset
        return max(log_start_offset, first - 1 if self._may_start_remotely else first)

    def _drop(self, segments: list[LogSegment]) -> None:
        for segment in reversed(segments):
            self._segments.remove(segment.base_offset)
            for path in segment.rename_deleted():
                self._remove(path)
        self._producers.remove_snapshots_above(self._producers.map_end_offset)
        if len(self._segments) and self._segments.active.is_sealed:
            self._segments.active.unseal()
        self._sync_cut(None)

    def _sync_cut(self, segment: LogSegment | None) -> None:
        """What was cut or dropped must not come back after the next crash, behind newer records."""
        try:
            if segment is not None:
                segment.records.sync()
            else:
                self._file_system.sync_directory(self._directory)
        except StorageFailure as failure:
            self._log.warning("cut_not_flushed", error=str(failure))

    # -- ends ------------------------------------------------------------------------------------------------------

    def _settle_end(self, log_start_offset: int) -> int:
        """Make sure that there is an active segment; returns the log end offset."""
        if len(self._segments):
            next_offset = self._read_next_offset(log_start_offset)
            if next_offset >= log_start_offset:
                return next_offset
            self._log.warning("log_ends_below_its_start", log_end_offset=next_offset, log_start_offset=log_start_offset)
            self._drop(list(self._segments))
            self._epochs.clear()
            self._producers.truncate_fully_and_start_at(log_start_offset)
        first = new_segment(self._environment, self._directory, log_start_offset, self._config, may_replace=False)
        self._segments.add(first)
        return log_start_offset

    def _read_next_offset(self, log_start_offset: int) -> int:
        active = self._segments.active
        try:
            active.sanity_check()
            return active.read_next_offset()
        except (CorruptIndexError, CorruptMessageError) as error:
            self._log.warning("segment_untrusted", segment=active.base_offset, error=str(error))
            self._recover([active], log_start_offset)
            return active.read_next_offset()

    def _load_producer_state(self, log_start_offset: int, next_offset: int, had_clean_shutdown: bool) -> None:
        producers = self._producers
        producers.remove_stray_snapshots(self._segments.base_offsets)
        if had_clean_shutdown and producers.latest_snapshot_offset is None:
            producers.map_end_offset = next_offset  # stopped before any producer was known, or by an old version
            return
        start = self._producers_start(log_start_offset)
        producers.truncate_and_reload(start, next_offset, self._environment.clock.now_ms())
        producers.catch_up(self._segments, next_offset)
        if not had_clean_shutdown:
            producers.take_snapshot()
            producers.remove_distrusted()

    def _remove(self, path: Path) -> None:
        try:
            self._file_system.remove(path)
        except StorageFailure as failure:
            self._log.warning("file_not_removed", path=str(path), error=str(failure))


def settle_interrupted_work(file_system: FileSystem, directory: Path) -> list[str]:
    """Finish or undo what a stop interrupted; returns the names that are left.

    `.deleted`, `.cleaned` and `.tmp` files go.  `.swap` files are complete: they replace the segments they cover,
    unless a `.cleaned` file shows that their group was not complete.
    """
    names = file_system.list_directory(directory)
    cleaned = [offset_of_file(name) for name in names if name.endswith(CLEANED_SUFFIX)]
    least_cleaned = min(cleaned, default=None)
    swaps: list[str] = []
    for name in names:
        is_swap = name.endswith(SWAP_SUFFIX)
        if is_swap and (least_cleaned is None or offset_of_file(name) < least_cleaned):
            swaps.append(name)
        elif is_swap or name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX)):
            file_system.remove(directory / name)
    if swaps:
        _complete_swaps(file_system, directory, swaps, names)
        return file_system.list_directory(directory)
    return [
        name for name in names if not name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX, SWAP_SUFFIX))
    ]


def _complete_swaps(file_system: FileSystem, directory: Path, swaps: list[str], names: list[str]) -> None:
    logs = [name for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    if logs:
        least = min(map(offset_of_file, logs))
        end = max(_next_offset(file_system, directory / name) for name in logs)
        plain = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
        for name in names:
            if name.endswith(plain) and least <= offset_of_file(name) < end:
                file_system.remove(directory / name)
    for name in swaps:
        file_system.rename(directory / name, directory / name.removesuffix(SWAP_SUFFIX))


def _next_offset(file_system: FileSystem, path: Path) -> int:
    """Above the base also of an empty one: the old segment of that base has indexes, and a new empty one has none."""
    records = FileRecords(file_system, path, file_system.size(path))
    next_offset = offset_of_file(path.name) + 1
    for batch in records.batch_positions(0):
        next_offset = batch.last_offset + 1
    return next_offset


def partition_directory(log_directory: Path, topic_partition: TopicPartition) -> Path:
    return log_directory / str(topic_partition)


__all__ = ["LoadedLog", "LogLoader", "Recovery", "load_log", "offset_file_name", "partition_directory"]
