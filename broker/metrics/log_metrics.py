"""LogMetrics: sizes, offsets, flushes, rolls, failures and compaction of the local logs."""

import time
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


class LogCleanerMetrics:
    """What the log cleaner saw at its last look, and what its last pass did."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._dirtiest = 0.0
        self._delay_seconds = 0.0
        self._uncleanable = (0, 0)
        self._looked_at: float | None = None
        self._recopied = 0.0
        self._clean_seconds = 0.0
        self._utilization = 0.0
        self.passes = registry.counter("broker_log_cleaner_passes_total", "Passes of the log cleaner over a log.")
        self.failures = registry.counter(
            "broker_log_cleaner_failures_total",
            "Passes of the log cleaner that a damaged log or the disk ended early.",
            action="Look for log_not_cleaned and log_uncleanable in the log.",
        )
        self.read_bytes = registry.counter(
            "broker_log_cleaner_read_bytes_total",
            "Bytes of log files that the log cleaner has written anew or dropped.",
        )
        self.written_bytes = registry.counter(
            "broker_log_cleaner_written_bytes_total", "Bytes of log files that the log cleaner has written."
        )
        registry.gauge(
            "kafka_log_logcleanermanager_max_dirty_percent",
            "The largest part of a compacted log that is not compacted yet, in percent.",
            lambda: 100 * self._dirtiest,
            bean="kafka.log:type=LogCleanerManager,name=max-dirty-percent",
            action="If it stays above min.cleanable.dirty.ratio, the cleaner is too slow. While it is off this is 0.",
        )
        registry.gauge(
            "kafka_log_logcleanermanager_time_since_last_run_ms",
            "Milliseconds since the log cleaner last looked at the logs.",
            lambda: 0 if self._looked_at is None else 1000 * (time.perf_counter() - self._looked_at),
            bean="kafka.log:type=LogCleanerManager,name=time-since-last-run-ms",
            action="More than log.cleaner.backoff.ms and a long pass together: the cleaner hangs. "
            "While it is off this is 0.",
        )
        registry.gauge(
            "kafka_log_logcleanermanager_uncleanable_partitions_count",
            "Logs that the cleaner has given up until the broker starts again.",
            lambda: self._uncleanable[0],
            bean="kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count,logDirectory=*",
            action="log_uncleanable in the log says which and why.",
        )
        registry.gauge(
            "kafka_log_logcleanermanager_uncleanable_bytes",
            "Bytes of these logs that would be compacted.",
            lambda: self._uncleanable[1],
            bean="kafka.log:type=LogCleanerManager,name=uncleanable-bytes,logDirectory=*",
        )
        registry.gauge(
            "kafka_log_logcleaner_max_compaction_delay_secs",
            "How much longer than max.compaction.lag.ms a record has waited for compaction, in seconds.",
            lambda: self._delay_seconds,
            bean="kafka.log:type=LogCleaner,name=max-compaction-delay-secs",
            action="The cleaner is too slow for what topics ask of it.",
        )
        registry.gauge(
            "kafka_log_logcleaner_cleaner_recopy_percent",
            "How much of what the last pass has read it has written again, in percent.",
            lambda: 100 * self._recopied,
            bean="kafka.log:type=LogCleaner,name=cleaner-recopy-percent",
        )
        registry.gauge(
            "kafka_log_logcleaner_max_clean_time_secs",
            "How long the last pass took, in seconds.",
            lambda: self._clean_seconds,
            bean="kafka.log:type=LogCleaner,name=max-clean-time-secs",
        )
        registry.gauge(
            "kafka_log_logcleaner_max_buffer_utilization_percent",
            "How much of its room for keys the last pass has used, in percent.",
            lambda: 100 * self._utilization,
            bean="kafka.log:type=LogCleaner,name=max-buffer-utilization-percent",
            action="At 100, logs take several passes: more log.cleaner.dedupe.buffer.size takes fewer.",
        )

    def looked(self, dirtiest: float, delay_seconds: float, uncleanable_count: int, uncleanable_bytes: int) -> None:
        """The cleaner has looked at all logs; `dirtiest` is between 0 and 1."""
        self._looked_at = time.perf_counter()
        self._dirtiest, self._delay_seconds = dirtiest, delay_seconds
        self._uncleanable = (uncleanable_count, uncleanable_bytes)

    def cleaned(self, bytes_read: int, bytes_written: int, seconds: float, utilization: float) -> None:
        """A pass has come to its end."""
        self.passes.increment()
        self.read_bytes.increment(bytes_read)
        self.written_bytes.increment(bytes_written)
        self._recopied = bytes_written / bytes_read if bytes_read else 0.0
        self._clean_seconds, self._utilization = seconds, utilization


class LogMetrics:
    """Counters are moved by the logs; gauges read the logs that `observe` named, at scrape."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._logs: Callable[[], Iterable[MeasuredLog]] = tuple
        self.cleaner = LogCleanerMetrics(registry)
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
