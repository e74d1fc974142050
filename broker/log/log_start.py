"""LogStart: where a log starts, in both tiers and on this disk (KIP-405; UnifiedLog in Kafka)."""

from typing import TYPE_CHECKING

import structlog

from broker.common.errors import OffsetMovedToTieredStorageError, OffsetOutOfRangeError

if TYPE_CHECKING:
    from broker.log.unified_log import UnifiedLog

log = structlog.get_logger(__name__)


class LogStart:
    """Both only move forward here; truncation may move them back.  The two are equal unless records are in remote
    storage alone, and then leader epochs are kept from the start of the whole log on: they are the lineage of what is
    there.
    """

    __slots__ = ("_log",)

    def __init__(self, unified_log: "UnifiedLog") -> None:
        self._log = unified_log

    def increment(self, offset: int, reason: str) -> bool:
        """See `UnifiedLog.maybe_increment_log_start_offset`; `offset` is above the log start."""
        unified_log = self._log
        self._check(offset)
        if not unified_log.config.remote_storage_enable:  # a leader's disk may begin earlier than this one
            offset = max(offset, unified_log.local_log_start_offset)
        self._raise(offset)
        unified_log.is_dirty = True
        log.info("log_start_offset_incremented", log=str(unified_log.topic_partition), offset=offset, reason=reason)
        return True

    def increment_local(self, offset: int, reason: str) -> bool:
        """See `UnifiedLog.maybe_increment_local_log_start_offset`."""
        unified_log = self._log
        self._check(offset)
        if not self._raise_local(offset):
            return False
        unified_log.is_dirty = True
        log.info(
            "local_log_start_offset_incremented", log=str(unified_log.topic_partition), offset=offset, reason=reason
        )
        return True

    def refusal(self, offset: int) -> OffsetMovedToTieredStorageError | OffsetOutOfRangeError:
        """Why nothing is read at `offset`, which is below the local log start."""
        unified_log = self._log
        if unified_log.is_tiered and offset >= unified_log.log_start_offset:
            return OffsetMovedToTieredStorageError(
                f"Offset {offset} of {unified_log.topic_partition} is below its local log start offset "
                f"{unified_log.local_log_start_offset}"
            )
        return OffsetOutOfRangeError(
            f"Received request for offset {offset} for partition {unified_log.topic_partition}, but we only have log "
            f"segments from offset {unified_log.log_start_offset} to {unified_log.log_end_offset}."
        )

    def settle(self) -> None:
        """The topic's settings are known now: a log that is not meant to be tiered has nothing below this disk."""
        unified_log = self._log
        local_start = unified_log.local_log_start_offset
        if not unified_log.config.remote_storage_enable and unified_log.log_start_offset < local_start:
            self._raise(local_start)

    def _raise(self, offset: int) -> None:
        unified_log = self._log
        unified_log.log_start_offset = offset
        self._raise_local(offset)
        unified_log.leader_epochs.truncate_from_start(offset)
        unified_log.producer_state_manager.on_log_start_offset_incremented(offset)
        unified_log.refresh_first_unstable_offset()

    def _raise_local(self, offset: int) -> bool:
        unified_log = self._log
        if offset <= unified_log.local_log_start_offset:
            return False
        unified_log.local_log_start_offset = offset
        if not unified_log.is_tiered:  # else see LogFlush.recovery_point
            local_log = unified_log.local_log
            local_log.recovery_point = max(local_log.recovery_point, offset)
        return True

    def _check(self, offset: int) -> None:
        unified_log = self._log
        if offset > unified_log.high_watermark:
            raise OffsetOutOfRangeError(
                f"Cannot increment the log start offset to {offset} of partition {unified_log.topic_partition} since "
                f"it is larger than the high watermark {unified_log.high_watermark}"
            )
