"""ExpirationTask: a leader deletes remote segments that retention has done with (Kafka: RLMExpirationTask)."""

import asyncio
from collections.abc import Collection
from typing import Final

import structlog

from broker.log.unified_log import UnifiedLog
from broker.schemas.remote_log_metadata import RemoteLogSegmentState
from broker.tiering.errors import RemoteStorageError
from broker.tiering.follower_task import raise_highest_remote_offset
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata
from broker.tiering.remote_log_start import RemoteLogStart
from broker.tiering.remote_retention import (
    RemoteExpiration,
    RetainedLog,
    expired_segments,
    only_local_size,
    remote_log_totals,
)
from broker.tiering.remote_task_context import RemoteTaskContext
from broker.tiering.segment_deletion import delete_segment
from broker.tiering.tiered_partition import LogChangedError, LogView, TieredPartition

log = structlog.get_logger(__name__)

FAILURES_MAX: Final = 5  # one after the other: the bucket is down, and the others can wait for the next run

_DELETING: Final = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


class ExpirationTask:
    """Moves the log start first and deletes after that; what cannot be deleted is deleted by a later run."""

    def __init__(self, partition: TieredPartition, context: RemoteTaskContext, start: RemoteLogStart) -> None:
        self._partition = partition
        self._context = context
        self._start = start

    async def run(self) -> None:
        """Once.  ReplicaNotAvailableError, OffsetOutOfRangeError (above the high watermark), RemoteStorageError after
        what could be deleted was."""
        view = self._partition.look(as_leader=True)
        if view is None:
            return
        try:
            await self._run(view)
        except LogChangedError as change:
            log.info("remote_expiration_ended", partition=self._partition.name, reason=str(change))

    async def _run(self, view: LogView) -> None:
        await self._start.settle(view)
        began = asyncio.get_running_loop().time()
        # Before the first copy the log may not know what is in both tiers, and would count that twice.
        await raise_highest_remote_offset(self._partition, view, self._context.metadata)
        segments = await self._context.metadata.list_remote_log_segments(self._partition.partition)
        view.check()
        expiration = self._decide(view.log, segments)
        self._show_totals(segments, expiration, asyncio.get_running_loop().time() - began)
        if expiration.log_start_offset is not None:
            view.raise_log_start(expiration.log_start_offset, "remote retention")
        await self._delete(view, expiration)

    def _decide(self, local: UnifiedLog, segments: Collection[RemoteLogSegmentMetadata]) -> RemoteExpiration:
        sizes = ((segment.base_offset, segment.size_bytes) for segment in local.segments)
        retained = RetainedLog(
            leader_epochs=local.leader_epochs.entries,
            log_start_offset=local.log_start_offset,
            log_end_offset=local.log_end_offset,
            only_local_size_bytes=only_local_size(sizes, local.highest_remote_offset),
            retention_ms=local.config.retention_ms,
            retention_bytes=local.config.retention_bytes,
        )
        return expired_segments(segments, self._partition.being_copied, retained, self._context.clock.now_ms())

    def _show_totals(
        self, segments: Collection[RemoteLogSegmentMetadata], expiration: RemoteExpiration, seconds: float
    ) -> None:
        gauges = self._context.stats.partition(self._partition.partition.topic_partition)
        gauges.metadata_count, gauges.size_bytes = remote_log_totals(segments)
        gauges.size_computation_ms = round(seconds * 1000)
        gauges.delete_lag_bytes, gauges.delete_lag_segments = expiration.size_in_bytes, len(expiration.segments)

    async def _delete(self, view: LogView, expiration: RemoteExpiration) -> None:
        """Those first that were not tried before, so that one which cannot be deleted is in nobody's way."""
        gauges = self._context.stats.partition(self._partition.partition.topic_partition)
        deleted = in_a_row = 0
        failures: list[RemoteStorageError] = []
        for segment in sorted(expiration.segments, key=lambda segment: segment.state is _DELETING):
            failure = await delete_segment(segment, self._context)
            if failure is None:
                deleted, in_a_row = deleted + 1, 0
                gauges.delete_lag_bytes -= segment.segment_size_in_bytes
                gauges.delete_lag_segments -= 1
            else:
                failures.append(failure)
                in_a_row += 1
            view.check()
            if in_a_row == FAILURES_MAX:
                break
        if deleted:
            log.info("remote_segments_deleted", partition=self._partition.name, count=deleted)
        if failures:
            raise failures[0]
