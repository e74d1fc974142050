"""CopyTask: a leader copies the closed segments of a log to remote storage (Kafka: RLMCopyTask)."""

import dataclasses

import structlog

from broker.common.errors import ReplicaNotAvailableError
from broker.log.log_segment import LogSegment
from broker.log.offset_checkpoint_file import encode_checkpoint
from broker.log.unified_log import UnifiedLog
from broker.schemas.remote_log_metadata import RemoteLogSegmentState
from broker.tiering.copy_plan import CopyCandidate, LocalSegment, copy_candidates, copy_lag, segment_to_copy
from broker.tiering.errors import RemoteStorageError
from broker.tiering.follower_task import raise_highest_remote_offset
from broker.tiering.leader_epochs import epochs_below
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata
from broker.tiering.remote_log_start import RemoteLogStart
from broker.tiering.remote_storage_manager import LogSegmentData
from broker.tiering.remote_task_context import RemoteTaskContext
from broker.tiering.segment_deletion import delete_segment, update_of
from broker.tiering.tiered_partition import LogChangedError, LogView, TieredPartition

log = structlog.get_logger(__name__)


class CustomMetadataTooLargeError(RemoteStorageError):
    """Of remote.log.metadata.custom.metadata.max.bytes (Kafka: CustomMetadataSizeLimitExceededException)."""


class CopyTask:
    """One segment after the other, oldest first; what fails is copied again by the next run, under a new id.

    How far the log is copied is its `highest_remote_offset`, which goes back when copies are lost; each run looks
    again.
    """

    def __init__(self, partition: TieredPartition, context: RemoteTaskContext, start: RemoteLogStart) -> None:
        self.has_given_up = False
        """Nothing is copied any more, until there is another leader epoch: the custom metadata was too large."""
        self._partition = partition
        self._context = context
        self._start = start
        self._counts = context.stats.topic(partition.partition.topic)
        self._view: LogView | None = None

    async def run(self) -> None:
        """Copy what there is to copy.  ReplicaNotAvailableError, RemoteStorageError, StorageFailure."""
        view = self._current_view()
        if view is None or self.has_given_up:
            return
        try:
            await self._run(view)
        except LogChangedError as change:
            log.info("remote_copy_ended", partition=self._partition.name, reason=str(change))

    def _current_view(self) -> LogView | None:
        if self._view is None or not self._view.is_current:
            self._view = self._partition.look(as_leader=True)
        return self._view

    async def _run(self, view: LogView) -> None:
        await self._start.settle(view)
        await raise_highest_remote_offset(self._partition, view, self._context.metadata)
        self._show_lag(view.log)
        while (candidate := self._next(view.log)) is not None:
            await self._context.copy_quota.acquire(candidate.segment.size_in_bytes)
            view.check()
            if self._next(view.log) == candidate:
                await self._copy(view, candidate)
                # More than that is there if the segment filled a hole.
                await raise_highest_remote_offset(self._partition, view, self._context.metadata)
                self._show_lag(view.log)
                if view.log.highest_remote_offset < candidate.end_offset:
                    return  # it was deleted at once; not again before the next run

    def _next(self, local: UnifiedLog) -> CopyCandidate | None:
        """As the log is now: it may have got longer, and its start may have moved."""
        copied_offset = local.highest_remote_offset
        from_offset = max(copied_offset + 1, local.log_start_offset)
        window = [_local_segment(segment) for segment in local.segments.from_offset(from_offset)[:2]]
        found = copy_candidates(
            window,
            copied_offset=copied_offset,
            log_start_offset=local.log_start_offset,
            last_stable_offset=local.last_stable_offset,
        )
        return found[0] if found else None

    async def _copy(self, view: LogView, candidate: CopyCandidate) -> None:
        self._counts.copy_requests += 1
        try:
            await self._copy_segment(view, candidate)
        except (LogChangedError, ReplicaNotAvailableError):
            raise
        except Exception:
            self._counts.copy_errors += 1
            raise
        self._counts.copy_bytes += candidate.segment.size_in_bytes

    async def _copy_segment(self, view: LogView, candidate: CopyCandidate) -> None:
        context = self._context
        data = segment_data(view.log, candidate)
        segment = segment_to_copy(
            candidate,
            self._partition.partition,
            context.chance.uuid(),
            view.log.leader_epochs.entries,
            broker_id=context.local_broker_id,
            now_ms=context.clock.now_ms(),
        )
        self._partition.being_copied.add(segment.segment_id)
        try:
            await context.metadata.add_remote_log_segment_metadata(segment)
            view.check()
            custom_metadata = await self._store(segment, data)
            view.check()  # the files may have changed meanwhile
            finished = update_of(segment, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, context, custom_metadata)
            await context.metadata.update_remote_log_segment_metadata(finished)
            view.check()
        finally:
            self._partition.being_copied.discard(segment.segment_id)

    async def _store(self, segment: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        """Its custom metadata.  After an error nothing of it is left, if that can be done."""
        try:
            custom_metadata = await self._context.storage.copy_log_segment_data(segment, data)
        except Exception:
            await self._remove_leftovers(segment)
            raise
        size_max = self._context.config.current.remote_log_metadata_custom_metadata_max_bytes
        if custom_metadata is not None and len(custom_metadata) > size_max:
            self.has_given_up = True
            await self._remove_leftovers(dataclasses.replace(segment, custom_metadata=custom_metadata))
            raise CustomMetadataTooLargeError(
                f"The remote storage manager has {len(custom_metadata)} bytes of custom metadata for a segment of "
                f"{self._partition.name}, and {size_max} are allowed: nothing of it is copied any more"
            )
        return custom_metadata

    async def _remove_leftovers(self, segment: RemoteLogSegmentMetadata) -> None:
        """What cannot be removed now is left to expiration; the copy's own error is the one to tell."""
        try:
            failure: Exception | None = await delete_segment(segment, self._context)
        except Exception as error:
            failure = error
        if failure is not None:
            log.debug("remote_leftovers_stay", partition=self._partition.name, error=str(failure))

    def _show_lag(self, local: UnifiedLog) -> None:
        sizes = [(segment.base_offset, segment.size_bytes) for segment in local.segments]
        lag = copy_lag(sizes, local.highest_remote_offset)
        gauges = self._context.stats.partition(self._partition.partition.topic_partition)
        gauges.copy_lag_bytes, gauges.copy_lag_segments = lag


def _local_segment(segment: LogSegment) -> LocalSegment:
    return LocalSegment(
        segment.base_offset, segment.size_bytes, segment.largest_timestamp, segment.transaction_index.is_empty
    )


def segment_data(local: UnifiedLog, candidate: CopyCandidate) -> LogSegmentData:
    """The files of a segment, brought up to date.  KafkaError when one is missing, or cannot be written."""
    segment = local.segments.get(candidate.segment.base_offset)
    assert segment is not None, candidate
    for index in (segment.offset_index, segment.time_index):
        index.write()  # a disk that was full when it was sealed
    segment.transaction_index.write()
    epochs = epochs_below(local.leader_epochs.entries, candidate.next_base_offset)
    return LogSegmentData(
        log_segment=segment.records.path,
        offset_index=segment.offset_index.path,
        time_index=segment.time_index.path,
        transaction_index=None if candidate.segment.is_txn_index_empty else segment.transaction_index.path,
        producer_snapshot_index=local.producer_snapshot_path(candidate.next_base_offset),
        leader_epoch_index=encode_checkpoint([f"{epoch} {start_offset}" for epoch, start_offset in epochs]),
    )
