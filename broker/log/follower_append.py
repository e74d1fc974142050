"""FollowerAppend: one call of `UnifiedLog.append_as_follower`: the leader's bytes, checked and written as they are."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.common.errors import CorruptMessageError, RecordListTooLargeError, StorageFailure
from broker.log.abstract_index import RELATIVE_OFFSET_MAX
from broker.log.log_append import LogAppendInfo, OffsetsOutOfOrderError, UnexpectedAppendOffsetError
from broker.log.producer_state_manager import parse_marker
from broker.records.record_batch import RecordBatch

if TYPE_CHECKING:
    from broker.log.unified_log import UnifiedLog


class FollowerAppend:
    """Offsets, epochs and timestamps are the leader's; gaps between batches are allowed (compaction leaves them)."""

    __slots__ = ("_leader_epoch", "_log", "_now_ms", "_staged", "_staged_size")

    def __init__(self, unified_log: "UnifiedLog", leader_epoch: int, now_ms: int) -> None:
        self._log = unified_log
        self._leader_epoch = leader_epoch
        self._now_ms = now_ms
        self._staged: list[RecordBatch] = []
        self._staged_size = 0

    def append(self, found: Iterable[RecordBatch]) -> LogAppendInfo:
        accepted = self._check(found)
        if not accepted:
            return LogAppendInfo()
        try:
            for batch in accepted:
                self._stage(batch)
            self._commit()
        except StorageFailure:
            self._log.count_storage_failure()
            raise
        return LogAppendInfo(
            accepted[0].base_offset,
            accepted[-1].last_offset,
            accepted[-1].partition_leader_epoch,
            sum(batch.record_count for batch in accepted),
            sum(batch.size_bytes for batch in accepted),
        )

    def _check(self, found: Iterable[RecordBatch]) -> list[RecordBatch]:
        """The whole batches to append.  Raises before anything is written."""
        accepted: list[RecordBatch] = []
        last_offset = -1
        newest_epoch = self._log.newest_epoch
        for batch in found:
            epoch = batch.partition_leader_epoch
            if epoch > self._leader_epoch:
                break  # KAFKA-18723: records of a leader we do not follow yet
            if epoch < newest_epoch:
                # Taken, it would falsify where epochs begin, which is how diverged logs are found out.
                raise CorruptMessageError(
                    f"A batch of epoch {epoch} at {batch.base_offset} behind epoch {newest_epoch}"
                )
            newest_epoch = epoch
            batch.ensure_valid()
            if batch.last_offset <= last_offset:
                raise OffsetsOutOfOrderError(f"Out of order offsets: {batch.last_offset} after {last_offset}")
            if batch.size_bytes > self._log.segment_bytes:
                raise RecordListTooLargeError(
                    f"A batch of {batch.size_bytes} bytes exceeds the segment size of {self._log.segment_bytes}"
                )
            if batch.is_control:
                parse_marker(batch)  # so that it cannot fail once it is written
            last_offset = batch.last_offset
            accepted.append(batch)
        if accepted and accepted[0].base_offset < self._log.log_end_offset:
            raise UnexpectedAppendOffsetError(accepted[0].base_offset, last_offset, self._log.log_end_offset)
        return accepted

    def _stage(self, batch: RecordBatch) -> None:
        log, size, last_offset = self._log, batch.size_bytes, batch.last_offset
        if log.should_roll(self._staged_size + size, batch.max_timestamp, last_offset, self._now_ms):
            self._commit()
            if log.should_roll(size, batch.max_timestamp, last_offset, self._now_ms):
                log.roll_at(self._base_for(batch))
        self._staged.append(batch)
        self._staged_size += size

    def _base_for(self, batch: RecordBatch) -> int:
        """Of the segment that begins with `batch`.  A hole that compaction has left at the leader is made part of it:
        between two segments it looks like lost records to a start, which does not know yet that the topic is compacted.
        """
        log_end_offset = self._log.log_end_offset
        return log_end_offset if batch.last_offset - log_end_offset <= RELATIVE_OFFSET_MAX else batch.base_offset

    def _commit(self) -> None:
        if self._staged:
            staged, self._staged, self._staged_size = self._staged, [], 0
            self._log.write([batch.buffer for batch in staged], staged[-1].next_offset)
            for batch in staged:
                self._log.accept_copy(batch)
