"""Settings of the log, most of them defaults for topics that do not say otherwise."""

import sys
from typing import Final

from broker.config.setting import (
    Config,
    Importance,
    Setting,
    UpdateMode,
    Valid,
    all_of,
    at_least,
    between,
    one_of,
    optional,
)
from broker.config.value_types import BOOLEAN, DOUBLE, INT, INT64_MAX, LIST, LONG, STRING

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE

COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP_POLICIES: Final = ("compact", "delete")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
SEGMENT_BYTES_MIN: Final = 1024 * 1024  # KIP-1030
GZIP_LEVELS: Final = Valid[int]("[1,...,9] or -1", lambda level: level == -1 or 1 <= level <= 9)
LZ4_LEVELS: Final = between(1, 17)
ZSTD_LEVELS: Final = between(-131072, 22)
DOUBLE_MAX: Final = sys.float_info.max  # Java's Double.MAX_VALUE

_RETENTION = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
_ROLL = ("log.roll.ms", "log.roll.hours")
_ROLL_JITTER = ("log.roll.jitter.ms", "log.roll.jitter.hours")


class LogSettings(Config):
    """Segments, retention, flush, timestamps, compaction."""

    message_max_bytes = Setting(
        "message.max.bytes",
        INT,
        default=1_048_588,
        importance=HIGH,
        valid=at_least(0),
        update=CLUSTER_WIDE,
        doc="The greatest record batch accepted, as it is sent (after compression).",
    )
    compression_type = Setting(
        "compression.type",
        STRING,
        default="producer",
        importance=HIGH,
        valid=one_of(*COMPRESSION_TYPES),
        update=CLUSTER_WIDE,
        doc="How batches are stored: as the producer sent them (`producer`), or recompressed with this codec.",
    )
    compression_gzip_level = Setting(
        "compression.gzip.level",
        INT,
        default=-1,
        valid=GZIP_LEVELS,
        update=CLUSTER_WIDE,
        doc="The level of gzip when `compression.type` is gzip.",
    )
    compression_lz4_level = Setting(
        "compression.lz4.level",
        INT,
        default=9,
        valid=LZ4_LEVELS,
        update=CLUSTER_WIDE,
        doc="The level of lz4 when `compression.type` is lz4.",
    )
    compression_zstd_level = Setting(
        "compression.zstd.level",
        INT,
        default=3,
        valid=ZSTD_LEVELS,
        update=CLUSTER_WIDE,
        doc="The level of zstd when `compression.type` is zstd.",
    )
    log_segment_bytes = Setting(
        "log.segment.bytes",
        INT,
        default=1 << 30,
        importance=HIGH,
        valid=at_least(SEGMENT_BYTES_MIN),
        update=CLUSTER_WIDE,
        doc="The greatest size of one log file.",
    )
    log_roll_ms = optional(
        "log.roll.ms",
        LONG,
        importance=HIGH,
        valid=at_least(1),
        update=CLUSTER_WIDE,
        synonyms=_ROLL,
        doc="The greatest age of a log file before another is begun, in milliseconds; without it `log.roll.hours`.",
    )
    log_roll_hours = Setting(
        "log.roll.hours",
        INT,
        default=168,
        importance=HIGH,
        valid=at_least(1),
        synonyms=_ROLL,
        doc="The greatest age of a log file, in hours.",
    )
    log_roll_jitter_ms = optional(
        "log.roll.jitter.ms",
        LONG,
        importance=HIGH,
        valid=at_least(0),
        update=CLUSTER_WIDE,
        synonyms=_ROLL_JITTER,
        doc="The most by which that age is shortened at random, so that not all files roll at once, in ms.",
    )
    log_roll_jitter_hours = Setting(
        "log.roll.jitter.hours",
        INT,
        default=0,
        importance=HIGH,
        valid=at_least(0),
        synonyms=_ROLL_JITTER,
        doc="The same in hours, when `log.roll.jitter.ms` is not given.",
    )
    log_retention_ms = optional(
        "log.retention.ms",
        LONG,
        importance=HIGH,
        valid=at_least(-1),
        update=CLUSTER_WIDE,
        synonyms=_RETENTION,
        doc="How long records are kept, in milliseconds; -1 for ever; without it `log.retention.minutes`.",
    )
    log_retention_minutes = optional(
        "log.retention.minutes",
        INT,
        importance=HIGH,
        synonyms=_RETENTION,
        doc="How long records are kept, in minutes; negative for ever; without it `log.retention.hours`.",
    )
    log_retention_hours = Setting(
        "log.retention.hours",
        INT,
        default=168,
        importance=HIGH,
        synonyms=_RETENTION,
        doc="How long records are kept, in hours; negative for ever.",
    )
    log_retention_bytes = Setting(
        "log.retention.bytes",
        LONG,
        default=-1,
        importance=HIGH,
        update=CLUSTER_WIDE,
        doc="How many bytes of a partition are kept; -1 for no bound.",
    )
    log_retention_check_interval_ms = Setting(
        "log.retention.check.interval.ms",
        LONG,
        default=300_000,
        valid=at_least(1),
        doc="How often logs are looked through for what may be deleted, in milliseconds.",
    )
    log_segment_delete_delay_ms = Setting(
        "log.segment.delete.delay.ms",
        LONG,
        default=60_000,
        importance=HIGH,
        valid=at_least(0),
        update=CLUSTER_WIDE,
        doc="How long a deleted file stays on disk under another name, in milliseconds.",
    )
    log_cleanup_policy = Setting(
        "log.cleanup.policy",
        LIST,
        default=("delete",),
        valid=all_of(*CLEANUP_POLICIES),
        update=CLUSTER_WIDE,
        doc="What happens to old records: `delete` by age and size, `compact` by key, both, or none.",
    )
    log_cleaner_delete_retention_ms = Setting(
        "log.cleaner.delete.retention.ms",
        LONG,
        default=86_400_000,
        valid=at_least(0),
        update=CLUSTER_WIDE,
        doc="How long tombstones of compacted topics are kept, in milliseconds.",
    )
    log_cleaner_min_cleanable_ratio = Setting(
        "log.cleaner.min.cleanable.ratio",
        DOUBLE,
        default=0.5,
        valid=between(0, 1),
        update=CLUSTER_WIDE,
        doc="Which part of a compacted log must be dirty before it is cleaned.",
    )
    log_cleaner_min_compaction_lag_ms = Setting(
        "log.cleaner.min.compaction.lag.ms",
        LONG,
        default=0,
        valid=at_least(0),
        update=CLUSTER_WIDE,
        doc="How long a record stays uncompacted at least, in milliseconds.",
    )
    log_cleaner_max_compaction_lag_ms = Setting(
        "log.cleaner.max.compaction.lag.ms",
        LONG,
        default=INT64_MAX,
        valid=at_least(1),
        update=CLUSTER_WIDE,
        doc="How long a record stays uncompacted at most, in milliseconds: a log file is closed by that age.",
    )
    log_cleaner_enable = Setting(
        "log.cleaner.enable",
        BOOLEAN,
        default=True,
        doc="Whether topics with `cleanup.policy=compact` are compacted. Without it they keep every record.",
    )
    log_cleaner_backoff_ms = Setting(
        "log.cleaner.backoff.ms",
        LONG,
        default=15_000,
        valid=at_least(0),
        update=CLUSTER_WIDE,
        doc="How long the cleaner waits when no log needs it, in milliseconds; at least 10.",
    )
    log_cleaner_dedupe_buffer_size = Setting(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        default=134_217_728,
        update=CLUSTER_WIDE,
        doc="The memory for the keys of a pass of the cleaner, in bytes: 176 a key. A log with more keys takes several "
        "passes. It is taken only while a log is compacted.",
    )
    log_cleaner_io_buffer_load_factor = Setting(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        default=0.9,
        update=CLUSTER_WIDE,
        doc="Which part of `log.cleaner.dedupe.buffer.size` may fill up.",
    )
    log_cleaner_io_max_bytes_per_second = Setting(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        default=DOUBLE_MAX,
        valid=at_least(0.001),
        update=CLUSTER_WIDE,
        doc="How many bytes the cleaner reads and writes per second at most, both together.",
    )
    log_index_size_max_bytes = Setting(
        "log.index.size.max.bytes",
        INT,
        default=10 * 1024 * 1024,
        valid=at_least(4),
        update=CLUSTER_WIDE,
        doc="The greatest size of an offset index; a full one begins another log file.",
    )
    log_index_interval_bytes = Setting(
        "log.index.interval.bytes",
        INT,
        default=4096,
        valid=at_least(0),
        update=CLUSTER_WIDE,
        doc="After how many bytes of log an index entry is added.",
    )
    log_flush_interval_messages = Setting(
        "log.flush.interval.messages",
        LONG,
        default=INT64_MAX,
        importance=HIGH,
        valid=at_least(1),
        update=CLUSTER_WIDE,
        doc="After how many records of a partition its log is forced to the disk, before they are acknowledged.",
    )
    log_flush_interval_ms = optional(
        "log.flush.interval.ms",
        LONG,
        importance=HIGH,
        update=CLUSTER_WIDE,
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        doc="How long a record may be only in the operating system's memory, in milliseconds; without it, as long as "
        "`log.flush.scheduler.interval.ms`.",
    )
    log_flush_scheduler_interval_ms = Setting(
        "log.flush.scheduler.interval.ms",
        LONG,
        default=INT64_MAX,
        importance=HIGH,
        valid=at_least(1),
        doc="How often logs are looked through for what must be forced to the disk, in milliseconds.",
    )
    log_flush_offset_checkpoint_interval_ms = Setting(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        default=60_000,
        importance=HIGH,
        valid=at_least(0),
        doc="How often recovery points and log start offsets are written down, in milliseconds.",
    )
    log_message_timestamp_type = Setting(
        "log.message.timestamp.type",
        STRING,
        default="CreateTime",
        valid=one_of(*TIMESTAMP_TYPES),
        update=CLUSTER_WIDE,
        doc="Whether records carry the producer's time or the broker's.",
    )
    log_message_timestamp_before_max_ms = Setting(
        "log.message.timestamp.before.max.ms",
        LONG,
        default=INT64_MAX,
        valid=at_least(0),
        update=CLUSTER_WIDE,
        doc="How far a record's timestamp may lie before the broker's time, in milliseconds.",
    )
    log_message_timestamp_after_max_ms = Setting(
        "log.message.timestamp.after.max.ms",
        LONG,
        default=3_600_000,
        valid=at_least(0),
        update=CLUSTER_WIDE,
        doc="How far a record's timestamp may lie after the broker's time, in milliseconds.",
    )
    log_initial_task_delay_ms = Setting(
        "log.initial.task.delay.ms",
        LONG,
        default=30_000,
        importance=LOW,
        valid=at_least(0),
        is_internal=True,
        doc="How long after the start the log's background work begins, in milliseconds.",
    )
    producer_id_expiration_ms = Setting(
        "producer.id.expiration.ms",
        INT,
        default=86_400_000,
        importance=LOW,
        valid=at_least(1),
        update=CLUSTER_WIDE,
        doc="How long an idle idempotent producer is remembered, in milliseconds.",
    )
    producer_id_expiration_check_interval_ms = Setting(
        "producer.id.expiration.check.interval.ms",
        INT,
        default=600_000,
        importance=LOW,
        valid=at_least(1),
        is_internal=True,
        doc="How often producers that must be forgotten are sought, in milliseconds.",
    )

    @property
    def log_retention_ms_effective(self) -> int:
        """Retention in milliseconds, -1 for ever: milliseconds over minutes over hours (KafkaConfig)."""
        if self.log_retention_ms is not None:
            value = self.log_retention_ms
        elif self.log_retention_minutes is not None:
            value = self.log_retention_minutes * 60_000
        else:
            value = self.log_retention_hours * 3_600_000
        return max(value, -1)

    @property
    def log_roll_ms_effective(self) -> int:
        return self.log_roll_ms if self.log_roll_ms is not None else self.log_roll_hours * 3_600_000

    @property
    def log_roll_jitter_ms_effective(self) -> int:
        return (
            self.log_roll_jitter_ms if self.log_roll_jitter_ms is not None else self.log_roll_jitter_hours * 3_600_000
        )

    @property
    def log_flush_interval_ms_effective(self) -> int:
        if self.log_flush_interval_ms is not None:
            return self.log_flush_interval_ms
        return self.log_flush_scheduler_interval_ms
