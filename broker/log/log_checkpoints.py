"""LogCheckpoints: the files of a log directory that say where its logs start, where their recovery begins, what is
committed of them, and what is compacted."""

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path

import structlog

from broker.common.disk import DiskExecutor
from broker.common.errors import StorageFailure
from broker.common.file_system import FileSystem
from broker.common.identifiers import TopicPartition
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.log.offset_checkpoint_file import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    OffsetCheckpointFile,
)
from broker.log.unified_log import UnifiedLog
from broker.metrics.log_metrics import LogMetrics

log = structlog.get_logger(__name__)

Offsets = dict[TopicPartition, int]


class Checkpoint:
    """One checkpoint file, rewritten only when its content changed."""

    def __init__(self, file_system: FileSystem, path: Path) -> None:
        self._file_system = file_system
        self._file = OffsetCheckpointFile(file_system, path)
        self._content: bytes | None = None
        self.is_lost = False  # the file was not there, or damaged, when it was read

    def read(self) -> Offsets:
        """A damaged file counts as empty: every one of these offsets is a short cut, or a lower bound."""
        try:
            self.is_lost = not self._file_system.exists(self._file.path)
            return self._file.read()
        except StorageFailure as failure:
            log.warning("checkpoint_unreadable", path=str(self._file.path), error=str(failure))
            self.is_lost = True
            return {}

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file durably, unless it says that already.  Waits for the device, and takes ten milliseconds
        for ten thousand partitions: for the disk executor, one at a time.  StorageFailure."""
        content = self._file.encode(offsets)
        if content != self._content:
            self._file.write_content(content)
            self._content = content


class LogCheckpoints:
    """Life cycle: `read`, each log `opened`, `loaded`; then they are written, every now and then once `start`ed, from
    the `logs` there are.  What was read of logs that could not be opened stays in the files."""

    def __init__(
        self,
        config: ConfigHolder[BrokerConfig],
        directory: Path,
        *,
        file_system: FileSystem,
        disk: DiskExecutor,
        metrics: LogMetrics,
        logs: Callable[[], Iterable[UnifiedLog]],
    ) -> None:
        self._config = config
        self._disk = disk
        self._metrics = metrics
        self._logs = logs
        self._recovery_points = Checkpoint(file_system, directory / RECOVERY_POINT_CHECKPOINT)
        self._log_starts = Checkpoint(file_system, directory / LOG_START_OFFSET_CHECKPOINT)
        self._high_watermarks = Checkpoint(file_system, directory / REPLICATION_OFFSET_CHECKPOINT)
        self._clean_offsets = Checkpoint(file_system, directory / CLEANER_OFFSET_CHECKPOINT)
        # What was read of logs that are not open, by file.
        self._read_recovery_points: Offsets = {}
        self._read_log_starts: Offsets = {}
        self._read_high_watermarks: Offsets = {}
        self._read_clean_offsets: Offsets = {}
        self._jobs: dict[asyncio.Future[None], None] = {}

    # -- start -----------------------------------------------------------------------------------------------------

    async def read(self) -> None:
        self._read_recovery_points = await self._disk.run(self._recovery_points.read)
        self._read_log_starts = await self._disk.run(self._log_starts.read)
        self._read_high_watermarks = await self._disk.run(self._high_watermarks.read)
        self._read_clean_offsets = await self._disk.run(self._clean_offsets.read)

    def recovery_point(self, topic_partition: TopicPartition) -> int:
        """What is below it was on the device."""
        return self._read_recovery_points.get(topic_partition, 0)

    def log_start_offset(self, topic_partition: TopicPartition) -> int:
        return self._read_log_starts.get(topic_partition, 0)

    def may_have_holes(self, topic_partition: TopicPartition) -> bool:
        """Whether a log may have been compacted, and what is missing between its segments need not be lost.  When the
        checkpoint of cleaners is lost itself, each may: better a hole than what comes after it."""
        return topic_partition in self._read_clean_offsets or self._clean_offsets.is_lost

    def opened(self, unified_log: UnifiedLog) -> None:
        """The log knows now what the files said of it."""
        topic_partition = unified_log.topic_partition
        unified_log.update_high_watermark(self._read_high_watermarks.pop(topic_partition, 0))
        clean_offset = self._read_clean_offsets.pop(topic_partition, None)
        if clean_offset is not None:
            unified_log.clean_offset = min(clean_offset, unified_log.log_end_offset)
        self._read_log_starts.pop(topic_partition, None)

    async def loaded(self, not_opened: Container[TopicPartition], *, is_directory_new: bool) -> None:
        """All logs are open, except these.  StorageFailure.

        In a new directory the cleaner's file is made: it is missed from then on, see `may_have_holes`."""
        self._read_recovery_points = {}
        self._read_log_starts = _only(not_opened, self._read_log_starts)
        self._read_high_watermarks = _only(not_opened, self._read_high_watermarks)
        self._read_clean_offsets = _only(not_opened, self._read_clean_offsets)
        if is_directory_new and self._clean_offsets.is_lost:
            await self._disk.run(self._clean_offsets.write, {})

    # -- background ------------------------------------------------------------------------------------------------

    def start(self, tasks: BackgroundTasks) -> None:
        tasks.start("checkpoint", self._run())
        tasks.start("high-watermark-checkpoint", self._run_high_watermarks())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(max(self._config.current.log_flush_offset_checkpoint_interval_ms, 1) / 1000)
            await self.write()

    async def _run_high_watermarks(self) -> None:
        while True:
            await asyncio.sleep(self._config.current.replica_high_watermark_checkpoint_interval_ms / 1000)
            await self.write_high_watermarks()

    async def write(self) -> None:
        """Where recovery begins, where the logs start and where the cleaner goes on."""
        await self.write_recovery_points()
        await self.write_log_start_offsets()
        await self.write_clean_offsets()

    async def write_recovery_points(self) -> None:
        """`recovery-point-offset-checkpoint`, and with it the leader epochs that changed."""
        for unified_log in list(self._logs()):
            if not unified_log.leader_epochs.is_written_below(unified_log.log_end_offset):
                await self._write_leader_epochs(unified_log)
        await self._write(self._recovery_points, self._all_recovery_points())

    async def write_log_start_offsets(self) -> None:
        """`log-start-offset-checkpoint`: only where the first segment's base does not tell the start."""
        starts = [(each, each.log_start_offset) for each in self._logs()]
        if await self._write(self._log_starts, self._all_log_starts()):
            for unified_log, log_start_offset in starts:
                unified_log.log_start_is_durable(log_start_offset)

    async def write_high_watermarks(self) -> None:
        """`replication-offset-checkpoint`."""
        await self._write(self._high_watermarks, self._all_high_watermarks())

    async def write_clean_offsets(self) -> bool:
        """`cleaner-offset-checkpoint`, of the logs a cleaner has been at; returns whether the device has it."""
        return await self._write(self._clean_offsets, self._all_clean_offsets())

    def _all_recovery_points(self) -> Offsets:
        return {each.topic_partition: each.recovery_point for each in self._logs()}

    def _all_log_starts(self) -> Offsets:
        return self._read_log_starts | {
            each.topic_partition: each.log_start_offset
            for each in self._logs()
            if each.log_start_offset != each.segments.first.base_offset
            or each.config.remote_storage_enable  # the first segment may go before the next checkpoint
            or not each.are_settings_known
        }

    def _all_high_watermarks(self) -> Offsets:
        return self._read_high_watermarks | {each.topic_partition: each.high_watermark for each in self._logs()}

    def _all_clean_offsets(self) -> Offsets:
        known = ((each.topic_partition, each.clean_offset) for each in self._logs())
        return self._read_clean_offsets | {name: offset for name, offset in known if offset is not None}

    async def _write_leader_epochs(self, unified_log: UnifiedLog) -> None:
        epochs = unified_log.leader_epochs
        pending = epochs.pending_write()
        if pending is None or unified_log.is_closed:
            return
        try:
            await self._disk.run(epochs.write_content, *pending)
            epochs.written(pending[0])
        except (StorageFailure, FileNotFoundError) as failure:
            log.warning("leader_epochs_not_written", log=str(unified_log.topic_partition), error=str(failure))

    async def _write(self, checkpoint: Checkpoint, offsets: Offsets) -> bool:
        """Returns whether the device has it."""
        await self._wait_for_jobs()
        job = self._disk.submit(checkpoint.write, offsets)
        self._jobs[job] = None
        job.add_done_callback(self._jobs.pop)
        try:
            await asyncio.shield(job)
        except StorageFailure as failure:
            self._metrics.storage_failures.increment()
            log.warning("checkpoint_not_written", error=str(failure))
            return False
        return True

    async def _wait_for_jobs(self) -> None:
        while self._jobs:  # one writer at a time, also of those whose task was cancelled
            await asyncio.wait(self._jobs)

    # -- shutdown --------------------------------------------------------------------------------------------------

    async def write_last(self) -> None:
        """All files, of logs that change no more.  StorageFailure."""
        await self._wait_for_jobs()
        for checkpoint, offsets in (
            (self._recovery_points, self._all_recovery_points()),
            (self._log_starts, self._all_log_starts()),
            (self._high_watermarks, self._all_high_watermarks()),
            (self._clean_offsets, self._all_clean_offsets()),
        ):
            await self._disk.run(checkpoint.write, offsets)


def _only(wanted: Container[TopicPartition], offsets: Offsets) -> Offsets:
    return {topic_partition: offset for topic_partition, offset in offsets.items() if topic_partition in wanted}
