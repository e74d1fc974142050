"""UnifiedLog: one partition's log: segments, producer state, leader epochs and watermarks (Kafka's class of that name).

Appends are plain functions: they check, write and then change memory, so every reader sees before or after.  Until
the write has succeeded nothing in memory has changed, so a full disk costs the batches at hand and nothing else.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from broker.common.buffers import Buffer
from broker.common.errors import StorageFailure
from broker.common.identifiers import NEVER_TIERED_TOPICS, NO_EPOCH, NO_OFFSET, TopicPartition
from broker.config.topic_config import TopicConfig
from broker.log.flush_plan import FlushPlan
from broker.log.follower_append import FollowerAppend
from broker.log.leader_append import LeaderAppend, make_validator
from broker.log.leader_epoch_file_cache import EpochEndOffset, EpochEntry, LeaderEpochFileCache
from broker.log.local_log import LocalLog
from broker.log.log_append import ActiveProducer, LogAppendInfo, LogAppendResult, LogRead
from broker.log.log_environment import LogEnvironment
from broker.log.log_flush import LogFlush
from broker.log.log_retention import LogRetention
from broker.log.log_segment import LogSegment, TimestampAndOffset
from broker.log.log_segments import LogSegments
from broker.log.log_start import LogStart
from broker.log.log_truncation import LogTruncation
from broker.log.partition_metadata_file import PartitionMetadataFile
from broker.log.producer_state_entry import CompletedTxn, ProducerAppendInfo
from broker.log.producer_state_manager import ProducerStateManager
from broker.records.append_origin import AppendOrigin
from broker.records.record_batch import RecordBatch, batches

NEVER: Final = 2**63 - 1  # Kafka's Long.MAX_VALUE: "do not flush by count"


class UnifiedLog:
    """Invariants: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset, log_start_offset <=
    local_log_start_offset <= high_watermark, and recovery_point <= log_end_offset.

    The two starts are equal unless the log is tiered (KIP-405) and its first records are in remote storage alone.

    Made by `log_loader.load_log`; owned by the LogManager, who also flushes, checkpoints and deletes for it.
    """

    __slots__ = (
        "_environment",
        "_epochs",
        "_first_unstable_offset",
        "_flush",
        "_flush_messages",
        "_local",
        "_retention",
        "_start",
        "_truncation",
        "are_settings_known",
        "clean_offset",
        "durable_log_start_offset",
        "flush_ms",
        "high_watermark",
        "highest_remote_offset",
        "is_closed",
        "is_dirty",
        "is_tiered",
        "local_log_start_offset",
        "log_start_offset",
        "newest_epoch",
        "producer_state_manager",
        "segment_bytes",
        "segment_ms",
        "topic_id",
        "topic_partition",
        "validator",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        local_log: LocalLog,
        producer_state_manager: ProducerStateManager,
        leader_epochs: LeaderEpochFileCache,
        *,
        log_start_offset: int,
        topic_id: UUID | None,
        is_synced: bool,
        are_settings_known: bool = True,
    ) -> None:
        self._environment = environment
        self._local = local_log
        self._epochs = leader_epochs
        self.newest_epoch = NO_EPOCH  # latest_epoch, for the hot path
        self.epochs_changed()
        self._start = LogStart(self)
        self._truncation = LogTruncation(self, environment)
        self._retention = LogRetention(self, environment)
        self._flush = LogFlush(self, environment, is_name_synced=is_synced)
        self.topic_partition: TopicPartition = local_log.topic_partition
        self.topic_id = topic_id  # None: the directory does not say yet
        self.producer_state_manager = producer_state_manager
        self.are_settings_known = are_settings_known
        self.log_start_offset = log_start_offset  # in both tiers
        self.durable_log_start_offset = log_start_offset  # as the device has it: a crash does not take it back further
        self.local_log_start_offset = max(log_start_offset, local_log.segments.first.base_offset)  # on this disk
        self.clean_offset: int | None = None  # below it the log is compacted; None: no cleaner has been at it
        self.highest_remote_offset = NO_OFFSET  # inclusive; of what is known to be in remote storage
        self.high_watermark = self.local_log_start_offset
        self.is_dirty = False  # changed since it was loaded or closed: there is something to flush
        self.is_closed = False
        self._first_unstable_offset: int | None = None
        self.refresh_first_unstable_offset()
        self.update_config(local_log.config)

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def config(self) -> TopicConfig:
        return self._local.config

    @property
    def directory(self) -> Path:
        return self._local.directory

    @property
    def log_end_offset(self) -> int:
        return self._local.log_end_offset

    @property
    def recovery_point(self) -> int:
        """Recovery after a crash reads from the segment that contains this offset."""
        return self._flush.recovery_point

    @property
    def segments(self) -> LogSegments:
        return self._local.segments

    @property
    def local_log(self) -> LocalLog:
        return self._local

    @property
    def leader_epochs(self) -> LeaderEpochFileCache:
        return self._epochs

    @property
    def latest_epoch(self) -> int | None:
        """The leader epoch of the newest records; None when no epoch is known."""
        return self._epochs.latest_epoch

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is open (KIP-98)."""
        first = self._first_unstable_offset
        high_watermark = self.high_watermark
        return high_watermark if first is None or first > high_watermark else first

    @property
    def size_bytes(self) -> int:
        return self._local.segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._local.segments)

    @property
    def producer_count(self) -> int:
        return len(self.producer_state_manager.producers)

    @property
    def last_flush_ms(self) -> int:
        return self._flush.last_flush_ms

    @property
    def truncation_count(self) -> int:
        """How often the log was cut or begun anew since it was loaded: an offset may hold another record after it."""
        return self._truncation.count

    @property
    def unflushed_messages(self) -> int:
        return self._local.log_end_offset - self._local.recovery_point

    def active_producers(self) -> list[ActiveProducer]:
        """For DescribeProducers."""
        return self.producer_state_manager.active_producers()

    def update_config(self, config: TopicConfig) -> None:
        """The topic's settings changed; the next append sees them."""
        self._local.config = config
        self.segment_bytes = config.segment_bytes
        self.segment_ms = min(config.segment_ms, config.max_compaction_lag_ms if config.is_compact else NEVER)
        self._flush_messages = config.flush_messages
        self.flush_ms = config.flush_ms  # here, because it is looked at for every log each second
        self.validator = make_validator(config, str(self.topic_partition))
        self._local.segments.active.index_interval_bytes = config.index_interval_bytes
        self.is_tiered = (
            self._environment.is_remote_storage_enabled
            and config.remote_storage_enable
            and not config.is_compact
            and self.topic_partition.topic not in NEVER_TIERED_TOPICS
        )
        if not self.is_tiered:
            self.highest_remote_offset = NO_OFFSET  # what it vouched for is on its way out

    def settle(self, config: TopicConfig) -> None:
        """The first time the topic's settings are known: until then the log may start below this disk, and nothing of
        it is deleted."""
        self.update_config(config)
        self.are_settings_known = True
        self._start.settle()

    def assign_topic_id(self, topic_id: UUID) -> None:
        """The first time the topic's id is known.  StorageFailure."""
        assert self.topic_id in (None, topic_id), f"{self.topic_partition} has topic id {self.topic_id}, not {topic_id}"
        if self.topic_id is None:
            PartitionMetadataFile(self._environment.file_system, self.directory).write(topic_id)
            self.topic_id = topic_id
            self._flush.is_name_synced = False
            self._local.unsynced_directory = True

    # -- append ----------------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        batches: Sequence[RecordBatch],
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        now_ms: int | None = None,
    ) -> list[LogAppendResult]:
        """Append batches in order; one result per batch.

        Their bytes belong to the log and are patched in place.  A refused batch leaves no trace; the others are written
        with one write per segment.  When the disk refuses, that batch and all after it answer StorageFailure, nothing
        of them is in memory or, as far as the disk allows, in the file, and the next append starts afresh.
        """
        if now_ms is None:
            now_ms = self._environment.clock.now_ms()
        return LeaderAppend(self, leader_epoch, origin, now_ms).append(batches)

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> LogAppendInfo:
        """Append what the leader sent, byte for byte: whole batches, a partial one at the end is left out, and so
        are batches of an epoch above `leader_epoch`.

        CorruptMessageError, OffsetsOutOfOrderError, UnexpectedAppendOffsetError: nothing was appended.
        StorageFailure: some leading batches may have been.
        """
        return self.append_batches_as_follower(batches(records), leader_epoch)

    def append_batches_as_follower(self, found: Iterable[RecordBatch], leader_epoch: int) -> LogAppendInfo:
        """The same for batches that were looked at before; each is a view that nobody changes any more."""
        return FollowerAppend(self, leader_epoch, self._environment.clock.now_ms()).append(found)

    def accept_copy(self, batch: RecordBatch) -> None:
        """A batch that was written as the leader sent it is part of the log now."""
        segment = self._local.segments.active
        if batch.partition_leader_epoch > self.newest_epoch:
            self.maybe_assign_epoch_start_offset(batch.partition_leader_epoch, batch.base_offset)
        segment.accept((batch,))
        completed = self.producer_state_manager.replay(batch)
        self._local.log_end_offset = batch.next_offset
        self._complete_transactions(segment, completed)
        if batch.has_producer_id:
            self.refresh_first_unstable_offset()
        self._flushed_inline_if_due()

    def write(self, buffers: Sequence[Buffer], next_offset: int) -> None:
        """Write to the active segment; flush if that is due before an answer.  StorageFailure: nothing changed."""
        active = self._local.segments.active
        active.write(buffers)
        self.is_dirty = True
        if next_offset - self._local.recovery_point >= self._flush_messages:
            try:
                self._flush.run_inline()
            except StorageFailure:
                active.records.abandon()
                raise

    def _flushed_inline_if_due(self) -> None:
        """`_write` flushed what is now accepted."""
        if self._local.log_end_offset - self._local.recovery_point >= self._flush_messages:
            self._local.recovery_point = self._local.log_end_offset

    def should_roll(self, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Whether a batch of that size, timestamp and last offset belongs to a new segment."""
        return self._local.segments.active.should_roll(
            size, max_timestamp, last_offset, now_ms, self.segment_bytes, self.segment_ms
        )

    def roll_at(self, expected_base_offset: int) -> None:
        """Start a new segment for a batch at `expected_base_offset`.  StorageFailure."""
        segment = self._local.roll(expected_base_offset)
        # The state below the new base, so that a start can take it from there.
        self.producer_state_manager.map_end_offset = max(
            self.producer_state_manager.map_end_offset, segment.base_offset
        )
        self.producer_state_manager.take_snapshot()
        self._environment.housekeeping.flush_later(self)

    def roll(self) -> LogSegment:
        """Start a new segment at the log's end, unless the active one is empty.  StorageFailure."""
        self.roll_at(self._local.log_end_offset)
        self.is_dirty = True
        return self._local.segments.active

    def _complete_transactions(self, segment: LogSegment, completed: Sequence[CompletedTxn]) -> None:
        for txn in completed:
            if txn.is_aborted:
                segment.add_aborted(txn, self.producer_state_manager.last_stable_offset_after(txn))
            self.producer_state_manager.complete_txn(txn)

    # -- read ------------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        size_max: int,
        upper_bound_offset: int,
        *,
        min_one_batch: bool,
        with_aborted: bool = False,
    ) -> LogRead:
        """Where the whole batches are from the one with `offset` on, below `upper_bound_offset`, of one segment.

        About `size_max` bytes at most; with `min_one_batch` at least one batch (KIP-74).  Only positions: `read_cached`
        or `read` of `file_records` get the bytes.  OffsetOutOfRangeError; OffsetMovedToTieredStorageError when the log
        is tiered and the offset is below the local log start.
        """
        if offset < self.local_log_start_offset:
            raise self._start.refusal(offset)
        return self._local.read(
            offset, size_max, upper_bound_offset, min_one_batch=min_one_batch, with_aborted=with_aborted
        )

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """The first record at or after the local log start whose timestamp is not smaller.  Waits for the disk."""
        return self._local.find_offset_by_timestamp(timestamp, self.local_log_start_offset)

    def offset_of_max_timestamp(self) -> TimestampAndOffset | None:
        """The first record with the largest timestamp (KIP-734).  Waits for the disk."""
        return self._local.find_max_timestamp()

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """The last epoch at or below `epoch` and where it ended; (-1, -1) when unknown (KIP-101)."""
        return self._epochs.end_offset_for(epoch, self._local.log_end_offset)

    def maybe_assign_epoch_start_offset(self, epoch: int, start_offset: int) -> None:
        """A leader's epoch begins at `start_offset`; old news is ignored."""
        self._epochs.assign(epoch, start_offset)
        self.epochs_changed()

    def epochs_changed(self) -> None:
        """Somebody changed `leader_epochs`."""
        latest = self._epochs.latest_epoch
        self.newest_epoch = NO_EPOCH if latest is None else latest

    def producer_snapshot_path(self, offset: int) -> Path:
        """Of the producers as they were below `offset`, the base of a segment.  StorageFailure when there is none."""
        return self.producer_state_manager.existing_snapshot_path(offset)

    # -- watermarks ------------------------------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, held between local start and log end; returns it.  A follower's may go back."""
        if offset > self._local.log_end_offset:
            offset = self._local.log_end_offset
        if offset < self.local_log_start_offset:
            offset = self.local_log_start_offset
        self.high_watermark = offset
        if self._first_unstable_offset is not None:
            self.producer_state_manager.on_high_watermark_updated(offset)
            self.refresh_first_unstable_offset()
        return offset

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Move the log start forward; returns whether it moved.  OffsetOutOfRangeError above the high watermark.

        The segments below it are deleted by the next pass of retention, remote ones by whoever looks after them.
        """
        return offset > self.log_start_offset and self._start.increment(offset, reason)

    def maybe_increment_local_log_start_offset(self, offset: int, reason: str) -> bool:
        """Records below `offset` leave this disk; returns whether that is news.  OffsetOutOfRangeError as above."""
        return self._start.increment_local(offset, reason)

    def log_start_is_durable(self, offset: int) -> None:
        """A checkpoint on the device says `offset`, where this log started; a truncation may have come meanwhile."""
        self.durable_log_start_offset = min(offset, self.log_start_offset)
        self._epochs.log_start_is_durable(self.durable_log_start_offset)

    def update_highest_remote_offset(self, offset: int) -> None:
        """Everything up to `offset`, inclusive, is known to be in remote storage; old news is ignored."""
        self.highest_remote_offset = max(self.highest_remote_offset, offset)

    def refresh_first_unstable_offset(self) -> None:
        """The producer state or the log start changed."""
        first = self.producer_state_manager.first_unstable_offset
        self._first_unstable_offset = None if first is None else max(first, self.log_start_offset)

    # -- truncation ------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Drop everything from `offset` on; returns whether anything was dropped.  A batch that holds `offset` goes
        as a whole, and the log ends where that began, or at a later log start.  StorageFailure.

        In Kafka it ends at `offset`, until a restart; what is appended next would leave a hole.  A leader whose records
        begin within the batch (DeleteRecords) names such an offset.

        Below the local log start nothing is left on this disk; what remote storage has below `offset` stays part of the
        log, where Kafka forgets it.
        """
        return self._truncation.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything and begin at `offset`, without leader epochs; the log starts there or, in remote storage, at
        `log_start_offset`.  StorageFailure."""
        self._truncation.truncate_fully_and_start_at(offset, log_start_offset)

    def restore_from_remote(
        self, next_offset: int, log_start_offset: int, leader_epochs: Iterable[EpochEntry], producer_snapshot: Buffer
    ) -> None:
        """Drop everything; the log goes on at `next_offset`, and what is below is in remote storage: its leader epochs,
        and the producers it knew as the bytes of a snapshot (Kafka: TierStateMachine.buildRemoteLogAuxState).

        CorruptMessageError, and nothing changed, when that is no snapshot; StorageFailure: to be tried again.  The
        device has it all with the next flush, which is asked for.
        """
        self._truncation.restore_from_remote(next_offset, log_start_offset, leader_epochs, producer_snapshot)

    # -- retention, flush, close -----------------------------------------------------------------------------------

    def delete_old_segments(self) -> int:
        """Delete what the log start, retention.bytes and retention.ms leave behind; returns the number of segments.

        The files are set aside now and removed later by the owner.
        """
        return self._retention.delete_old_segments()

    def delete_segments_below(self, offset: int, reason: str) -> int:
        """Move the log start to `offset` and delete the segments wholly below it, whatever the cleanup policy: for
        internal topics whose owner knows that older records are superseded.  OffsetOutOfRangeError."""
        self.maybe_increment_log_start_offset(offset, reason)
        return self._retention.delete_below_log_start()

    def remove_expired_producers(self, now_ms: int) -> int:
        return self.producer_state_manager.remove_expired(now_ms)

    def plan_flush(self, offset: int | None = None) -> FlushPlan | None:
        """What must be on the device before the recovery point may be `offset` (default: the log end); None when it
        is there already.  Run the plan anywhere, then `complete_flush` or `abandon_flush`.  StorageFailure."""
        return self._flush.plan(offset)

    def complete_flush(self, plan: FlushPlan) -> None:
        """The plan ran: the recovery point moves."""
        self._flush.complete(plan)

    def abandon_flush(self, plan: FlushPlan) -> None:
        """The plan failed: the next one does what this one meant to do."""
        self._flush.abandon(plan)

    def flush(self) -> None:
        """Plan, run and complete in one: waits for the device.  StorageFailure."""
        self._flush.run_now(None)

    def prepare_close(self) -> FlushPlan | None:
        """Write what a clean start relies on, and return what must still be flushed; None when nothing changed since
        the log was loaded.  StorageFailure."""
        return self._flush.prepare_close()

    def close(self) -> None:
        """Give back descriptors and memory.  Without `prepare_close` and its plan the next start recovers."""
        self.is_closed = True
        for segment in self._local.segments:
            segment.close()

    def renamed_to(self, directory: Path) -> None:
        """The owner renamed the partition's directory."""
        self._local.directory = directory
        self._epochs.moved_to(directory)
        self.producer_state_manager.moved_to(directory)
        for segment in self._local.segments:
            segment.moved_to(directory)

    def count_storage_failure(self) -> None:
        self._environment.metrics.storage_failures.increment()

    # -- for LeaderAppend -----------------------------------------------------------------------------------------

    def accept_leader_batches(self, infos: dict[int, ProducerAppendInfo], next_offset: int) -> None:
        """Batches that were written and accepted by the active segment: the log ends after them now."""
        manager = self.producer_state_manager
        if infos:
            segment = self._local.segments.active
            for info in infos.values():
                manager.update(info)
                self._complete_transactions(segment, info.completed)
            if manager.has_open_or_unreplicated_transactions:
                self.refresh_first_unstable_offset()
        manager.map_end_offset = next_offset
        self._local.log_end_offset = next_offset
        self._flushed_inline_if_due()
