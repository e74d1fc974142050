"""LogCleaner: looks for the log that needs compaction most, and compacts it (Kafka: LogCleaner, LogCleanerManager)."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import structlog

from broker.common.disk import DiskExecutor
from broker.common.errors import CorruptMessageError, StorageFailure
from broker.common.identifiers import CONSUMER_OFFSETS_TOPIC, TopicPartition
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.log.abstract_index import CorruptIndexError
from broker.log.cleaner.cleanable_log import CleanableLog, cleanable
from broker.log.cleaner.io_throttle import IoThrottle
from broker.log.cleaner.last_batches import LastBatches, last_batches
from broker.log.cleaner.log_compaction import LogChangedError, LogCompaction, UncleanableLogError
from broker.log.cleaner.offset_map import OffsetMap, entries_in
from broker.log.log_environment import LogEnvironment
from broker.log.unified_log import UnifiedLog

log = structlog.get_logger(__name__)

SLICE: Final = 50  # logs looked at before others get a turn of the loop
BACKOFF_MS_MIN: Final = 10  # a smaller log.cleaner.backoff.ms does not make the loop busier than this


class LogCleaner:
    """One task, one log at a time; the logs of internal topics included, except `__consumer_offsets`, whose
    coordinator keeps it short by snapshots (docs/decisions/0006).

    Where the next pass over a log begins is the log's own `clean_offset`, which truncation takes back; `checkpoint`
    writes it down.  It does so before the first pass over a log, too: from then on its batches may have holes between
    them, and a start must not take these for lost records.
    """

    def __init__(
        self,
        config: ConfigHolder[BrokerConfig],
        environment: LogEnvironment,
        disk: DiskExecutor,
        *,
        logs: Callable[[], Iterable[UnifiedLog]],
        flush: Callable[[UnifiedLog, int], Awaitable[bool]],
        checkpoint: Callable[[], Awaitable[bool]],
    ) -> None:
        self._config = config
        self._environment = environment
        self._metrics = environment.metrics.cleaner
        self._disk = disk
        self._logs = logs
        self._flush = flush
        self._checkpoint = checkpoint
        self._throttle = IoThrottle(lambda: config.current.log_cleaner_io_max_bytes_per_second)
        self._backoff_changed = asyncio.Event()
        config.on_change(self._config_changed)
        self._uncleanable: dict[TopicPartition, UnifiedLog] = {}  # the very logs: one of that name may come after it
        self._set_aside: dict[TopicPartition, float] = {}  # until which time of the loop; the others have their turns

    def _config_changed(self, old: BrokerConfig, new: BrokerConfig) -> None:
        """A wait of an hour is not sat out when a second is enough: so begins a broker that has yet to hear of that."""
        if old.log_cleaner_backoff_ms != new.log_cleaner_backoff_ms:
            self._backoff_changed.set()

    def start(self, tasks: BackgroundTasks) -> None:
        if self._config.current.log_cleaner_enable:
            tasks.start("log-cleaner", self._run())

    async def _run(self) -> None:
        while True:
            self._backoff_changed.clear()
            if not await self.clean_filthiest():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._backoff):
                        await self._backoff_changed.wait()

    @property
    def _backoff(self) -> float:
        """Seconds."""
        return max(self._config.current.log_cleaner_backoff_ms, BACKOFF_MS_MIN) / 1000

    async def clean_filthiest(self) -> bool:
        """Compact the log with the largest dirty part of those that are due; returns whether there was one."""
        target = await self._filthiest()
        if target is None:
            return False
        name = target.log.topic_partition
        try:
            await self._clean(target)
        except UncleanableLogError as error:
            self._uncleanable[name] = target.log
            self._metrics.failures.increment()
            log.error("log_uncleanable", log=str(name), error=str(error))
        except StorageFailure as failure:
            self._metrics.failures.increment()
            log.warning("log_not_cleaned", log=str(name), error=str(failure))
            self._put_aside(name)
        except LogChangedError as change:
            log.info("log_changed_while_cleaned", log=str(name), reason=str(change))
            self._put_aside(name)
        return True

    def _put_aside(self, name: TopicPartition) -> None:
        self._set_aside[name] = asyncio.get_running_loop().time() + self._backoff

    # -- which log -------------------------------------------------------------------------------------------------

    async def _filthiest(self) -> CleanableLog | None:
        """Looks at all logs, and tells the metrics what it saw."""
        now = asyncio.get_running_loop().time()
        now_ms = self._environment.clock.now_ms()
        self._set_aside = {name: until for name, until in self._set_aside.items() if until > now}
        best: CleanableLog | None = None
        dirtiest = delay_ms = 0.0
        uncleanable: list[CleanableLog] = []
        for number, unified_log in enumerate(list(self._logs())):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            target = self._look_at(unified_log, now_ms)
            if target is None:
                continue
            if self._uncleanable.get(unified_log.topic_partition) is unified_log:
                uncleanable.append(target)
                continue
            dirtiest, delay_ms = max(dirtiest, target.dirty_ratio), max(delay_ms, target.compaction_delay_ms)
            if not target.is_due or unified_log.topic_partition in self._set_aside:
                continue
            if best is None or target.dirty_ratio > best.dirty_ratio:
                best = target
        self._uncleanable = {each.log.topic_partition: each.log for each in uncleanable}
        self._metrics.looked(dirtiest, delay_ms / 1000, len(uncleanable), sum(e.cleanable_bytes for e in uncleanable))
        return best

    def _look_at(self, unified_log: UnifiedLog, now_ms: int) -> CleanableLog | None:
        if (
            unified_log.is_closed
            or not unified_log.are_settings_known
            or not unified_log.config.is_compact
            or unified_log.topic_partition.topic == CONSUMER_OFFSETS_TOPIC
        ):
            return None
        try:
            return cleanable(unified_log, now_ms)
        except (StorageFailure, FileNotFoundError, CorruptIndexError, CorruptMessageError) as failure:
            log.warning("log_not_looked_at", log=str(unified_log.topic_partition), error=str(failure))
            return None

    # -- one pass --------------------------------------------------------------------------------------------------

    async def _clean(self, target: CleanableLog) -> None:
        unified_log, config = target.log, self._config.current
        # Before the device loses a record it must have what that is decided by: newer ones and ends of transactions.
        producers = last_batches(unified_log.producer_state_manager.producers)
        is_flushed = await self._flush(unified_log, unified_log.log_end_offset)
        if unified_log.is_closed or unified_log.truncation_count != target.truncation_count:
            raise LogChangedError("it was closed or cut")
        if unified_log.local_log.is_in_doubt:
            raise UncleanableLogError("a flush has failed, and what the device has will be known at the next start")
        if not is_flushed:
            raise StorageFailure(f"{unified_log.topic_partition}: what is to be compacted could not be flushed")
        if unified_log.clean_offset is None:
            unified_log.clean_offset = target.first_dirty_offset
        if not await self._checkpoint():
            raise StorageFailure("the cleaner's checkpoint could not be written")
        offset_map = OffsetMap(
            entries_in(config.log_cleaner_dedupe_buffer_size, config.log_cleaner_io_buffer_load_factor)
        )
        try:
            await self._compact(target, producers, offset_map)
        finally:
            for _ in offset_map.give_back():
                await asyncio.sleep(0)

    async def _compact(self, target: CleanableLog, producers: LastBatches, offset_map: OffsetMap) -> None:
        unified_log, started = target.log, time.perf_counter()
        compaction = LogCompaction(target, producers, offset_map, self._environment, self._disk, self._throttle)
        end_offset = await compaction.run()
        unified_log.clean_offset = end_offset
        await self._checkpoint()
        seconds = time.perf_counter() - started
        self._metrics.cleaned(compaction.bytes_read, compaction.bytes_written, seconds, offset_map.utilization)
        log.info(
            "log_cleaned",
            log=str(unified_log.topic_partition),
            from_offset=target.first_dirty_offset,
            to_offset=end_offset,
            keys=len(offset_map),
            bytes_read=compaction.bytes_read,
            bytes_written=compaction.bytes_written,
            seconds=round(seconds, 3),
        )
