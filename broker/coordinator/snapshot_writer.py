"""SnapshotWriter: keeps the log of a shard bounded without a log cleaner.

When the log has grown, the shard appends everything it knows once more, and once that is committed and durable the
log start offset moves to where the repetition began: every older segment is fully superseded and goes.  The
repetition is made of ordinary records, so a crash at any moment leaves a log that adds up to the same state.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import structlog

from broker.common.errors import KafkaError
from broker.coordinator.coordinator_context import CoordinatorContext
from broker.coordinator.coordinator_shard import CoordinatorShard
from broker.coordinator.partition_writer import PartitionWriter

log = structlog.get_logger(__name__)

S = TypeVar("S", bound=CoordinatorShard[Any])

# Only whole segments can go, and the last one cannot: below two segments of log nothing would be gained.
LOG_SEGMENTS_MAX: Final = 2
# A snapshot is taken only after at least as much was appended as the last one was long, so that a large state is not
# written over and over: the shard never writes more than twice what its clients do.
APPENDED_PER_SNAPSHOT_MIN: Final = 1.0
CHECK_INTERVAL_SECONDS: Final = 10.0  # a log growing by 100 MiB/s passes its bound by 1 GiB at most


class SnapshotWriter(Generic[S]):
    """Bound of a log with segments of B bytes and a state of S bytes: about 3 B + 3 S."""

    def __init__(self, writer: PartitionWriter) -> None:
        self._writer = writer

    async def run(self, context: CoordinatorContext[S], is_wanted: Callable[[], bool]) -> None:
        """Watch one shard until `is_wanted` says no."""
        snapshot_bytes = 0
        while is_wanted():
            if self._is_due(context, snapshot_bytes):
                before = context.appended_bytes
                try:
                    await self.write(context, is_wanted)
                except KafkaError as error:  # the log refused, or leadership went: the old log is all there
                    log.warning("coordinator_snapshot_failed", partition=str(context.topic_partition), error=str(error))
                snapshot_bytes = context.appended_bytes - before
                context.appended_bytes = 0
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)

    def _is_due(self, context: CoordinatorContext[S], snapshot_bytes: int) -> bool:
        """A shard that was just loaded has appended nothing: the size alone decides."""
        segment_bytes = self._writer.config(context.topic_partition).segment_bytes
        if self._writer.size_bytes(context.topic_partition) <= LOG_SEGMENTS_MAX * segment_bytes:
            return False
        return context.appended_bytes >= APPENDED_PER_SNAPSHOT_MIN * snapshot_bytes

    async def write(self, context: CoordinatorContext[S], is_wanted: Callable[[], bool]) -> None:
        """Append a snapshot, wait until it is committed, and let go of what it supersedes."""
        keep_from = context.last_written_offset

        def keep(offset: int) -> None:
            nonlocal keep_from
            keep_from = min(keep_from, offset)

        for chunk in context.shard.snapshot(keep):
            context.append_split(chunk.records, is_replayed=chunk.is_replayed)
            await asyncio.sleep(0)  # requests have their turn between two chunks
            if not is_wanted():
                return
        await context.wait_committed(context.last_written_offset)
        if not is_wanted():
            return
        log_start_offset = self._writer.log_start_offset(context.topic_partition)
        if keep_from > log_start_offset:
            await self._writer.delete_records_before(context.topic_partition, keep_from)
            log.info(
                "coordinator_snapshot_written",
                partition=str(context.topic_partition),
                log_start_offset=keep_from,
                log_end_offset=context.last_written_offset,
            )
