"""CleanableLog: what of a log may be compacted now, and how much it needs it (Kafka: LogToClean, LogCleanerManager)."""

from typing import NamedTuple

from broker.config.value_types import INT64_MAX
from broker.log.log_segment import LogSegment
from broker.log.unified_log import UnifiedLog


class CleanableLog(NamedTuple):
    """As of one moment.  Below `first_dirty_offset` the log is compacted; at `end_offset`, the base of a segment,
    begins what must stay as it is."""

    log: UnifiedLog
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    compaction_delay_ms: int  # how much later than max.compaction.lag.ms allows its oldest dirty record is compacted
    truncation_count: int

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        if not self.cleanable_bytes:
            return False
        return self.compaction_delay_ms > 0 or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def cleanable(log: UnifiedLog, now_ms: int) -> CleanableLog:
    """May read a timestamp of a segment when the topic limits the lag of compaction.  StorageFailure."""
    segments = log.segments
    start = log.local_log_start_offset
    first_dirty_offset = start if log.clean_offset is None else max(start, log.clean_offset)
    end_offset = _end_offset(log, first_dirty_offset, now_ms)
    clean_bytes = cleanable_bytes = 0
    dirty = segments.floor(first_dirty_offset)
    dirty_from = first_dirty_offset if dirty is None else dirty.base_offset
    for segment in segments:
        if segment.base_offset < first_dirty_offset:
            clean_bytes += segment.size_bytes
        if dirty_from <= segment.base_offset < end_offset:
            cleanable_bytes += segment.size_bytes
    return CleanableLog(
        log,
        first_dirty_offset,
        end_offset,
        clean_bytes,
        cleanable_bytes,
        _compaction_delay_ms(log, first_dirty_offset, now_ms),
        log.truncation_count,
    )


def _end_offset(log: UnifiedLog, first_dirty_offset: int, now_ms: int) -> int:
    """Nothing of the active segment, of an open transaction or of what is not replicated is touched, and no segment
    with a record that is younger than min.compaction.lag.ms, nor any after it."""
    segments = log.segments
    bound = min(segments.active.base_offset, log.last_stable_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in _sealed_from(log, first_dirty_offset):
            if segment.largest_timestamp > now_ms - lag_ms:
                bound = min(bound, segment.base_offset)
                break
    with_bound = segments.floor(bound)
    return bound if with_bound is None else with_bound.base_offset


def _compaction_delay_ms(log: UnifiedLog, first_dirty_offset: int, now_ms: int) -> int:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms == INT64_MAX:
        return 0
    times = [segment.first_batch_timestamp for segment in _sealed_from(log, first_dirty_offset)]
    oldest_ms = min((time for time in times if time > 0), default=now_ms)
    return max(0, now_ms - lag_ms - oldest_ms)


def _sealed_from(log: UnifiedLog, offset: int) -> list[LogSegment]:
    active = log.segments.active
    return [segment for segment in log.segments.from_offset(offset) if segment is not active]
