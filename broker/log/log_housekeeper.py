"""LogHousekeeper: the background work of the logs: flushes, deletions, retention, expiry of producers."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from broker.common.disk import DiskExecutor
from broker.common.errors import CorruptMessageError, StorageFailure
from broker.common.file_system import FileSystem
from broker.common.identifiers import TopicPartition
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.log.abstract_index import CorruptIndexError
from broker.log.flush_plan import FlushPlan
from broker.log.unified_log import NEVER, UnifiedLog
from broker.metrics.log_metrics import LogMetrics

log = structlog.get_logger(__name__)

SLICE: Final = 50  # logs looked at before others get a turn of the loop
IDLE_MS_MAX: Final = 3_600_000  # "never" as a timer still looks at the settings once an hour
TIMED_FLUSH_MS_MIN: Final = 100  # a smaller flush.ms does not make the loop busier than this


class LogHousekeeper:
    """Decides in the loop, waits in the disk executor.  A disk that refuses is reported, and tried again later."""

    def __init__(
        self,
        config: ConfigHolder[BrokerConfig],
        *,
        file_system: FileSystem,
        disk: DiskExecutor,
        metrics: LogMetrics,
        logs: Callable[[], Iterable[UnifiedLog]],
        checkpoint: Callable[[], Any],
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._file_system = file_system
        self._disk = disk
        self._metrics = metrics
        self._logs = logs
        self._checkpoint = checkpoint
        self._now_ms = now_ms
        self._flush_due: dict[TopicPartition, UnifiedLog] = {}
        self._delete_due: list[tuple[float, Sequence[Path]]] = []
        self._work_to_do = asyncio.Event()
        self._files_to_delete = asyncio.Event()
        self._is_checkpoint_due = False

    # -- what the logs ask for (LogHousekeeping) -------------------------------------------------------------------

    def flush_later(self, unified_log: UnifiedLog) -> None:
        self._flush_due[unified_log.topic_partition] = unified_log
        self._work_to_do.set()

    def delete_later(self, paths: Sequence[Path], delay_ms: int) -> None:
        """Files or whole directories."""
        if paths:
            try:
                now = asyncio.get_running_loop().time()
            except RuntimeError:  # while the logs are loaded in a thread: the first look removes them
                now = 0.0
            self._delete_due.append((now + delay_ms / 1000, tuple(paths)))
            if now:
                self._files_to_delete.set()

    def checkpoint_later(self) -> None:
        self._is_checkpoint_due = True
        self._work_to_do.set()

    # -- tasks -----------------------------------------------------------------------------------------------------

    def start(self, tasks: BackgroundTasks) -> None:
        tasks.start("flush-rolled", self._run_requests())
        tasks.start("delete-files", self._run_deletions())
        tasks.start("retention", self._run_retention())
        tasks.start("timed-flush", self._run_timed_flush())
        tasks.start("producer-expiration", self._run_producer_expiration())

    async def _run_requests(self) -> None:
        while True:
            await self._work_to_do.wait()
            self._work_to_do.clear()
            await self.run_requests()

    async def run_requests(self) -> None:
        """Flush the logs that rolled, and write the checkpoint a truncation asked for."""
        if self._is_checkpoint_due:
            self._is_checkpoint_due = False
            await self._checkpoint()
        while self._flush_due:
            unified_log = self._flush_due.pop(next(iter(self._flush_due)))
            await self.flush(unified_log, unified_log.segments.active.base_offset)

    async def flush(self, unified_log: UnifiedLog, offset: int | None = None) -> bool:
        """Flush a log up to `offset` (default: its end); returns whether the disk says that the device has it now,
        which tells nothing of a log that `is_in_doubt`."""
        if unified_log.is_closed:
            return False
        started = time.perf_counter()
        plan: FlushPlan | None = None
        try:
            plan = unified_log.plan_flush(offset)
            if plan is None:
                return True
            await self._disk.run(plan.run)
        except StorageFailure as failure:
            if plan is not None and not unified_log.is_closed:
                unified_log.abandon_flush(plan)
                log.warning("log_flush_failed", log=str(unified_log.topic_partition), error=str(failure))
            return False
        unified_log.complete_flush(plan)
        self._metrics.flush_seconds.observe(time.perf_counter() - started)
        return True

    async def _run_deletions(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._files_to_delete.clear()
            await self.delete_due_files(loop.time())
            due = min((due for due, _ in self._delete_due), default=None)
            try:
                async with asyncio.timeout(None if due is None else max(0.0, due - loop.time())):
                    await self._files_to_delete.wait()
            except TimeoutError:
                continue

    async def delete_due_files(self, now: float) -> None:
        """Remove what is due by the loop's time `now`."""
        due = [paths for due, paths in self._delete_due if due <= now]
        self._delete_due = [entry for entry in self._delete_due if entry[0] > now]
        for paths in due:
            await self._disk.run(self._remove_all, paths)

    def _remove_all(self, paths: Sequence[Path]) -> None:
        for path in paths:
            try:
                if self._file_system.is_directory(path):
                    self._file_system.remove_tree(path)
                else:
                    self._file_system.remove(path)
            except StorageFailure as failure:
                log.warning("file_not_removed", path=str(path), error=str(failure))

    async def _run_retention(self) -> None:
        await asyncio.sleep(self._config.current.log_initial_task_delay_ms / 1000)
        while True:
            await self.delete_old_segments()
            await asyncio.sleep(self._config.current.log_retention_check_interval_ms / 1000)

    async def delete_old_segments(self) -> int:
        """One pass of retention over all logs; returns the number of segments it removed."""
        count = 0
        if any(_awaits_checkpoint(unified_log) for unified_log in self._logs()):
            await self._checkpoint()
        for number, unified_log in enumerate(list(self._logs())):
            if unified_log.is_closed:
                continue
            if _has_superseded_segments(unified_log) and not await self._has_whole(unified_log):
                continue  # the device may lack what replaces them
            if unified_log.is_tiered and not await self.flush(unified_log, unified_log.segments.active.base_offset):
                continue  # what the device may lack of it would be nowhere on this broker
            try:
                count += unified_log.delete_old_segments()
            except (StorageFailure, CorruptMessageError, CorruptIndexError) as failure:
                self._metrics.storage_failures.increment()
                log.warning("retention_failed", log=str(unified_log.topic_partition), error=str(failure))
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
        return count

    async def _has_whole(self, unified_log: UnifiedLog) -> bool:
        """Whether the device has all of a log."""
        return await self.flush(unified_log) and not unified_log.local_log.is_in_doubt

    async def _run_timed_flush(self) -> None:
        while True:
            interval_ms = min(self._config.current.log_flush_scheduler_interval_ms, IDLE_MS_MAX)
            for unified_log in self._logs():
                interval_ms = min(interval_ms, unified_log.flush_ms)
            await asyncio.sleep(max(interval_ms, TIMED_FLUSH_MS_MIN) / 1000 if interval_ms < IDLE_MS_MAX else 1.0)
            await self.flush_dirty_logs()

    async def flush_dirty_logs(self) -> None:
        """Flush the logs whose `flush.ms` has passed since their last flush."""
        now_ms = self._now_ms()
        timed = [unified_log for unified_log in self._logs() if unified_log.flush_ms < NEVER]
        for unified_log in timed:
            if unified_log.unflushed_messages and now_ms - unified_log.last_flush_ms >= unified_log.flush_ms:
                await self.flush(unified_log)

    async def _run_producer_expiration(self) -> None:
        while True:
            await asyncio.sleep(self._config.current.producer_id_expiration_check_interval_ms / 1000)
            for number, unified_log in enumerate(list(self._logs())):
                unified_log.remove_expired_producers(self._now_ms())
                if number % SLICE == SLICE - 1:
                    await asyncio.sleep(0)


def _awaits_checkpoint(unified_log: UnifiedLog) -> bool:
    """Whether nothing below the log start may go before the checkpoint says where the log starts."""
    return unified_log.is_tiered and unified_log.log_start_offset > unified_log.durable_log_start_offset


def _has_superseded_segments(unified_log: UnifiedLog) -> bool:
    """Whether segments lie below the log start because later records repeat what is in them: a coordinator's snapshot.

    Its leader has flushed them before it moved the log start; a follower hears of the new log start alone.
    """
    if unified_log.config.is_delete:
        return False
    segments = unified_log.segments
    second = segments.higher(segments.first.base_offset)
    return second is not None and second.base_offset <= unified_log.log_start_offset
