"""LogTruncation: a log loses its end, or everything, and begins anew."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from broker.common.buffers import Buffer
from broker.common.errors import StorageFailure
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.log.log_environment import LogEnvironment

if TYPE_CHECKING:
    from broker.log.unified_log import UnifiedLog

log = structlog.get_logger(__name__)


class LogTruncation:
    """What it cuts is set aside at once; the checkpoints that must not stay ahead of it are written soon."""

    __slots__ = ("_environment", "_log", "count")

    def __init__(self, unified_log: "UnifiedLog", environment: LogEnvironment) -> None:
        self._log = unified_log
        self._environment = environment
        self.count = 0

    def truncate_to(self, offset: int) -> bool:
        """See `UnifiedLog.truncate_to`."""
        unified_log = self._log
        assert offset >= 0, f"cannot truncate {unified_log.topic_partition} to {offset}"
        local_log, epochs = unified_log.local_log, unified_log.leader_epochs
        if offset >= local_log.log_end_offset:
            epochs.truncate_from_end(local_log.log_end_offset)
            unified_log.epochs_changed()
            return False
        self._ensure_can_be_cut()
        if offset < local_log.segments.first.base_offset:
            self._begin_at(offset, min(unified_log.log_start_offset, offset))
            epochs.truncate_from_end(offset)
            unified_log.epochs_changed()
            return True
        offset = max(local_log.batch_start(offset), min(offset, unified_log.local_log_start_offset))
        log.info("log_truncated", log=str(unified_log.topic_partition), offset=offset, was=local_log.log_end_offset)
        self._after(local_log.truncate_to(offset))
        epochs.truncate_from_end(offset)
        unified_log.epochs_changed()
        self._start_at(min(unified_log.log_start_offset, offset))
        unified_log.local_log_start_offset = min(unified_log.local_log_start_offset, offset)
        self._rebuild_producer_state()
        unified_log.refresh_first_unstable_offset()
        unified_log.update_high_watermark(unified_log.high_watermark)
        return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None) -> None:
        """See `UnifiedLog.truncate_fully_and_start_at`."""
        self._ensure_can_be_cut()
        self._begin_at(offset, offset if log_start_offset is None else log_start_offset)
        self._log.leader_epochs.clear()
        self._log.epochs_changed()

    def restore_from_remote(
        self, next_offset: int, log_start_offset: int, leader_epochs: Iterable[EpochEntry], producer_snapshot: Buffer
    ) -> None:
        """See `UnifiedLog.restore_from_remote`."""
        self._ensure_can_be_cut()
        unified_log = self._log
        producers = unified_log.producer_state_manager
        entries = producers.prepare_restore(next_offset, producer_snapshot)
        self.truncate_fully_and_start_at(next_offset, log_start_offset)
        epochs = unified_log.leader_epochs
        for entry in leader_epochs:
            epochs.assign(entry.epoch, entry.start_offset)
        epochs.truncate_from_end(next_offset)
        epochs.truncate_from_start(log_start_offset)
        unified_log.epochs_changed()
        producers.complete_restore(next_offset, entries, self._environment.clock.now_ms())
        unified_log.refresh_first_unstable_offset()
        self._environment.housekeeping.flush_later(unified_log)

    def _ensure_can_be_cut(self) -> None:
        """The next start would take segments that a compacted one was to replace for what follows a shorter one."""
        if self._log.local_log.has_unfinished_swap:
            raise StorageFailure(f"{self._log.topic_partition}: files of compacted segments could not be renamed")

    def _begin_at(self, offset: int, log_start_offset: int) -> None:
        unified_log = self._log
        local_log = unified_log.local_log
        log.info(
            "log_truncated_fully", log=str(unified_log.topic_partition), offset=offset, was=local_log.log_end_offset
        )
        self._after(local_log.truncate_fully_and_start_at(offset))
        self._start_at(log_start_offset)
        unified_log.local_log_start_offset = offset
        unified_log.producer_state_manager.truncate_fully_and_start_at(offset)
        unified_log.high_watermark = offset
        unified_log.refresh_first_unstable_offset()

    def _start_at(self, log_start_offset: int) -> None:
        unified_log = self._log
        unified_log.log_start_offset = log_start_offset
        unified_log.durable_log_start_offset = min(unified_log.durable_log_start_offset, log_start_offset)

    def _after(self, paths: list[Path]) -> None:
        unified_log = self._log
        self.count += 1
        unified_log.is_dirty = True
        if unified_log.clean_offset is not None:
            unified_log.clean_offset = min(unified_log.clean_offset, unified_log.log_end_offset)
        unified_log.highest_remote_offset = min(unified_log.highest_remote_offset, unified_log.log_end_offset - 1)
        if paths:
            self._environment.housekeeping.delete_later(paths, unified_log.config.file_delete_delay_ms)
        self._environment.housekeeping.checkpoint_later()

    def _rebuild_producer_state(self) -> None:
        unified_log = self._log
        manager, end_offset = unified_log.producer_state_manager, unified_log.log_end_offset
        manager.truncate_and_reload(unified_log.log_start_offset, end_offset, self._environment.clock.now_ms())
        manager.catch_up(unified_log.segments, end_offset)
