"""What the tests of the log cleaner share: one compacted log, its cleaner, and what is in the log by key."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from broker.common.chance import Chance
from broker.common.disk import DiskExecutor, InlineDiskExecutor
from broker.common.errors import StorageFailure
from broker.common.identifiers import TopicPartition
from broker.config.config_holder import ConfigHolder
from broker.log.cleaner.cleanable_log import CleanableLog, cleanable
from broker.log.cleaner.io_throttle import IoThrottle
from broker.log.cleaner.last_batches import last_batches
from broker.log.cleaner.log_cleaner import LogCleaner
from broker.log.cleaner.log_compaction import LogCompaction
from broker.log.cleaner.offset_map import OffsetMap
from broker.log.offset_checkpoint_file import CLEANER_OFFSET_CHECKPOINT, OffsetCheckpointFile
from broker.log.unified_log import UnifiedLog
from broker.records.memory_records_builder import records_batch
from broker.records.record import Record
from tests.support.builders import parsed
from tests.unit.log.log_world import LOG_DIRECTORY, TP, LogWorld, broker_config

Entry = tuple[int, bytes | None, bytes | None]


class CleanerWorld(LogWorld):
    """Each `put` is a batch; `roll` closes a segment.  By default everything that is dirty is compacted at once."""

    def __init__(self, *, broker: dict[str, object] | None = None, disk: DiskExecutor | None = None, **config: Any):
        self.holder = ConfigHolder(broker_config(**(broker or {})))
        self.executor = disk or InlineDiskExecutor()
        config.setdefault("min_cleanable_dirty_ratio", 0)
        config.setdefault("segment_bytes", 1 << 20)
        super().__init__(compact=True, **config)
        self.make_cleaner()

    def make_cleaner(self) -> None:
        self.cleaner = LogCleaner(
            self.holder,
            self.environment,
            self.executor,
            logs=lambda: [self.log],
            flush=self.flush,
            checkpoint=self.checkpoint,
        )

    # -- what the owner of the logs does ---------------------------------------------------------------------------

    @property
    def checkpoint_file(self) -> OffsetCheckpointFile:
        return OffsetCheckpointFile(self.file_system, LOG_DIRECTORY / CLEANER_OFFSET_CHECKPOINT)

    async def flush(self, log: UnifiedLog, offset: int) -> bool:
        try:
            plan = log.plan_flush(offset)
            if plan is not None:
                plan.run()
                log.complete_flush(plan)
        except StorageFailure:
            return False
        return True

    async def checkpoint(self) -> bool:
        offsets = {} if self.log.clean_offset is None else {TP: self.log.clean_offset}
        try:
            self.checkpoint_file.write(offsets)
        except StorageFailure:
            return False
        return True

    def checkpointed(self) -> dict[TopicPartition, int]:
        return self.checkpoint_file.read()

    def restart(self, **how: Any) -> UnifiedLog:
        """With what the cleaner's checkpoint says, the topic's settings being unknown, as at a real start."""
        offsets = self.checkpointed()
        config, self.config = self.config, LogWorld().config
        try:
            log = self.reload(was_compacted=TP in offsets, **how)
        finally:
            self.config = config
        log.settle(config)
        if TP in offsets:
            log.clean_offset = min(offsets[TP], log.log_end_offset)
        self.make_cleaner()
        return log

    def cut_power(self, chance: Chance, **how: Any) -> UnifiedLog:
        self.disk.crash(chance)
        return self.restart(close=False, **how)

    # -- writing and reading ---------------------------------------------------------------------------------------

    def put(self, *entries: tuple[str | None, str | None], **keywords: Any) -> int:
        """One batch of (key, value), a value of None being a tombstone; returns its base offset."""
        at = keywords.pop("timestamp", self.clock.ms)
        epoch = keywords.pop("epoch", 0)
        batch = records_batch(
            *[(at, _encode(key), _encode(value)) for key, value in entries],
            **keywords,
        )
        (result,) = self.log.append_as_leader(parsed(batch), epoch)
        if result.error is not None:
            raise result.error
        self.log.update_high_watermark(self.log.log_end_offset)
        return result.base_offset

    def roll(self) -> None:
        self.log.roll()

    async def clean(self) -> bool:
        return await self.cleaner.clean_filthiest()

    def target(self) -> CleanableLog:
        return cleanable(self.log, self.clock.ms)

    def compaction(self, entries_max: int = 1000, target: CleanableLog | None = None) -> LogCompaction:
        return LogCompaction(
            target or self.target(),
            last_batches(self.log.producer_state_manager.producers),
            OffsetMap(entries_max),
            self.environment,
            self.executor,
            IoThrottle(lambda: float("inf")),
        )

    def records(self, start: int | None = None) -> list[Record]:
        return [record for batch in self.batches(start) if not batch.is_control for record in batch.records()]

    def entries(self) -> list[tuple[int, str | None, str | None]]:
        """(offset, key, value) of every record."""
        return [(record.offset, _decode(record.key), _decode(record.value)) for record in self.records()]

    def newest(self) -> dict[str, str]:
        """What a reader of the whole log has in its table at the end."""
        return table(self.entries())

    def files(self, *suffixes: str) -> list[Path]:
        return [Path(name) for name in self.names() if not suffixes or name.endswith(suffixes)]


def table(entries: Iterable[tuple[int, str | None, str | None]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for _, key, value in entries:
        if key is not None:
            found.pop(key, None)
            if value is not None:
                found[key] = value
    return found


def _encode(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _decode(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
