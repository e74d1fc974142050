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

    While a log is copied to remote storage (KIP-405), only its time on this disk is limited here, by local.retention.*:
    the log start stays, and what is not known to be copied stays too, however old.
    """

    __slots__ = ("_environment", "_log", "_warned_of_future")

    def __init__(self, unified_log: "UnifiedLog", environment: LogEnvironment) -> None:
        self._log = unified_log
        self._environment = environment
        self._warned_of_future = False

    def delete_old_segments(self) -> int:
        """Topics without the delete policy lose only what is below their log start, and those whose settings are not
        known yet nothing."""
        if not self._log.are_settings_known:
            return 0
        count = self.delete_below_log_start()
        if self._log.config.is_delete:
            count += self._delete_by_size() + self._delete_by_time()
        return count

    def delete_below_log_start(self) -> int:
        start = self._log.local_log_start_offset
        return self._delete(
            lambda segment, following: following is not None and following.base_offset <= start, "log start offset"
        )

    @property
    def _is_copied(self) -> bool:
        return self._log.is_tiered and not self._log.config.remote_log_copy_disable

    def _delete_by_size(self) -> int:
        config = self._log.config
        limit = config.local_retention_bytes_effective if self._is_copied else config.retention_bytes
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
        config = self._log.config
        limit_ms = config.local_retention_ms_effective if self._is_copied else config.retention_ms
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
        self._raise_start(following.base_offset, reason)
        deletable = self._removable(deletable)
        paths = []
        for segment in deletable:
            paths += self._log.local_log.delete_segments([segment])
            snapshot = self._log.producer_state_manager.forget_snapshot(segment.base_offset)
            if snapshot is not None:
                paths.append(snapshot)
        if not deletable:
            return 0
        self._log.is_dirty = True
        self._environment.housekeeping.delete_later(paths, self._log.config.file_delete_delay_ms)
        log.info("segments_deleted", log=str(self._log.topic_partition), count=len(deletable), reason=reason)
        return len(deletable)

    def _raise_start(self, offset: int, reason: str) -> None:
        """Before the files go: no reader finds them missing."""
        if offset <= self._log.local_log_start_offset:
            return
        if self._is_copied:
            self._log.maybe_increment_local_log_start_offset(offset, reason)
        else:
            self._log.maybe_increment_log_start_offset(offset, reason)

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
            if following is None and self._is_copied:
                self._roll_for_copy()
            if not self._may_go(upper_bound):
                break
            found.append(segment)
        return found

    def _roll_for_copy(self) -> None:
        """The active segment is due, and only a closed one is copied: a later pass deletes it, and a log to which
        nobody writes any more leaves this disk as a whole."""
        try:
            self._log.roll()
        except StorageFailure as failure:
            log.warning("roll_for_copy_failed", log=str(self._log.topic_partition), error=str(failure))

    def _may_go(self, upper_bound: int) -> bool:
        """Whether what is below `upper_bound`, the end of a segment, is in remote storage, or not part of the log."""
        return not self._is_copied or upper_bound <= self._log.log_start_offset or self._is_remote(upper_bound)

    def _is_remote(self, upper_bound: int) -> bool:
        """The recovery point says that the device knows the leader epochs of what goes, which nothing here tells again,
        and the name of the file that says where the log goes on."""
        return upper_bound - 1 <= self._log.highest_remote_offset and upper_bound <= self._log.recovery_point

    def _removable(self, segments: list[LogSegment]) -> list[LogSegment]:
        """Those of `segments`, all below the start now, whose files may go at once.

        A tiered log starts where the checkpoint says: if that went back in a crash to before what is gone for good,
        readers would come to a hole in the log.  Once the checkpoint is written, the next pass takes the others.
        """
        unified_log = self._log
        if not unified_log.is_tiered:
            return segments
        found: list[LogSegment] = []
        for segment in segments:
            following = unified_log.segments.higher(segment.base_offset)
            assert following is not None, f"{unified_log.topic_partition}: retention would leave no segment"
            upper_bound = following.base_offset
            if upper_bound > unified_log.durable_log_start_offset and not self._is_remote(upper_bound):
                break
            found.append(segment)
        return found
