"""LogManager: all logs of this broker: load, create, delete, close (Kafka's class of that name)."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple, Self
from uuid import UUID

import structlog

from broker.common.chance import Chance
from broker.common.clock import Clock
from broker.common.disk import DISK_THREADS, DiskExecutor
from broker.common.errors import InconsistentTopicIdError, StorageFailure
from broker.common.file_system import FileSystem
from broker.common.identifiers import NO_EPOCH, TopicPartition, uuid_to_text
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.config.topic_config import TopicConfig
from broker.log.cleaner.log_cleaner import LogCleaner
from broker.log.flush_plan import FlushPlan, run_together
from broker.log.log_checkpoints import LogCheckpoints
from broker.log.log_directory import LogDirectory
from broker.log.log_environment import LogEnvironment
from broker.log.log_file_names import DELETE_DIRECTORY_SUFFIX, STRAY_DIRECTORY_SUFFIX, directory_set_aside
from broker.log.log_housekeeper import LogHousekeeper
from broker.log.log_loader import LoadedLog, load_log
from broker.log.unified_log import UnifiedLog
from broker.metrics.log_metrics import LogMetrics

log = structlog.get_logger(__name__)

LOAD_SLICE: Final = 50  # logs loaded or made by one job of the disk executor
CLOSE_SLICE: Final = 50  # logs closed in one turn of the loop, and flushed by one job


class NewPartition(NamedTuple):
    """A partition that is about to be placed here."""

    topic_partition: TopicPartition
    topic_id: UUID
    config: TopicConfig


class LogManager:
    """Life cycle: `start` loads what the directory holds; inside `running()` the background work is done; `shutdown`
    flushes, closes and says that the stop was clean.  Without `shutdown` the next start recovers.

    `topic_config` answers a topic's effective configuration; without it topics run with the broker's defaults.
    """

    def __init__(
        self,
        config: ConfigHolder[BrokerConfig],
        *,
        clock: Clock,
        file_system: FileSystem,
        disk: DiskExecutor,
        chance: Chance,
        metrics: LogMetrics,
        topic_config: Callable[[str], TopicConfig] | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._file_system = file_system
        self._disk = disk
        self._chance = chance
        self._metrics = metrics
        self._topic_config = topic_config or (lambda topic: TopicConfig.effective(config.current, {}))
        self._directory = LogDirectory(file_system, Path(config.current.log_dir))
        self._logs: dict[TopicPartition, UnifiedLog] = {}
        self.checkpoints = LogCheckpoints(
            config, self._directory.path, file_system=file_system, disk=disk, metrics=metrics, logs=self.all
        )
        self.housekeeper = LogHousekeeper(
            config,
            file_system=file_system,
            disk=disk,
            metrics=metrics,
            logs=self.all,
            checkpoint=self.checkpoints.write,
            now_ms=clock.now_ms,
        )
        self._environment = LogEnvironment(
            file_system,
            clock,
            chance,
            metrics,
            housekeeping=self.housekeeper,
            producer_id_expiration_ms=config.current.producer_id_expiration_ms,
            is_remote_storage_enabled=config.current.remote_log_storage_system_enable,
        )
        self.cleaner = LogCleaner(
            config,
            self._environment,
            disk,
            logs=self.all,
            flush=self.housekeeper.flush,
            checkpoint=self.checkpoints.write_clean_offsets,
        )
        self.previous_broker_epoch = NO_EPOCH  # of the last clean stop, once started
        metrics.observe(self.all)

    @property
    def directory(self) -> Path:
        return self._directory.path

    @property
    def disk(self) -> DiskExecutor:
        return self._disk

    # -- start -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the logs of the directory, recovering them after an unclean stop.

        The caller holds the directory's lock.  StorageFailure when it holds what is no log.  A log that the disk does
        not let us open is left out, with an error in the log, and tried again by `get_or_create`.
        """
        started = time.perf_counter()
        directory = self._directory
        epoch = await self._disk.run(directory.take_clean_shutdown_marker)
        was_clean = epoch is not None
        self.previous_broker_epoch = NO_EPOCH if epoch is None else epoch
        await self.checkpoints.read()
        partitions, deleted = await self._disk.run(directory.sort_out)
        self.housekeeper.delete_later(deleted, 0)
        self._metrics.remaining_logs_to_recover = len(partitions)
        recovered_segments = 0
        for start in range(0, len(partitions), LOAD_SLICE):
            part = partitions[start : start + LOAD_SLICE]
            configs = [self._topic_config(topic_partition.topic) for topic_partition in part]
            # One job at a time: the jobs share the bounds on open files, and there is one interpreter lock anyway.
            loaded = await self._disk.run(self._load_part, part, configs, was_clean)
            for each in loaded:
                self._add(each.log)
                recovered_segments += each.recovery.segments
                self._metrics.recovered_bytes.increment(each.recovery.scanned_bytes)
                self._metrics.truncated_bytes.increment(each.recovery.cut_bytes)
            self._metrics.remaining_logs_to_recover -= len(part)
        await self.checkpoints.loaded(set(partitions) - self._logs.keys(), is_directory_new=not partitions)
        log.info(
            "logs_loaded",
            directory=str(directory.path),
            logs=len(self._logs),
            was_clean_shutdown=was_clean,
            recovered_segments=recovered_segments,
            seconds=round(time.perf_counter() - started, 3),
        )

    def _load_part(
        self,
        partitions: Sequence[TopicPartition],
        configs: Sequence[TopicConfig],
        was_clean: bool,
    ) -> list[LoadedLog]:
        loaded = []
        for topic_partition, config in zip(partitions, configs, strict=True):
            started = time.perf_counter()
            try:
                each = load_log(
                    self._environment,
                    self.directory / str(topic_partition),
                    topic_partition,
                    config,
                    recovery_point=self.checkpoints.recovery_point(topic_partition),
                    log_start_offset=self.checkpoints.log_start_offset(topic_partition),
                    had_clean_shutdown=was_clean,
                    was_compacted=self.checkpoints.may_have_holes(topic_partition),
                    are_settings_known=False,  # the metadata comes later
                )
            except StorageFailure as failure:
                log.error("log_not_loaded", log=str(topic_partition), error=str(failure))
                continue
            if each.recovery.segments:
                log.info(
                    "log_recovered",
                    log=str(topic_partition),
                    segments=each.recovery.segments,
                    bytes=each.recovery.scanned_bytes,
                    cut_bytes=each.recovery.cut_bytes,
                    log_end_offset=each.log.log_end_offset,
                    seconds=round(time.perf_counter() - started, 3),
                )
            loaded.append(each)
        return loaded

    def _add(self, unified_log: UnifiedLog) -> None:
        self.checkpoints.opened(unified_log)
        self._logs[unified_log.topic_partition] = unified_log

    # -- the logs --------------------------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        return self._logs.get(topic_partition)

    def all(self) -> Iterable[UnifiedLog]:
        return self._logs.values()

    def __len__(self) -> int:
        return len(self._logs)

    def get_or_create(
        self, topic_partition: TopicPartition, topic_id: UUID, config: TopicConfig | None = None
    ) -> UnifiedLog:
        """The log of a partition, made if it does not exist.  InconsistentTopicIdError when the directory belongs to
        another incarnation of the topic; StorageFailure."""
        unified_log = self._logs.get(topic_partition)
        if unified_log is None:
            unified_log = self._make(topic_partition, topic_id, config or self._topic_config(topic_partition.topic))
            self._add(unified_log)
        elif unified_log.topic_id is None:
            unified_log.assign_topic_id(topic_id)
        if unified_log.topic_id != topic_id:
            raise InconsistentTopicIdError(
                f"{topic_partition}: the log belongs to topic id {uuid_to_text(unified_log.topic_id or topic_id)}, "
                f"not to {uuid_to_text(topic_id)}"
            )
        if not unified_log.are_settings_known:
            unified_log.settle(config or self._topic_config(topic_partition.topic))
        return unified_log

    def _make(self, topic_partition: TopicPartition, topic_id: UUID, config: TopicConfig) -> UnifiedLog:
        directory = self.directory / str(topic_partition)
        is_new = not self._file_system.exists(directory)
        self._file_system.make_directories(directory)
        loaded = load_log(
            self._environment,
            directory,
            topic_partition,
            config,
            log_start_offset=0 if is_new else self.checkpoints.log_start_offset(topic_partition),
            had_clean_shutdown=False,
            was_compacted=not is_new and self.checkpoints.may_have_holes(topic_partition),
        )
        unified_log = loaded.log
        if unified_log.topic_id is None:
            unified_log.assign_topic_id(topic_id)
        return unified_log

    async def create_ahead(self, partitions: Sequence[NewPartition]) -> None:
        """Make the logs of new partitions in the disk executor, so that `get_or_create` has them at once.

        Only what is not there at all is made here; everything else, and every failure, is left to `get_or_create`.
        """
        missing = [each for each in partitions if each.topic_partition not in self._logs]
        for start in range(0, len(missing), LOAD_SLICE):
            for unified_log in await self._disk.run(self._make_part, missing[start : start + LOAD_SLICE]):
                self._add(unified_log)

    def _make_part(self, partitions: Sequence[NewPartition]) -> list[UnifiedLog]:
        made = []
        for topic_partition, topic_id, config in partitions:
            try:
                if not self._file_system.exists(self.directory / str(topic_partition)):
                    made.append(self._make(topic_partition, topic_id, config))
            except StorageFailure as failure:
                log.warning("log_not_made_ahead", log=str(topic_partition), error=str(failure))
                break
        return made

    def mark_for_deletion(self, topic_partition: TopicPartition) -> bool:
        """Take a log out at once: its directory is set aside, and removed after file.delete.delay.ms.  Returns
        whether there was one.  Reads under way go on.  StorageFailure, and the log stays."""
        unified_log = self._take_out(topic_partition, DELETE_DIRECTORY_SUFFIX)
        if unified_log is None:
            return False
        self.housekeeper.delete_later([unified_log.directory], unified_log.config.file_delete_delay_ms)
        log.info("log_marked_for_deletion", log=str(topic_partition), directory=unified_log.directory.name)
        return True

    def set_stray_aside(self, topic_partition: TopicPartition) -> None:
        """Take out a log that the cluster does not place here; only an operator removes what it held.

        A broker that was given the wrong metadata would otherwise delete everything it has.  StorageFailure, and the
        log stays.
        """
        unified_log = self._take_out(topic_partition, STRAY_DIRECTORY_SUFFIX)
        if unified_log is not None:
            log.warning("stray_log_set_aside", log=str(topic_partition), directory=unified_log.directory.name)

    def _take_out(self, topic_partition: TopicPartition, suffix: str) -> UnifiedLog | None:
        unified_log = self._logs.get(topic_partition)
        if unified_log is None:
            return None
        aside = self.directory / directory_set_aside(topic_partition, self._chance.uuid(), suffix)
        self._file_system.rename(unified_log.directory, aside)
        unified_log.close()
        unified_log.renamed_to(aside)
        del self._logs[topic_partition]
        self.housekeeper.checkpoint_later()  # what it says is not about the next log of that name
        return unified_log

    def update_topic_configs(self, configs: Mapping[str, TopicConfig]) -> None:
        """The settings of these topics changed."""
        for unified_log in self._logs.values():
            config = configs.get(unified_log.topic_partition.topic)
            if config is not None:
                was_tiered = unified_log.is_tiered
                unified_log.update_config(config)
                if unified_log.is_tiered and not was_tiered:
                    self.housekeeper.checkpoint_later()  # only it tells now where the log starts

    def update_default_config(self) -> None:
        """The broker's own settings changed, and with them the topics that do not override them."""
        configs: dict[str, TopicConfig] = {}
        expiration_ms = self._environment.producer_id_expiration_ms = self._config.current.producer_id_expiration_ms
        for unified_log in self._logs.values():
            unified_log.producer_state_manager.expiration_ms = expiration_ms
            topic = unified_log.topic_partition.topic
            config = configs.get(topic)
            if config is None:
                config = configs[topic] = self._topic_config(topic)
            unified_log.update_config(config)

    # -- background ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Retention, flushes, checkpoints and deletions are done while inside."""
        async with BackgroundTasks("logs") as tasks:
            self.housekeeper.start(tasks)
            self.cleaner.start(tasks)
            self.checkpoints.start(tasks)
            yield self

    # -- shutdown --------------------------------------------------------------------------------------------------

    async def shutdown(self, broker_epoch: int = -1) -> None:
        """Flush and close every log, write the checkpoints and, if all of that worked, the clean-shutdown marker.

        To be called after `running()` has ended and nothing appends any more.
        """
        started = time.perf_counter()
        is_clean = await self._flush_and_close()
        try:
            await self.checkpoints.write_last()
            if is_clean:
                await self._disk.run(self._directory.write_clean_shutdown_marker, broker_epoch)
        except StorageFailure as failure:
            is_clean = False
            log.error("shutdown_not_clean", error=str(failure))
        log.info(
            "logs_closed",
            logs=len(self._logs),
            is_clean=is_clean,
            seconds=round(time.perf_counter() - started, 3),
        )
        self._logs.clear()

    async def _flush_and_close(self) -> bool:
        logs = list(self._logs.values())
        slices = iter([logs[start : start + CLOSE_SLICE] for start in range(0, len(logs), CLOSE_SLICE)])
        return all(await asyncio.gather(*(self._close_slices(slices) for _ in range(DISK_THREADS))))

    async def _close_slices(self, slices: Iterator[Sequence[UnifiedLog]]) -> bool:
        """One of several side by side: each takes the next slice when it is done with its last."""
        is_clean = True
        for logs in slices:
            is_clean = await self._close_slice(logs) and is_clean
            await asyncio.sleep(0)
        return is_clean

    async def _close_slice(self, logs: Sequence[UnifiedLog]) -> bool:
        is_clean = True
        plans: list[tuple[UnifiedLog, FlushPlan]] = []
        for unified_log in logs:
            try:
                plan = unified_log.prepare_close()
            except StorageFailure as failure:
                is_clean = False
                log.error("log_not_closed", log=str(unified_log.topic_partition), error=str(failure))
                continue
            if plan is not None:
                plans.append((unified_log, plan))
        if plans:
            try:
                await self._disk.run(run_together, [plan for _, plan in plans])
                for unified_log, plan in plans:
                    unified_log.complete_flush(plan)
            except StorageFailure as failure:
                is_clean = False
                log.error("logs_not_flushed", error=str(failure))
        for unified_log in logs:
            unified_log.close()
        return is_clean
