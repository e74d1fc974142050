"""LogMetrics: sizes, offsets, flushes, rolls and failures of the local logs."""

from collections.abc import Callable, Iterable
from typing import Protocol

from broker.common.identifiers import TopicPartition
from broker.metrics.registry import MetricsRegistry, Sample, sum_over


class MeasuredLog(Protocol):
    """What a scrape reads of a log."""

    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def segment_count(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def producer_count(self) -> int: ...


class LogMetrics:
    """Counters are moved by the logs; gauges read the logs that `observe` named, at scrape."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._logs: Callable[[], Iterable[MeasuredLog]] = tuple
        self.remaining_logs_to_recover = 0
        self.flush_seconds = registry.histogram(
            "broker_log_flush_seconds",
            "Time to flush a log to the device.",
            bean="kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
            action="Long flushes mean a slow or busy disk.",
        )
        self.rolls = registry.counter("broker_log_segments_rolled_total", "Segments that were closed for a new one.")
        self.deleted_segments = registry.counter(
            "broker_log_segments_deleted_total", "Segments that retention, deletion of records or truncation removed."
        )
        self.storage_failures = registry.counter(
            "broker_log_storage_failures_total",
            "Writes, flushes and rolls that the disk refused.",
            action="Look for a full or failing disk; producers got KAFKA_STORAGE_ERROR.",
        )
        self.recovered_bytes = registry.counter(
            "broker_log_recovered_bytes_total", "Bytes read again at start because the last stop was not clean."
        )
        self.truncated_bytes = registry.counter(
            "broker_log_recovery_cut_bytes_total", "Bytes of incomplete batches that recovery cut off."
        )
        registry.gauge(
            "kafka_log_logmanager_remaininglogstorecover",
            "Logs that are still to be loaded at start.",
            lambda: self.remaining_logs_to_recover,
            bean="kafka.log:type=LogManager,name=remainingLogsToRecover",
        )
        registry.collected(
            "kafka_server_replicamanager_produceridcount",
            "gauge",
            "Idempotent and transactional producers the logs remember.",
            (),
            lambda: sum_over(self._logs(), lambda log: log.producer_count),
            bean="kafka.server:type=ReplicaManager,name=ProducerIdCount",
            action="Clients that make a new producer per message fill memory here.",
        )
        self._per_log(registry, "size", "Size", "Bytes of a partition's local log.", lambda log: log.size_bytes)
        self._per_log(
            registry, "numlogsegments", "NumLogSegments", "Segments of a partition.", lambda log: log.segment_count
        )
        self._per_log(
            registry,
            "logstartoffset",
            "LogStartOffset",
            "First offset a partition has, on this disk or in remote storage.",
            lambda log: log.log_start_offset,
        )
        self._per_log(
            registry,
            "logendoffset",
            "LogEndOffset",
            "Offset the next record of a partition gets.",
            lambda log: log.log_end_offset,
        )

    def observe(self, logs: Callable[[], Iterable[MeasuredLog]]) -> None:
        """The logs to report at scrape."""
        self._logs = logs

    def _per_log(
        self,
        registry: MetricsRegistry,
        name: str,
        bean: str,
        documentation: str,
        value: Callable[[MeasuredLog], int],
    ) -> None:
        def read() -> Iterable[Sample]:
            for log in list(self._logs()):
                topic, partition = log.topic_partition
                yield (topic, str(partition)), value(log)

        registry.collected(
            f"kafka_log_log_{name}",
            "gauge",
            documentation,
            ("topic", "partition"),
            read,
            bean=f"kafka.log:type=Log,name={bean},topic=*,partition=*",
        )
