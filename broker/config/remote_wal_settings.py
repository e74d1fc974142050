"""Settings of KIP-1176: followers take the newest records from a bucket of their leader instead of from the leader."""

import re
from collections.abc import Mapping
from typing import Any, Final

from broker.common.identifiers import NEVER_REMOTE_WAL_TOPICS
from broker.config.prefixed_settings import ManagerPrefix, properties_under
from broker.config.setting import Config, Importance, Setting, UpdateMode, Valid, at_least, one_of, optional
from broker.config.valid_values import BUCKET_URL, HTTP_URL, NON_EMPTY
from broker.config.value_types import BOOLEAN, INT, LIST, LONG, PASSWORD, SHORT, STRING

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

STORAGE_PREFIX: Final = "rwsm.config."
METADATA_PREFIX: Final = "rwlmm.config."


COST_POLICIES: Final = ("latency", "balanced", "economy")
OBJECT_RETENTION_MODES: Final = ("local", "replicated")
REPUBLISH_MODES: Final = ("untiered", "local-retention", "none")

_KEY_PREFIX: Final = re.compile(r"(?:[A-Za-z0-9_=+@-][A-Za-z0-9._=+@-]*/)*")
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")

KEY_PREFIX: Final = Valid[Any](
    "empty, or names of letters, digits and ._=+@- each followed by a slash",
    lambda text: _KEY_PREFIX.fullmatch(text) is not None,
)


def _is_expression(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True


NAMES_OR_EXPRESSIONS: Final = Valid[Any](
    "names of topics or regular expressions", lambda entries: all(entry and _is_expression(entry) for entry in entries)
)


class RemoteWalSettings(Config):
    """The bucket of this broker, what goes into it and when, how others read it, and its metadata topic."""

    remote_wal_storage_system_enable = Setting(
        "remote.wal.storage.system.enable",
        BOOLEAN,
        default=False,
        doc="Whether topics may have `remote.wal.enable=true` here. Brokers and controllers of a cluster must agree; a "
        "broker without it does not start while such topics exist.",
    )
    remote_wal_topics = Setting(
        "remote.wal.topics",
        LIST,
        default=(),
        valid=NAMES_OR_EXPRESSIONS,
        update=UpdateMode.CLUSTER_WIDE,
        doc="Topics treated as if they had `remote.wal.enable=true`: names, or regular expressions that match the "
        "whole name (Python's syntax, without commas). For clusters under Apache Kafka's controllers, which refuse to "
        "store settings of topics that they do not know.",
    )
    remote_wal_storage_manager_class_name = optional(
        "remote.wal.storage.manager.class.name",
        STRING,
        valid=NON_EMPTY,
        doc="What keeps the objects: `S3WalStorageManager`, `LocalWalStorageManager` (a directory that all brokers "
        "see), or the dotted path of a Python class.",
    )
    remote_wal_storage_manager_impl_prefix = Setting(
        "remote.wal.storage.manager.impl.prefix",
        STRING,
        default=STORAGE_PREFIX,
        valid=NON_EMPTY,
        doc="How the names of the storage manager's own settings begin.",
    )
    remote_wal_metadata_manager_impl_prefix = Setting(
        "remote.wal.metadata.manager.impl.prefix",
        STRING,
        default=METADATA_PREFIX,
        valid=NON_EMPTY,
        doc="How the names of the metadata topic's settings begin.",
    )
    rwsm_config_bucket = optional(
        "rwsm.config.bucket",
        STRING,
        importance=HIGH,
        valid=BUCKET_URL,
        doc="The bucket this broker uploads to, in its own zone: `s3://bucket` or `file:///directory`.",
    )
    rwsm_config_endpoint_url = optional(
        "rwsm.config.endpoint.url",
        STRING,
        valid=HTTP_URL,
        doc="The address of a store that is compatible with S3; AWS without it.",
    )
    rwsm_config_region = optional(
        "rwsm.config.region",
        STRING,
        valid=NON_EMPTY,
        doc="The region of the buckets; without it, that of the environment or of the AWS profile.",
    )
    rwsm_config_access_key = optional(
        "rwsm.config.access.key",
        PASSWORD,
        doc="The id of the key that requests are signed with; without it the usual chain of AWS is asked.",
    )
    rwsm_config_secret_key = optional(
        "rwsm.config.secret.key",
        PASSWORD,
        doc="The secret of that key.",
    )
    rwsm_config_path_style = Setting(
        "rwsm.config.path.style",
        BOOLEAN,
        default=False,
        doc="Whether the bucket's name is part of the path rather than of the host name, as most compatible stores "
        "want it.",
    )
    rwsm_config_az_id = optional(
        "rwsm.config.az.id",
        STRING,
        valid=NON_EMPTY,
        doc="The id of this broker's zone, such as `use1-az4`. Given, a directory bucket of another zone is refused.",
    )
    rwsm_config_key_prefix = Setting(
        "rwsm.config.key.prefix",
        STRING,
        default="",
        valid=KEY_PREFIX,
        doc="What the keys of all objects begin with, when the bucket is shared with others; it ends with a slash.",
    )
    rwlmm_config_remote_wal_log_metadata_topic_num_partitions = Setting(
        "rwlmm.config.remote.wal.log.metadata.topic.num.partitions",
        INT,
        default=50,
        valid=at_least(1),
        doc="The number of partitions of `__remote_wal_log_metadata` when it is created; it never changes afterwards.",
    )
    rwlmm_config_remote_wal_log_metadata_topic_replication_factor = Setting(
        "rwlmm.config.remote.wal.log.metadata.topic.replication.factor",
        SHORT,
        default=3,
        valid=at_least(1),
        doc="The number of replicas of `__remote_wal_log_metadata` when it is created.",
    )
    rwlmm_config_remote_wal_log_metadata_topic_retention_ms = Setting(
        "rwlmm.config.remote.wal.log.metadata.topic.retention.ms",
        LONG,
        default=7_200_000,
        valid=at_least(1),
        doc="How long pointers to objects are kept, in milliseconds: the longest absence of a replica that a bucket "
        "makes up for. It must be longer than `local.retention.ms` of every tiered topic that goes through a bucket.",
    )
    rwlmm_config_remote_wal_log_metadata_producer_acks = Setting(
        "rwlmm.config.remote.wal.log.metadata.producer.acks",
        STRING,
        default="all",
        valid=one_of("all", "-1", "1"),
        doc="Which replicas must have a pointer before it counts as published; `1` is sooner, and may lose pointers "
        "(never records) with a broker.",
    )
    remote_wal_combine_interval_ms = Setting(
        "remote.wal.combine.interval.ms",
        INT,
        default=10,
        valid=at_least(1),
        doc="How often it is looked whether there is enough for another object, in milliseconds.",
    )
    remote_wal_combine_max_bytes = Setting(
        "remote.wal.combine.max.bytes",
        INT,
        default=524_288,
        valid=at_least(4096),
        doc="The greatest size of an object; a record batch that is larger travels alone. Of a broker that has more to "
        "do than it has time, four times as much: larger and rarer objects cost less.",
    )
    remote_wal_combine_min_bytes = Setting(
        "remote.wal.combine.min.bytes",
        INT,
        default=102_400,
        valid=at_least(1),
        doc="An object smaller than this waits for more, no longer than `remote.wal.combine.max.linger.ms`.",
    )
    remote_wal_combine_max_linger_ms = Setting(
        "remote.wal.combine.max.linger.ms",
        INT,
        default=20,
        valid=at_least(0),
        doc="How long a record waits for others before its object is made, in milliseconds.",
    )
    remote_wal_combine_economy_linger_ms = Setting(
        "remote.wal.combine.economy.linger.ms",
        INT,
        default=100,
        valid=at_least(0),
        doc="How long a record may wait for others for the sake of fewer requests, in milliseconds: "
        "`remote.wal.cost.policy`. Consumers see it that much later.",
    )
    remote_wal_combine_partition_max_bytes = Setting(
        "remote.wal.combine.partition.max.bytes",
        INT,
        default=131_072,
        valid=at_least(1024),
        doc="How much of one object a partition takes at most, unless one batch is larger; four times as much where "
        "`remote.wal.combine.max.bytes` is.",
    )
    remote_wal_cost_policy = Setting(
        "remote.wal.cost.policy",
        STRING,
        default="balanced",
        valid=one_of(*COST_POLICIES),
        doc="`latency`: objects leave after `remote.wal.combine.max.linger.ms`. `economy`: after "
        "`remote.wal.combine.economy.linger.ms`. `balanced`: as late as that only while requests would cost more than "
        "replication across zones would. What waits with acks=all never waits for price.",
    )
    remote_wal_metadata_slice_events_enable = Setting(
        "remote.wal.metadata.slice.events.enable",
        BOOLEAN,
        default=True,
        doc="Whether a pointer for each partition follows the one for the whole object. Brokers need only the latter; "
        "all brokers of a cluster should agree.",
    )
    remote_wal_object_retention_mode = Setting(
        "remote.wal.object.retention.mode",
        STRING,
        default="local",
        valid=one_of(*OBJECT_RETENTION_MODES),
        doc="How long objects stay. `local`: as long as records stay on local disks, no longer than their pointers. "
        "`replicated`: until all replicas have the records, and `remote.wal.object.min.retention.ms` at least.",
    )
    remote_wal_object_min_retention_ms = Setting(
        "remote.wal.object.min.retention.ms",
        LONG,
        default=600_000,
        valid=at_least(0),
        doc="The least age of an object that is deleted because all replicas have its records, in milliseconds.",
    )
    remote_wal_orphan_min_age_ms = Setting(
        "remote.wal.orphan.min.age.ms",
        LONG,
        default=600_000,
        valid=at_least(360_000),
        doc="The least age of an object without a pointer that is deleted, in milliseconds. A pointer is given up five "
        "minutes after its upload, and a request may be on its way then, so the age may not be less.",
    )
    remote_wal_gc_interval_ms = Setting(
        "remote.wal.gc.interval.ms",
        LONG,
        default=60_000,
        valid=at_least(1),
        doc="How often objects that are not needed any more are deleted, in milliseconds.",
    )
    remote_wal_upload_max_inflight = Setting(
        "remote.wal.upload.max.inflight",
        INT,
        default=4,
        valid=at_least(1),
        doc="How many objects are uploaded at a time.",
    )
    remote_wal_upload_timeout_ms = Setting(
        "remote.wal.upload.timeout.ms",
        INT,
        default=2000,
        valid=at_least(1),
        doc="How long one attempt of an upload may take, in milliseconds.",
    )
    remote_wal_upload_retry_backoff_ms = Setting(
        "remote.wal.upload.retry.backoff.ms",
        INT,
        default=20,
        valid=at_least(1),
        doc="How long to wait before an upload is tried again, in milliseconds; twice as long each further time.",
    )
    remote_wal_upload_retry_max_ms = Setting(
        "remote.wal.upload.retry.max.ms",
        INT,
        default=1000,
        valid=at_least(1),
        doc="The longest of those waits, in milliseconds.",
    )
    remote_wal_fetch_threads = Setting(
        "remote.wal.fetch.threads",
        INT,
        default=16,
        valid=at_least(1),
        doc="How many reads of buckets a broker has under way at a time. They are no threads here.",
    )
    remote_wal_fetch_timeout_ms = Setting(
        "remote.wal.fetch.timeout.ms",
        INT,
        default=2000,
        valid=at_least(1),
        doc="How long one read of a bucket may take, in milliseconds.",
    )
    remote_wal_fetch_lag_wait_ms = Setting(
        "remote.wal.fetch.lag.wait.ms",
        INT,
        default=5,
        valid=at_least(1),
        doc="How long a leader holds the fetch of a follower that is behind and reads from the bucket, in "
        "milliseconds.",
    )
    remote_wal_fallback_enable = Setting(
        "remote.wal.fallback.enable",
        BOOLEAN,
        default=True,
        doc="Whether a leader sends records itself when the way through the bucket is stalled. What a bucket never "
        "held is sent in any case.",
    )
    remote_wal_fallback_lag_ms = Setting(
        "remote.wal.fallback.lag.ms",
        LONG,
        default=5000,
        valid=at_least(1),
        doc="After how long without progress a leader sends records itself, in milliseconds. It must be less than half "
        "of `replica.lag.time.max.ms`, or followers would leave the in-sync replicas first.",
    )
    remote_wal_republish_mode = Setting(
        "remote.wal.republish.mode",
        STRING,
        default="untiered",
        valid=one_of(*REPUBLISH_MODES),
        doc="What a new leader uploads again when no bucket in reach has it: what tiered storage does not have, and of "
        "a topic that is not tiered what was announced since objects are kept (`untiered`), all that is younger than "
        "`local.retention.ms` (`local-retention`), or nothing (`none`).",
    )
    remote_wal_republish_max_bytes_per_second = Setting(
        "remote.wal.republish.max.bytes.per.second",
        LONG,
        default=52_428_800,
        valid=at_least(1),
        doc="How fast a new leader uploads such records, in bytes per second; new records do not wait for them.",
    )

    @property
    def storage_manager_properties(self) -> Mapping[str, str]:
        """All that was given under the prefix of the storage manager, without the prefix: for classes of one's own."""
        return properties_under(self, self.remote_wal_storage_manager_impl_prefix)

    def is_remote_wal_topic(self, topic: str) -> bool:
        """Whether `remote.wal.topics` names or matches this topic; never one that replication itself stands on."""
        return topic not in NEVER_REMOTE_WAL_TOPICS and any(_matches(entry, topic) for entry in self.remote_wal_topics)

    @property
    def remote_wal_prefixes(self) -> tuple[ManagerPrefix, ...]:
        return (
            ManagerPrefix(STORAGE_PREFIX, self.remote_wal_storage_manager_impl_prefix),
            ManagerPrefix(METADATA_PREFIX, self.remote_wal_metadata_manager_impl_prefix),
        )


def _matches(entry: str, topic: str) -> bool:
    """A legal name stands for itself alone, so that the dots of `a.b` are dots."""
    if _TOPIC_NAME.fullmatch(entry):
        return entry == topic
    return re.fullmatch(entry, topic) is not None
