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

# What a shard has to read before it can serve: a quarter of a million single commits, which load in some ten seconds.
# It depends on no setting.  On disk there is up to one segment more, since only whole segments are deleted.
LOG_BYTES_MAX: Final = 32 << 20
# A snapshot is taken only after at least as much was appended as the last one was long, so that a large state is not
# written over and over: the shard never writes more than twice what its clients do.
APPENDED_PER_SNAPSHOT_MIN: Final = 1.0
CHECK_INTERVAL_SECONDS: Final = 10.0  # a shard that takes 1 MB/s of commits passes its bound by a third at most


class SnapshotWriter(Generic[S]):
    """Bound of what a load reads, with a state of S bytes: `log_bytes_max` + 2 S, or 3 S when that is more."""

    def __init__(self, writer: PartitionWriter, log_bytes_max: int = LOG_BYTES_MAX) -> None:
        self._writer = writer
        self._log_bytes_max = log_bytes_max

    async def run(self, context: CoordinatorContext[S], is_wanted: Callable[[], bool]) -> None:
        """Watch one shard until `is_wanted` says no."""
        snapshot_bytes, begun_at_bytes = 0, 0
        while is_wanted():
            appended_bytes = context.log_bytes - begun_at_bytes - snapshot_bytes
            if context.log_bytes > self._log_bytes_max and appended_bytes >= APPENDED_PER_SNAPSHOT_MIN * snapshot_bytes:
                begun_at_bytes = context.log_bytes
                try:
                    is_done = await self.write(context, is_wanted)
                except KafkaError as error:  # the log refused, or leadership went: the old log is all there
                    log.warning("coordinator_snapshot_failed", partition=str(context.topic_partition), error=str(error))
                    is_done = False
                snapshot_bytes = context.log_bytes - begun_at_bytes
                if is_done:
                    context.log_bytes, begun_at_bytes = snapshot_bytes, 0
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)

    async def write(self, context: CoordinatorContext[S], is_wanted: Callable[[], bool]) -> bool:
        """Append a snapshot, wait until it is committed, and let go of what it supersedes; whether it came so far."""
        keep_from = context.last_written_offset

        def keep(offset: int) -> None:
            nonlocal keep_from
            keep_from = min(keep_from, offset)

        for chunk in context.shard.snapshot(keep):
            context.append_split(chunk.records, is_replayed=chunk.is_replayed)
            await asyncio.sleep(0)  # requests have their turn between two chunks
            if not is_wanted():
                return False
        await context.wait_committed(context.last_written_offset)
        if not is_wanted():
            return False
        log_start_offset = self._writer.log_start_offset(context.topic_partition)
        if keep_from > log_start_offset:
            await self._writer.delete_records_before(context.topic_partition, keep_from)
            log.info(
                "coordinator_snapshot_written",
                partition=str(context.topic_partition),
                log_start_offset=keep_from,
                log_end_offset=context.last_written_offset,
            )
        return True
