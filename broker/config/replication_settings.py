"""Settings of topics' creation, replicas and leaders."""

from broker.config.setting import Config, Importance, Setting, UpdateMode, at_least
from broker.config.value_types import BOOLEAN, INT, LONG

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
