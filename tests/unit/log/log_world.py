"""What the tests of the log share: a settable clock, one log on a simulated or real disk, batches by the dozen."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from broker.common.chance import Chance
from broker.common.file_system import FileSystem
from broker.common.identifiers import TopicPartition
from broker.config.broker_config import BrokerConfig
from broker.config.topic_config import TopicConfig
from broker.log.file_records import read
from broker.log.log_environment import LogEnvironment
from broker.log.log_loader import LoadedLog, load_log
from broker.log.unified_log import UnifiedLog
from broker.metrics.log_metrics import LogMetrics
from broker.metrics.registry import MetricsRegistry
from broker.records.append_origin import AppendOrigin
from broker.records.control_record import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from broker.records.memory_records_builder import records_batch
from broker.records.record_batch import RecordBatch, batches
from tests.support.builders import parsed
from tests.support.sim_disk import SimFileSystem

NOW_MS = 1_700_000_000_000
LOG_DIRECTORY = Path("/data")
TP = TopicPartition("t", 0)

PROPERTIES = {
    "node.id": "1",
    "process.roles": "broker",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
}


def broker_config(**overrides: object) -> BrokerConfig:
    """Keywords are Kafka's names with underscores."""
    named = {name.replace("_", "."): str(value) for name, value in overrides.items()}
    return BrokerConfig.from_properties(PROPERTIES | {"log.dirs": str(LOG_DIRECTORY)} | named)


def topic_config(**overrides: object) -> TopicConfig:
    """Keywords are Kafka's names with underscores; `segment_bytes` may be as small as a test wants."""
    named = {name.replace("_", "."): str(value) for name, value in overrides.items()}
    if "segment.bytes" in named:
        named["internal.segment.bytes"] = named.pop("segment.bytes")
    return TopicConfig.effective(broker_config(), named)


class SettableClock:
    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms


class RecordedHousekeeping:
    """Remembers what the logs ask for."""

    def __init__(self) -> None:
        self.flushes: list[UnifiedLog] = []
        self.deletions: list[tuple[list[Path], int]] = []
        self.checkpoints = 0

    def flush_later(self, log: UnifiedLog) -> None:
        self.flushes.append(log)

    def delete_later(self, paths: Sequence[Path], delay_ms: int) -> None:
        self.deletions.append((list(paths), delay_ms))

    def checkpoint_later(self) -> None:
        self.checkpoints += 1


class LogWorld:
    """One partition's log and its surroundings; `reload` is a restart of the process."""

    def __init__(
        self,
        file_system: FileSystem | None = None,
        directory: Path = LOG_DIRECTORY,
        *,
        compact: bool = False,
        tiered: bool = False,
        **config: object,
    ) -> None:
        self.clock = SettableClock()
        self.file_system = SimFileSystem(self.clock.now_ms) if file_system is None else file_system
        self.housekeeping = RecordedHousekeeping()
        self.chance = Chance(1)
        self.metrics = LogMetrics(MetricsRegistry())
        if tiered:
            config["remote_storage_enable"] = True
        if compact:
            config["cleanup_policy"] = "compact"
        self.config = topic_config(**config)
        self.is_tiered = tiered
        self.directory = directory / str(TP)
        self.file_system.make_directories(directory)
        if isinstance(self.file_system, SimFileSystem):
            self.file_system.sync_everything()
        self.environment = self._environment()
        self.loaded = self._load(had_clean_shutdown=False)
        self.log = self.loaded.log

    @property
    def disk(self) -> SimFileSystem:
        assert isinstance(self.file_system, SimFileSystem)
        return self.file_system

    def _environment(self) -> LogEnvironment:
        return LogEnvironment(
            self.file_system,
            self.clock,
            self.chance,
            self.metrics,
            housekeeping=self.housekeeping,
            is_remote_storage_enabled=self.is_tiered,
        )

    def _load(self, **how: Any) -> LoadedLog:
        self.file_system.make_directories(self.directory)
        return load_log(self.environment, self.directory, TP, self.config, **how)

    def reload(
        self,
        *,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        close: bool | None = None,
        **how: Any,
    ) -> UnifiedLog:
        """Restart: after `close` (default: when clean) or a kill, with what the checkpoints said."""
        if clean if close is None else close:
            self.close()
        else:
            self.log.close()
        self.environment = self._environment()
        self.loaded = self._load(
            had_clean_shutdown=clean, recovery_point=recovery_point, log_start_offset=log_start_offset, **how
        )
        self.log = self.loaded.log
        return self.log

    def close(self) -> None:
        plan = self.log.prepare_close()
        if plan is not None:
            plan.run()
            self.log.complete_flush(plan)
        self.log.close()

    def copied_up_to(self, offset: int) -> None:
        """What is below `offset` is in remote storage, and the device has all that is closed here."""
        self.log.roll()
        self.log.flush()
        self.log.update_highest_remote_offset(offset - 1)

    def checkpoint_log_start(self) -> int:
        """As the owner of the logs does it; for `reload`."""
        self.log.log_start_is_durable(self.log.log_start_offset)
        return self.log.log_start_offset

    # -- appending and reading -------------------------------------------------------------------------------------

    def append(
        self,
        count: int = 1,
        *,
        size: int = 10,
        timestamp: int | None = None,
        epoch: int = 0,
        replicated: bool = True,
        **keywords: Any,
    ) -> int:
        """Append one batch of `count` records as the leader; returns its base offset.  Raises what it answers."""
        batch = self.batch(count, size=size, timestamp=timestamp, **keywords)
        (result,) = self.log.append_as_leader(parsed(batch), epoch)
        if result.error is not None:
            raise result.error
        if replicated:
            self.log.update_high_watermark(self.log.log_end_offset)
        return result.base_offset

    def batch(
        self, count: int = 1, *, size: int = 10, timestamp: int | None = None, key: bytes | None = b"k", **keywords: Any
    ) -> bytearray:
        at = self.clock.ms if timestamp is None else timestamp
        return records_batch(*[(at, key, b"v" * size) for _ in range(count)], **keywords)

    def marker(
        self,
        producer_id: int,
        *,
        commit: bool,
        producer_epoch: int = 0,
        coordinator_epoch: int = 0,
        epoch: int = 0,
        replicated: bool = True,
    ) -> int:
        """Append an end-of-transaction marker as the coordinator; returns its offset.  Raises what it answers."""
        batch = end_transaction_marker_batch(
            EndTransactionMarker(ControlRecordType.COMMIT if commit else ControlRecordType.ABORT, coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=self.clock.ms,
        )
        (result,) = self.log.append_as_leader(parsed(batch), epoch, origin=AppendOrigin.COORDINATOR)
        if result.error is not None:
            raise result.error
        if replicated:
            self.log.update_high_watermark(self.log.log_end_offset)
        return result.base_offset

    def batches(self, start: int | None = None) -> list[RecordBatch]:
        """Every batch from `start` (default: the local log start) to the log end, by as many reads as it takes."""
        log = self.log
        offset = log.local_log_start_offset if start is None else start
        found: list[RecordBatch] = []
        while offset < log.log_end_offset:
            answer = log.read(offset, 1 << 20, log.log_end_offset, min_one_batch=True)
            if answer.file_slice is None:
                break
            part = list(batches(bytes(read(answer.file_slice))))
            assert part, f"nothing whole at {offset}: {answer.file_slice}"
            found += part
            offset = part[-1].next_offset
        return found

    def offsets(self, start: int | None = None) -> list[tuple[int, int]]:
        return [(batch.base_offset, batch.last_offset) for batch in self.batches(start)]

    def path(self, base_offset: int, suffix: str) -> Path:
        return self.directory / f"{base_offset:020d}{suffix}"

    def names(self) -> list[str]:
        return self.file_system.list_directory(self.directory)
