"""Settings of consumer groups and of the topic that keeps their offsets."""

from broker.config.setting import Config, Importance, Setting, at_least, between
from broker.config.value_types import INT, INT32_MAX, LONG, SHORT

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


class GroupSettings(Config):
    """Sessions, rebalances, offsets."""

    group_min_session_timeout_ms = Setting(
        "group.min.session.timeout.ms",
        INT,
        default=6000,
        doc="The shortest session timeout a member may ask for, in milliseconds.",
    )
    group_max_session_timeout_ms = Setting(
        "group.max.session.timeout.ms",
        INT,
        default=1_800_000,
        doc="The longest session timeout a member may ask for, in milliseconds.",
    )
    group_initial_rebalance_delay_ms = Setting(
        "group.initial.rebalance.delay.ms",
        INT,
        default=3000,
        valid=at_least(0),
        doc="How long a new group waits for more members before its first assignment, in milliseconds.",
    )
    group_max_size = Setting(
        "group.max.size",
        INT,
        default=INT32_MAX,
        valid=at_least(1),
        doc="The most members of a group.",
    )
    offset_metadata_max_bytes = Setting(
        "offset.metadata.max.bytes",
        INT,
        default=4096,
        importance=HIGH,
        valid=at_least(0),
        doc="The longest text that may be committed with an offset.",
    )
    offsets_load_buffer_size = Setting(
        "offsets.load.buffer.size",
        INT,
        default=5_242_880,
        importance=HIGH,
        valid=at_least(1),
        doc="How many bytes of committed offsets are read at a time when a coordinator starts.",
    )
    offsets_retention_minutes = Setting(
        "offsets.retention.minutes",
        INT,
        default=10_080,
        importance=HIGH,
        valid=at_least(1),
        doc="How long the offsets of a group without members, or of a commit without a group, are kept, in minutes.",
    )
    offsets_retention_check_interval_ms = Setting(
        "offsets.retention.check.interval.ms",
        LONG,
        default=600_000,
        importance=HIGH,
        valid=at_least(1),
        doc="How often expired offsets are sought, in milliseconds.",
    )
    offsets_topic_num_partitions = Setting(
        "offsets.topic.num.partitions",
        INT,
        default=50,
        importance=HIGH,
        valid=at_least(1),
        doc="The number of partitions of `__consumer_offsets`; it must not be changed once that topic exists.",
    )
    offsets_topic_segment_bytes = Setting(
        "offsets.topic.segment.bytes",
        INT,
        default=104_857_600,
        importance=HIGH,
        valid=at_least(1),
        doc="The greatest size of a log file of `__consumer_offsets`; less than 1048576 means that, as for any topic.",
    )
    offsets_topic_replication_factor = Setting(
        "offsets.topic.replication.factor",
        SHORT,
        default=3,
        importance=HIGH,
        valid=at_least(1),
        doc="The number of replicas of `__consumer_offsets`; groups wait until there are so many brokers.",
    )
    offsets_topic_compression_codec = Setting(
        "offsets.topic.compression.codec",
        INT,
        default=0,
        importance=HIGH,
        valid=between(0, 4),
        doc="How committed offsets are compressed: 0 not at all, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    )
    offsets_commit_timeout_ms = Setting(
        "offsets.commit.timeout.ms",
        INT,
        default=5000,
        importance=HIGH,
        valid=at_least(1),
        doc="How long a commit may wait for its replicas, in milliseconds.",
    )
