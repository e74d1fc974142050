"""LogRetention: which segments of a log have become too old, too many, or lie below the log start."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from broker.common.errors import StorageFailure
from broker.log.log_environment import LogEnvironment
from broker.log.log_segment import LogSegment

if TYPE_CHECKING:
    from broker.log.unified_log import UnifiedLog

log = structlog.get_logger(__name__)

Predicate = Callable[[LogSegment, LogSegment | None], bool]


class LogRetention:
    """Three passes, oldest segment first, each stopping at the first that does not match (Kafka: deleteOldSegments).

    Nothing at or above the high watermark is deleted, and one segment always stays.
    """

    __slots__ = ("_environment", "_log", "_warned_of_future")

    def __init__(self, unified_log: "UnifiedLog", environment: LogEnvironment) -> None:
        self._log = unified_log
        self._environment = environment
        self._warned_of_future = False

    def delete_old_segments(self) -> int:
        """Topics without the delete policy lose only what is below their log start."""
        count = self.delete_below_log_start()
        if self._log.config.is_delete:
            count += self._delete_by_size() + self._delete_by_time()
        return count

    def delete_below_log_start(self) -> int:
        start = self._log.log_start_offset
        return self._delete(
            lambda segment, following: following is not None and following.base_offset <= start, "log start offset"
        )

    def _delete_by_size(self) -> int:
        limit = self._log.config.retention_bytes
        if limit < 0:
            return 0
        excess = self._log.size_bytes - limit

        def is_excess(segment: LogSegment, following: LogSegment | None) -> bool:
            nonlocal excess
            if excess - segment.size_bytes < 0:
                return False
            excess -= segment.size_bytes
            return True

        return self._delete(is_excess, "retention size") if excess > 0 else 0

    def _delete_by_time(self) -> int:
        limit_ms = self._log.config.retention_ms
        if limit_ms < 0:
            return 0
        now_ms = self._environment.clock.now_ms()

        def is_old(segment: LogSegment, following: LogSegment | None) -> bool:
            largest = segment.largest_timestamp
            if largest > now_ms and not self._warned_of_future:
                self._warned_of_future = True
                log.warning(
                    "segment_has_future_timestamps", log=str(self._log.topic_partition), segment=segment.base_offset
                )
            return now_ms - largest > limit_ms

        return self._delete(is_old, "retention time")

    def _delete(self, predicate: Predicate, reason: str) -> int:
        deletable = self._deletable(predicate)
        if not deletable:
            return 0
        segments = self._log.segments
        if len(deletable) == len(segments):
            try:
                self._log.roll()
            except StorageFailure as failure:
                log.warning("roll_for_retention_failed", log=str(self._log.topic_partition), error=str(failure))
                deletable.pop()
        if not deletable:
            return 0
        following = segments.higher(deletable[-1].base_offset)
        assert following is not None, f"{self._log.topic_partition}: retention would leave no segment"
        self._log.maybe_increment_log_start_offset(following.base_offset, reason)
        paths = []
        for segment in deletable:
            paths += self._log.local_log.delete_segments([segment])
            snapshot = self._log.producer_state_manager.forget_snapshot(segment.base_offset)
            if snapshot is not None:
                paths.append(snapshot)
        self._log.is_dirty = True
        self._environment.housekeeping.delete_later(paths, self._log.config.file_delete_delay_ms)
        log.info("segments_deleted", log=str(self._log.topic_partition), count=len(deletable), reason=reason)
        return len(deletable)

    def _deletable(self, predicate: Predicate) -> list[LogSegment]:
        unified_log = self._log
        found: list[LogSegment] = []
        segments = unified_log.segments
        for segment in segments:
            following = segments.higher(segment.base_offset)
            upper_bound = unified_log.log_end_offset if following is None else following.base_offset
            is_last_and_empty = following is None and segment.size_bytes == 0
            if is_last_and_empty or unified_log.high_watermark < upper_bound or not predicate(segment, following):
                break
            found.append(segment)
        return found
