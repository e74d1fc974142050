"""TopicConfig: every setting of a topic, and the broker's setting that is its default (Kafka's LogConfig)."""

import re
from collections.abc import Mapping
from typing import Any, Final, Self

from broker.common.errors import InvalidConfigError
from broker.config.accepted import TIERED_COPIES
from broker.config.broker_config import BrokerConfig
from broker.config.log_settings import (
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    GZIP_LEVELS,
    LZ4_LEVELS,
    SEGMENT_BYTES_MIN,
    TIMESTAMP_TYPES,
    ZSTD_LEVELS,
)
from broker.config.remote_log_rules import check_end_of_tiering, check_remote_log_topic
from broker.config.remote_log_settings import AS_RETENTION
from broker.config.remote_wal_rules import check_remote_wal_topic
from broker.config.setting import (
    Config,
    ConfigError,
    UpdateMode,
    Valid,
    all_of,
    at_least,
    between,
    one_of,
    optional,
)
from broker.config.topic_setting import TopicSetting
from broker.config.value_types import BOOLEAN, DOUBLE, INT, INT64_MAX, LIST, LONG, STRING

# Kafka's ThrottledReplicaListValidator; an empty list is fine.
THROTTLED_REPLICAS: Final = Valid[Any](
    "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    lambda entries: entries == ("*",) or all(re.fullmatch(r"[0-9]+:[0-9]+", entry) for entry in entries),
)


class TopicConfig(Config):
    """The values one topic runs with.

    `segment_bytes` also holds a given `internal.segment.bytes`, which has no lower bound and is for tests.
    """

    cleanup_policy = TopicSetting(
        "cleanup.policy",
        LIST,
        default=("delete",),
        valid=all_of(*CLEANUP_POLICIES),
        synonyms=("log.cleanup.policy",),
        broker_value=lambda broker: broker.log_cleanup_policy,
        doc="What happens to old records: `delete` by age and size, `compact` by key, both, or none.",
    )
    compression_type = TopicSetting(
        "compression.type",
        STRING,
        default="producer",
        valid=one_of(*COMPRESSION_TYPES),
        synonyms=("compression.type",),
        broker_value=lambda broker: broker.compression_type,
        doc="How batches are stored: as the producer sent them (`producer`), or recompressed with this codec.",
    )
    compression_gzip_level = TopicSetting(
        "compression.gzip.level",
        INT,
        default=-1,
        valid=GZIP_LEVELS,
        synonyms=("compression.gzip.level",),
        broker_value=lambda broker: broker.compression_gzip_level,
        doc="The level of gzip when `compression.type` is gzip.",
    )
    compression_lz4_level = TopicSetting(
        "compression.lz4.level",
        INT,
        default=9,
        valid=LZ4_LEVELS,
        synonyms=("compression.lz4.level",),
        broker_value=lambda broker: broker.compression_lz4_level,
        doc="The level of lz4 when `compression.type` is lz4.",
    )
    compression_zstd_level = TopicSetting(
        "compression.zstd.level",
        INT,
        default=3,
        valid=ZSTD_LEVELS,
        synonyms=("compression.zstd.level",),
        broker_value=lambda broker: broker.compression_zstd_level,
        doc="The level of zstd when `compression.type` is zstd.",
    )
    delete_retention_ms = TopicSetting(
        "delete.retention.ms",
        LONG,
        default=86_400_000,
        valid=at_least(0),
        synonyms=("log.cleaner.delete.retention.ms",),
        broker_value=lambda broker: broker.log_cleaner_delete_retention_ms,
        doc="How long tombstones of a compacted topic are kept, in milliseconds.",
    )
    file_delete_delay_ms = TopicSetting(
        "file.delete.delay.ms",
        LONG,
        default=60_000,
        valid=at_least(0),
        synonyms=("log.segment.delete.delay.ms",),
        broker_value=lambda broker: broker.log_segment_delete_delay_ms,
        doc="How long a deleted file stays on disk under another name, in milliseconds.",
    )
    flush_messages = TopicSetting(
        "flush.messages",
        LONG,
        default=INT64_MAX,
        valid=at_least(1),
        synonyms=("log.flush.interval.messages",),
        broker_value=lambda broker: broker.log_flush_interval_messages,
        doc="After how many records of a partition its log is forced to the disk, before they are acknowledged.",
    )
    flush_ms = TopicSetting(
        "flush.ms",
        LONG,
        default=INT64_MAX,
        valid=at_least(0),
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        broker_value=lambda broker: broker.log_flush_interval_ms_effective,
        doc="How long a record may be only in the operating system's memory, in milliseconds.",
    )
    follower_replication_throttled_replicas = TopicSetting(
        "follower.replication.throttled.replicas",
        LIST,
        default=(),
        valid=THROTTLED_REPLICAS,
        doc="Followers that replicate at the throttled rate, as `partition:broker`; `*` is all of them.",
    )
    leader_replication_throttled_replicas = TopicSetting(
        "leader.replication.throttled.replicas",
        LIST,
        default=(),
        valid=THROTTLED_REPLICAS,
        doc="Leaders whose followers replicate at the throttled rate, as `partition:broker`; `*` is all of them.",
    )
    index_interval_bytes = TopicSetting(
        "index.interval.bytes",
        INT,
        default=4096,
        valid=at_least(0),
        synonyms=("log.index.interval.bytes",),
        broker_value=lambda broker: broker.log_index_interval_bytes,
        doc="After how many bytes of log an index entry is added.",
    )
    internal_segment_bytes = optional(
        "internal.segment.bytes",
        INT,
        valid=at_least(1),
        update=UpdateMode.CLUSTER_WIDE,
        is_internal=True,
        doc="`segment.bytes` without its lower bound, for tests.",
    )
    local_retention_bytes = TopicSetting(
        "local.retention.bytes",
        LONG,
        default=AS_RETENTION,
        valid=at_least(AS_RETENTION),
        synonyms=("log.local.retention.bytes",),
        broker_value=lambda broker: broker.log_local_retention_bytes,
        doc="How many bytes of a tiered partition stay on local disks; -2 as `retention.bytes`, -1 for no bound.",
    )
    local_retention_ms = TopicSetting(
        "local.retention.ms",
        LONG,
        default=AS_RETENTION,
        valid=at_least(AS_RETENTION),
        synonyms=("log.local.retention.ms",),
        broker_value=lambda broker: broker.log_local_retention_ms,
        doc="How long records of a tiered topic stay on local disks, in milliseconds; -2 as `retention.ms`, -1 for as "
        "long as the topic keeps them.",
    )
    max_compaction_lag_ms = TopicSetting(
        "max.compaction.lag.ms",
        LONG,
        default=INT64_MAX,
        valid=at_least(1),
        synonyms=("log.cleaner.max.compaction.lag.ms",),
        broker_value=lambda broker: broker.log_cleaner_max_compaction_lag_ms,
        doc="How long a record stays uncompacted at most, in milliseconds: a log file is closed by that age.",
    )
    max_message_bytes = TopicSetting(
        "max.message.bytes",
        INT,
        default=1_048_588,
        valid=at_least(0),
        synonyms=("message.max.bytes",),
        broker_value=lambda broker: broker.message_max_bytes,
        doc="The greatest record batch accepted, as it is sent (after compression).",
    )
    message_timestamp_after_max_ms = TopicSetting(
        "message.timestamp.after.max.ms",
        LONG,
        default=3_600_000,
        valid=at_least(0),
        synonyms=("log.message.timestamp.after.max.ms",),
        broker_value=lambda broker: broker.log_message_timestamp_after_max_ms,
        doc="How far a record's timestamp may lie after the broker's time, in milliseconds.",
    )
    message_timestamp_before_max_ms = TopicSetting(
        "message.timestamp.before.max.ms",
        LONG,
        default=INT64_MAX,
        valid=at_least(0),
        synonyms=("log.message.timestamp.before.max.ms",),
        broker_value=lambda broker: broker.log_message_timestamp_before_max_ms,
        doc="How far a record's timestamp may lie before the broker's time, in milliseconds.",
    )
    message_timestamp_type = TopicSetting(
        "message.timestamp.type",
        STRING,
        default="CreateTime",
        valid=one_of(*TIMESTAMP_TYPES),
        synonyms=("log.message.timestamp.type",),
        broker_value=lambda broker: broker.log_message_timestamp_type,
        doc="Whether records carry the producer's time or the broker's.",
    )
    min_cleanable_dirty_ratio = TopicSetting(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        default=0.5,
        valid=between(0, 1),
        synonyms=("log.cleaner.min.cleanable.ratio",),
        broker_value=lambda broker: broker.log_cleaner_min_cleanable_ratio,
        doc="Which part of a compacted log must be dirty before it is cleaned.",
    )
    min_compaction_lag_ms = TopicSetting(
        "min.compaction.lag.ms",
        LONG,
        default=0,
        valid=at_least(0),
        synonyms=("log.cleaner.min.compaction.lag.ms",),
        broker_value=lambda broker: broker.log_cleaner_min_compaction_lag_ms,
        doc="How long a record stays uncompacted at least, in milliseconds.",
    )
    min_insync_replicas = TopicSetting(
        "min.insync.replicas",
        INT,
        default=1,
        valid=at_least(1),
        synonyms=("min.insync.replicas",),
        broker_value=lambda broker: broker.min_insync_replicas,
        doc="How many replicas must be in sync for a write with acks=all to be accepted.",
    )
    preallocate = TopicSetting(
        "preallocate",
        BOOLEAN,
        default=False,
        no_effect="Files grow as they are written.",
        doc="Whether the space of a new log file is taken from the disk at once.",
    )
    remote_copy_lag_bytes = TopicSetting(
        "remote.copy.lag.bytes",
        LONG,
        default=-1,
        valid=at_least(-1),
        no_effect=TIERED_COPIES,
        doc="How many bytes the copy to the object store may lag behind.",
    )
    remote_copy_lag_ms = TopicSetting(
        "remote.copy.lag.ms",
        LONG,
        default=0,
        valid=at_least(-1),
        no_effect=TIERED_COPIES,
        doc="How long the copy to the object store may lag behind, in milliseconds.",
    )
    remote_log_copy_disable = TopicSetting(
        "remote.log.copy.disable",
        BOOLEAN,
        default=False,
        doc="Whether a tiered topic copies nothing more to the bucket. What is there is read, and deleted by age and "
        "size; records stay on local disks as long as `retention.ms` and `retention.bytes` say.",
    )
    remote_log_delete_on_disable = TopicSetting(
        "remote.log.delete.on.disable",
        BOOLEAN,
        default=False,
        doc="Whether what is in the bucket is deleted when `remote.storage.enable` becomes false, as it must be then: "
        "the topic begins with what is on local disks.",
    )
    remote_storage_enable = TopicSetting(
        "remote.storage.enable",
        BOOLEAN,
        default=False,
        doc="Whether closed log files are copied to a bucket, from where clients read what has left the local disks "
        "(KIP-405). Refused for compacted and internal topics, and without `remote.log.storage.system.enable`.",
    )
    remote_wal_enable = TopicSetting(
        "remote.wal.enable",
        BOOLEAN,
        default=False,
        doc="Whether followers take new records from a bucket instead of from the leader (KIP-1176). Wherry's own. "
        "Refused for compacted and internal topics, and without `remote.wal.storage.system.enable`. Topics that say "
        "nothing may be named in the brokers' `remote.wal.topics`.",
    )
    retention_bytes = TopicSetting(
        "retention.bytes",
        LONG,
        default=-1,
        synonyms=("log.retention.bytes",),
        broker_value=lambda broker: broker.log_retention_bytes,
        doc="How many bytes of a partition are kept; -1 for no bound.",
    )
    retention_ms = TopicSetting(
        "retention.ms",
        LONG,
        default=604_800_000,
        valid=at_least(-1),
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        broker_value=lambda broker: broker.log_retention_ms_effective,
        doc="How long records are kept, in milliseconds; -1 for ever.",
    )
    segment_bytes = TopicSetting(
        "segment.bytes",
        INT,
        default=1 << 30,
        valid=at_least(SEGMENT_BYTES_MIN),
        synonyms=("log.segment.bytes",),
        broker_value=lambda broker: broker.log_segment_bytes,
        doc="The greatest size of one log file.",
    )
    segment_index_bytes = TopicSetting(
        "segment.index.bytes",
        INT,
        default=10 * 1024 * 1024,
        valid=at_least(4),
        synonyms=("log.index.size.max.bytes",),
        broker_value=lambda broker: broker.log_index_size_max_bytes,
        doc="The greatest size of an offset index; a full one begins another log file.",
    )
    segment_jitter_ms = TopicSetting(
        "segment.jitter.ms",
        LONG,
        default=0,
        valid=at_least(0),
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
        broker_value=lambda broker: broker.log_roll_jitter_ms_effective,
        doc="The most by which `segment.ms` is shortened at random, in milliseconds.",
    )
    segment_ms = TopicSetting(
        "segment.ms",
        LONG,
        default=604_800_000,
        valid=at_least(1),
        synonyms=("log.roll.ms", "log.roll.hours"),
        broker_value=lambda broker: broker.log_roll_ms_effective,
        doc="The greatest age of a log file before another is begun, in milliseconds.",
    )
    unclean_leader_election_enable = TopicSetting(
        "unclean.leader.election.enable",
        BOOLEAN,
        default=False,
        synonyms=("unclean.leader.election.enable",),
        broker_value=lambda broker: broker.unclean_leader_election_enable,
        doc="Whether a replica that was not in sync may lead when no other can, at the price of records.",
    )

    def __init__(self, properties: Mapping[str, str], broker: BrokerConfig | None = None) -> None:
        super().__init__(properties)
        if broker is not None:
            self._replace_values(**self._defaults_of(broker, properties))
        if self.internal_segment_bytes is not None:
            self._replace_values(segment_bytes=self.internal_segment_bytes)

    @classmethod
    def _defaults_of(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, Any]:
        return {
            setting.attribute: setting.broker_value(broker)
            for setting in cls.settings()
            if isinstance(setting, TopicSetting) and setting.broker_value and setting.name not in overrides
        }

    @classmethod
    def effective(cls, broker: BrokerConfig, overrides: Mapping[str, str], *, is_listed: bool = False) -> Self:
        """What a topic runs with: its own values over the broker's over the defaults.

        Values are those stored by the controller, which has checked them; unknown names are left aside.
        `is_listed` is what `is_listed_for_remote_wal` says of the topic's name.
        """
        config = cls(overrides, broker)
        if is_listed and config.is_delete and not config.is_compact:
            config._replace_values(remote_wal_enable=True)
        return config

    @classmethod
    def is_listed_for_remote_wal(cls, broker: BrokerConfig, topic: str, overrides: Mapping[str, str]) -> bool:
        """Whether the topic is one of `remote.wal.topics`; its own `remote.wal.enable`, either way, says more."""
        return cls.remote_wal_enable.name not in overrides and broker.is_remote_wal_topic(topic)

    @classmethod
    def validate(cls, name: str, value: str) -> None:
        """Refuse a value for one setting of a topic: InvalidConfigError with a sentence."""
        setting = cls.setting(name)
        if setting is None:
            raise InvalidConfigError(f"Unknown topic config name: {name}.")
        try:
            setting.read(value)
        except ConfigError as error:
            raise InvalidConfigError(str(error)) from error

    @classmethod
    def validate_all(
        cls,
        broker: BrokerConfig,
        overrides: Mapping[str, str],
        topic: str | None = None,
        before: Mapping[str, str] | None = None,
    ) -> None:
        """Refuse the whole of a topic's settings when one is wrong or two do not fit together (LogConfig.validate).

        With its name, also what this one topic may not have; with its settings of before, what may not become of them.
        """
        for name, value in overrides.items():
            cls.validate(name, value)
        config = cls.effective(broker, overrides)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise InvalidConfigError(
                f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({config.max_compaction_lag_ms})"
            )
        if config.remote_wal_enable:
            check_remote_wal_topic(broker, topic, config.cleanup_policy)
        if config.remote_storage_enable:
            check_remote_log_topic(broker, topic, config)
        else:
            check_end_of_tiering(before or {}, config)

    @property
    def local_retention_ms_effective(self) -> int:
        """What local.retention.ms comes to; -1: without limit."""
        return self.retention_ms if self.local_retention_ms == AS_RETENTION else self.local_retention_ms

    @property
    def local_retention_bytes_effective(self) -> int:
        """What local.retention.bytes comes to; -1: without limit."""
        return self.retention_bytes if self.local_retention_bytes == AS_RETENTION else self.local_retention_bytes

    @property
    def is_compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def compression(self) -> str:
        """The codec to store batches in: `producer`, `none`, `gzip`, `snappy`, `lz4` or `zstd`."""
        return "none" if self.compression_type == "uncompressed" else self.compression_type

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def random_segment_jitter_max_ms(self) -> int:
        """The jitter is never more than the age itself (LogConfig.randomSegmentJitter)."""
        return min(self.segment_jitter_ms, self.segment_ms)
