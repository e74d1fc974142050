"""Settings of topics' creation, replicas and leaders."""

from typing import Final

from broker.config.setting import Config, Importance, Setting, UpdateMode, at_least, one_of, optional
from broker.config.value_types import BOOLEAN, INT, INT64_MAX, LONG, STRING

LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_REPLICA_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE


class ReplicationSettings(Config):
    """How topics are made, and what their replicas owe each other."""

    num_partitions = Setting(
        "num.partitions",
        INT,
        default=1,
        valid=at_least(1),
        doc="The number of partitions of a topic created without saying it.",
    )
    default_replication_factor = Setting(
        "default.replication.factor",
        INT,
        default=1,
        valid=at_least(1),
        doc="The number of replicas of a topic created without saying it.",
    )
    auto_create_topics_enable = Setting(
        "auto.create.topics.enable",
        BOOLEAN,
        default=True,
        importance=HIGH,
        doc="Whether a topic that a client asks for is created.",
    )
    delete_topic_enable = Setting(
        "delete.topic.enable",
        BOOLEAN,
        default=True,
        importance=HIGH,
        doc="Whether clients may delete topics.",
    )
    min_insync_replicas = Setting(
        "min.insync.replicas",
        INT,
        default=1,
        importance=HIGH,
        valid=at_least(1),
        update=CLUSTER_WIDE,
        doc="How many replicas must be in sync for a write with acks=all to be accepted.",
    )
    unclean_leader_election_enable = Setting(
        "unclean.leader.election.enable",
        BOOLEAN,
        default=False,
        importance=HIGH,
        update=CLUSTER_WIDE,
        doc="Whether a replica that was not in sync may lead when no other can, at the price of records.",
    )
    unclean_leader_election_interval_ms = Setting(
        "unclean.leader.election.interval.ms",
        LONG,
        default=300_000,
        valid=at_least(1),
        is_internal=True,
        doc="How often the controller seeks partitions that wait for such a leader, in milliseconds.",
    )
    auto_leader_rebalance_enable = Setting(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        default=True,
        importance=HIGH,
        doc="Whether the controller gives leadership back to preferred replicas.",
    )
    leader_imbalance_check_interval_seconds = Setting(
        "leader.imbalance.check.interval.seconds",
        LONG,
        default=300,
        importance=HIGH,
        valid=at_least(1),
        doc="How often it looks for such partitions, in seconds.",
    )
    replica_selector_class = optional(
        "replica.selector.class",
        STRING,
        valid=one_of(LEADER_SELECTOR, RACK_AWARE_REPLICA_SELECTOR),
        doc="Which replica serves a consumer: the leader, or one in the consumer's rack (`client.rack`). Kafka's own "
        "two classes are known by their names.",
    )
    leader_replication_throttled_rate = Setting(
        "leader.replication.throttled.rate",
        LONG,
        default=INT64_MAX,
        valid=at_least(0),
        update=CLUSTER_WIDE,
        doc="How many bytes per second this broker sends at most to followers that are not in sync, of the partitions "
        "that `leader.replication.throttled.replicas` of their topics names.",
    )
    follower_replication_throttled_rate = Setting(
        "follower.replication.throttled.rate",
        LONG,
        default=INT64_MAX,
        valid=at_least(0),
        update=CLUSTER_WIDE,
        doc="How many bytes per second this broker fetches at most as a follower that is not in sync, of partitions "
        "that `follower.replication.throttled.replicas` of their topics names.",
    )
    replication_quota_window_num = Setting(
        "replication.quota.window.num",
        INT,
        default=11,
        importance=LOW,
        valid=at_least(1),
        doc="Over how many samples a throttled rate is measured.",
    )
    replication_quota_window_size_seconds = Setting(
        "replication.quota.window.size.seconds",
        INT,
        default=1,
        importance=LOW,
        valid=at_least(1),
        doc="How long each of those samples is, in seconds.",
    )
    replica_lag_time_max_ms = Setting(
        "replica.lag.time.max.ms",
        LONG,
        default=30_000,
        importance=HIGH,
        valid=at_least(1),
        doc="How long a follower may lag before it is taken from the in-sync replicas, in milliseconds.",
    )
    replica_high_watermark_checkpoint_interval_ms = Setting(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        default=5000,
        importance=HIGH,
        valid=at_least(1),
        doc="How often high watermarks are written down, in milliseconds.",
    )
    num_replica_fetchers = Setting(
        "num.replica.fetchers",
        INT,
        default=1,
        importance=HIGH,
        valid=at_least(1),
        update=CLUSTER_WIDE,
        doc="How many connections to each leader its partitions are shared among.",
    )
    replica_fetch_max_bytes = Setting(
        "replica.fetch.max.bytes",
        INT,
        default=1_048_576,
        valid=at_least(0),
        doc="The most bytes of one partition a follower asks for at a time; one batch comes whatever its size.",
    )
    replica_fetch_response_max_bytes = Setting(
        "replica.fetch.response.max.bytes",
        INT,
        default=10_485_760,
        valid=at_least(0),
        doc="The most bytes of all partitions a follower asks for at a time; one batch comes whatever its size.",
    )
    replica_fetch_min_bytes = Setting(
        "replica.fetch.min.bytes",
        INT,
        default=1,
        importance=HIGH,
        doc="The least bytes for which a leader answers a follower at once.",
    )
    replica_fetch_wait_max_ms = Setting(
        "replica.fetch.wait.max.ms",
        INT,
        default=500,
        importance=HIGH,
        doc="How long a leader may wait for so many bytes, in milliseconds.",
    )
    replica_fetch_backoff_ms = Setting(
        "replica.fetch.backoff.ms",
        INT,
        default=1000,
        valid=at_least(0),
        doc="How long a partition is left alone after its leader refused it, in milliseconds.",
    )
    replica_socket_timeout_ms = Setting(
        "replica.socket.timeout.ms",
        INT,
        default=30_000,
        importance=HIGH,
        doc="How long a leader may take to answer a follower, connecting included, in milliseconds.",
    )
