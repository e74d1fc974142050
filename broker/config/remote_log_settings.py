"""Settings of KIP-405: closed log files are copied to a bucket, and leave the local disks sooner than the topic."""

import re
from typing import Any, Final

from broker.config.prefixed_settings import ManagerPrefix
from broker.config.setting import Config, Importance, Setting, UpdateMode, Valid, at_least, between, one_of, optional
from broker.config.valid_values import BUCKET_URL, HTTP_URL, NON_EMPTY
from broker.config.value_types import BOOLEAN, DOUBLE, INT, INT64_MAX, LONG, PASSWORD, SHORT, STRING

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE

STORAGE_PREFIX: Final = "rsm.config."
METADATA_PREFIX: Final = "rlmm.config."

# Storage managers of ours; all others are dotted paths.
STORAGE_MANAGERS: Final = ("LocalTieredStorage", "S3RemoteStorageManager")
METADATA_MANAGER: Final = "TopicBasedRemoteLogMetadataManager"
KAFKA_METADATA_MANAGER: Final = f"org.apache.kafka.server.log.remote.metadata.storage.{METADATA_MANAGER}"

AS_RETENTION: Final = -2  # of local retention: as the retention of both tiers
_AS_THREAD_POOL: Final = -1  # of the pools of copies and of expiration: as remote.log.manager.thread.pool.size
_NO_CLASS_PATH: Final = "A Java class path; Python classes are found on `PYTHONPATH`."
_NO_RETRIES: Final = "Tasks run again after `remote.log.manager.task.interval.ms`, failed ones too, as Kafka's do."

_SEGMENT: Final = r"[A-Za-z0-9_=+@-][A-Za-z0-9._=+@-]*"
_KEY_PREFIX: Final = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*/?")
KEY_PREFIX: Final = Valid[Any](
    "names of letters, digits and ._=+@- with slashes between them",
    lambda text: _KEY_PREFIX.fullmatch(text) is not None,
)
POOL_SIZE: Final = Valid[Any]("[1,...] or -1", lambda size: size == _AS_THREAD_POOL or size >= 1)
RETENTION: Final = Valid[Any]("[1,...] or -1", lambda retention_ms: retention_ms == -1 or retention_ms >= 1)


class RemoteLogSettings(Config):
    """The bucket of the cluster's remote segments, how fast they go there and come back, and their metadata topic."""

    remote_log_storage_system_enable = Setting(
        "remote.log.storage.system.enable",
        BOOLEAN,
        default=False,
        doc="Whether topics may have `remote.storage.enable=true` here. Brokers and controllers of a cluster must "
        "agree; a broker without it does not start while such topics exist.",
    )
    remote_log_storage_manager_class_name = optional(
        "remote.log.storage.manager.class.name",
        STRING,
        valid=NON_EMPTY,
        doc="What keeps the segments: `S3RemoteStorageManager`, `LocalTieredStorage` (a directory that all brokers "
        "see), or the dotted path of a Python class.",
    )
    remote_log_storage_manager_class_path = optional(
        "remote.log.storage.manager.class.path",
        STRING,
        no_effect=_NO_CLASS_PATH,
        doc="Where the class of the storage manager is found.",
    )
    remote_log_storage_manager_impl_prefix = Setting(
        "remote.log.storage.manager.impl.prefix",
        STRING,
        default=STORAGE_PREFIX,
        valid=NON_EMPTY,
        doc="How the names of the storage manager's own settings begin.",
    )
    remote_log_metadata_manager_class_name = Setting(
        "remote.log.metadata.manager.class.name",
        STRING,
        default=KAFKA_METADATA_MANAGER,
        valid=one_of(KAFKA_METADATA_MANAGER, METADATA_MANAGER),
        doc="What knows the segments in the bucket: a topic of the cluster, `__remote_log_metadata`. Kafka's name "
        "stands for ours; there is no other.",
    )
    remote_log_metadata_manager_class_path = optional(
        "remote.log.metadata.manager.class.path",
        STRING,
        no_effect=_NO_CLASS_PATH,
        doc="Where the class of the metadata manager is found.",
    )
    remote_log_metadata_manager_impl_prefix = Setting(
        "remote.log.metadata.manager.impl.prefix",
        STRING,
        default=METADATA_PREFIX,
        valid=NON_EMPTY,
        doc="How the names of the metadata manager's own settings begin.",
    )
    remote_log_metadata_manager_listener_name = optional(
        "remote.log.metadata.manager.listener.name",
        STRING,
        valid=NON_EMPTY,
        doc="The listener through which the metadata topic is written and read; without it, that of brokers. Brokers "
        "reach each other's by that name.",
    )
    remote_log_metadata_custom_metadata_max_bytes = Setting(
        "remote.log.metadata.custom.metadata.max.bytes",
        INT,
        default=128,
        importance=LOW,
        valid=at_least(0),
        doc="The most a storage manager of one's own may say of a segment, in bytes; more stops copying the partition.",
    )
    remote_log_index_file_cache_total_size_bytes = Setting(
        "remote.log.index.file.cache.total.size.bytes",
        LONG,
        default=1 << 30,
        importance=LOW,
        valid=at_least(1),
        update=CLUSTER_WIDE,
        doc="How many bytes of `log.dir` hold indexes of remote segments that were read lately.",
    )
    remote_log_manager_thread_pool_size = Setting(
        "remote.log.manager.thread.pool.size",
        INT,
        default=2,
        valid=at_least(1),
        doc="How many partitions are copied or expired at a time where the settings for that say -1.",
    )
    remote_log_manager_copier_thread_pool_size = Setting(
        "remote.log.manager.copier.thread.pool.size",
        INT,
        default=10,
        valid=POOL_SIZE,
        update=CLUSTER_WIDE,
        doc="How many partitions are copied at a time; they are no threads here. -1 as "
        "`remote.log.manager.thread.pool.size`.",
    )
    remote_log_manager_expiration_thread_pool_size = Setting(
        "remote.log.manager.expiration.thread.pool.size",
        INT,
        default=10,
        valid=POOL_SIZE,
        update=CLUSTER_WIDE,
        doc="Of how many partitions segments are deleted by age and size at a time; they are no threads here. -1 as "
        "`remote.log.manager.thread.pool.size`.",
    )
    remote_log_manager_task_interval_ms = Setting(
        "remote.log.manager.task.interval.ms",
        LONG,
        default=30_000,
        importance=LOW,
        valid=at_least(1),
        doc="How long after it ended the work on a partition begins anew: to copy closed files, and to delete what is "
        "too old or too much, in milliseconds.",
    )
    remote_log_manager_task_retry_backoff_ms = Setting(
        "remote.log.manager.task.retry.backoff.ms",
        LONG,
        default=500,
        importance=LOW,
        valid=at_least(1),
        is_internal=True,
        no_effect=_NO_RETRIES,
        doc="How long to wait before a failed task runs again, in milliseconds.",
    )
    remote_log_manager_task_retry_backoff_max_ms = Setting(
        "remote.log.manager.task.retry.backoff.max.ms",
        LONG,
        default=30_000,
        importance=LOW,
        valid=at_least(1),
        is_internal=True,
        no_effect=_NO_RETRIES,
        doc="The longest of those waits, in milliseconds.",
    )
    remote_log_manager_task_retry_jitter = Setting(
        "remote.log.manager.task.retry.jitter",
        DOUBLE,
        default=0.2,
        importance=LOW,
        valid=between(0, 0.5),
        is_internal=True,
        no_effect=_NO_RETRIES,
        doc="By which part those waits vary at random.",
    )
    remote_log_reader_threads = Setting(
        "remote.log.reader.threads",
        INT,
        default=10,
        valid=at_least(1),
        update=CLUSTER_WIDE,
        doc="How many reads of remote segments a broker has under way at a time. They are no threads here.",
    )
    remote_log_reader_max_pending_tasks = Setting(
        "remote.log.reader.max.pending.tasks",
        INT,
        default=100,
        valid=at_least(1),
        doc="How many further reads may wait; a fetch beyond that fails for that partition.",
    )
    remote_fetch_max_wait_ms = Setting(
        "remote.fetch.max.wait.ms",
        INT,
        default=500,
        valid=at_least(1),
        update=CLUSTER_WIDE,
        doc="How long a fetch waits for records of remote segments, in milliseconds, whatever the client allows.",
    )
    remote_list_offsets_request_timeout_ms = Setting(
        "remote.list.offsets.request.timeout.ms",
        LONG,
        default=30_000,
        valid=at_least(1),
        update=CLUSTER_WIDE,
        doc="How long a search for a timestamp waits for the bucket when the client does not say, in milliseconds.",
    )
    log_local_retention_bytes = Setting(
        "log.local.retention.bytes",
        LONG,
        default=AS_RETENTION,
        valid=at_least(AS_RETENTION),
        update=CLUSTER_WIDE,
        doc="How many bytes of a tiered partition stay on local disks; -2 as `log.retention.bytes`, -1 for no bound.",
    )
    log_local_retention_ms = Setting(
        "log.local.retention.ms",
        LONG,
        default=AS_RETENTION,
        valid=at_least(AS_RETENTION),
        update=CLUSTER_WIDE,
        doc="How long records of a tiered topic stay on local disks, in milliseconds; -2 as `log.retention.ms`, -1 for "
        "as long as the topic keeps them.",
    )
    remote_log_manager_copy_max_bytes_per_second = Setting(
        "remote.log.manager.copy.max.bytes.per.second",
        LONG,
        default=INT64_MAX,
        valid=at_least(1),
        update=CLUSTER_WIDE,
        doc="How fast a broker copies to the bucket, in bytes per second.",
    )
    remote_log_manager_copy_quota_window_num = Setting(
        "remote.log.manager.copy.quota.window.num",
        INT,
        default=11,
        valid=at_least(1),
        doc="Over how many windows that rate is taken, the one that has begun included.",
    )
    remote_log_manager_copy_quota_window_size_seconds = Setting(
        "remote.log.manager.copy.quota.window.size.seconds",
        INT,
        default=1,
        valid=at_least(1),
        doc="How long one of those windows is, in seconds.",
    )
    remote_log_manager_fetch_max_bytes_per_second = Setting(
        "remote.log.manager.fetch.max.bytes.per.second",
        LONG,
        default=INT64_MAX,
        valid=at_least(1),
        update=CLUSTER_WIDE,
        doc="How fast a broker reads from the bucket for clients, in bytes per second.",
    )
    remote_log_manager_fetch_quota_window_num = Setting(
        "remote.log.manager.fetch.quota.window.num",
        INT,
        default=11,
        valid=at_least(1),
        doc="Over how many windows that rate is taken, the one that has begun included.",
    )
    remote_log_manager_fetch_quota_window_size_seconds = Setting(
        "remote.log.manager.fetch.quota.window.size.seconds",
        INT,
        default=1,
        valid=at_least(1),
        doc="How long one of those windows is, in seconds.",
    )
    rsm_config_bucket = optional(
        "rsm.config.bucket",
        STRING,
        importance=HIGH,
        valid=BUCKET_URL,
        doc="The bucket of all brokers of the cluster: `s3://bucket` or `file:///directory`.",
    )
    rsm_config_key_prefix = Setting(
        "rsm.config.key.prefix",
        STRING,
        default="tiered",
        valid=KEY_PREFIX,
        doc="What the keys of all objects begin with, before the id of the cluster; the same for all brokers.",
    )
    rsm_config_endpoint_url = optional(
        "rsm.config.endpoint.url",
        STRING,
        valid=HTTP_URL,
        doc="The address of a store that is compatible with S3; AWS without it.",
    )
    rsm_config_region = optional(
        "rsm.config.region",
        STRING,
        valid=NON_EMPTY,
        doc="The region of the bucket; without it, that of the environment or of the AWS profile.",
    )
    rsm_config_access_key = optional(
        "rsm.config.access.key",
        PASSWORD,
        doc="The id of the key that requests are signed with; without it the usual chain of AWS is asked.",
    )
    rsm_config_secret_key = optional(
        "rsm.config.secret.key",
        PASSWORD,
        doc="The secret of that key.",
    )
    rsm_config_path_style = Setting(
        "rsm.config.path.style",
        BOOLEAN,
        default=False,
        doc="Whether the bucket's name is part of the path rather than of the host name, as most compatible stores "
        "want it.",
    )
    rlmm_config_remote_log_metadata_topic_num_partitions = Setting(
        "rlmm.config.remote.log.metadata.topic.num.partitions",
        INT,
        default=50,
        valid=at_least(1),
        doc="The number of partitions of `__remote_log_metadata`. It never changes: a broker that is told another "
        "number than the topic has does not start.",
    )
    rlmm_config_remote_log_metadata_topic_replication_factor = Setting(
        "rlmm.config.remote.log.metadata.topic.replication.factor",
        SHORT,
        default=3,
        valid=at_least(1),
        doc="The number of replicas of `__remote_log_metadata` when it is created.",
    )
    rlmm_config_remote_log_metadata_topic_retention_ms = Setting(
        "rlmm.config.remote.log.metadata.topic.retention.ms",
        LONG,
        default=-1,
        valid=RETENTION,
        doc="How long it is known which segments are in the bucket, in milliseconds; -1 for ever. It must be longer "
        "than any tiered topic keeps records: what is forgotten is neither read nor deleted.",
    )
    rlmm_config_remote_log_metadata_consume_wait_ms = Setting(
        "rlmm.config.remote.log.metadata.consume.wait.ms",
        LONG,
        default=120_000,
        valid=at_least(1),
        doc="How long a broker waits until it reads itself what it wrote to the metadata topic, in milliseconds.",
    )
    rlmm_config_remote_log_metadata_initialization_retry_max_timeout_ms = Setting(
        "rlmm.config.remote.log.metadata.initialization.retry.max.timeout.ms",
        LONG,
        default=120_000,
        valid=at_least(0),
        doc="How long a broker tries to find or create the metadata topic before it ends, in milliseconds.",
    )
    rlmm_config_remote_log_metadata_initialization_retry_interval_ms = Setting(
        "rlmm.config.remote.log.metadata.initialization.retry.interval.ms",
        LONG,
        default=100,
        valid=at_least(1),
        doc="How long it waits between those attempts, in milliseconds.",
    )

    @property
    def remote_log_manager_copier_thread_pool_size_effective(self) -> int:
        """How many partitions are copied at a time."""
        return self._pool_size(self.remote_log_manager_copier_thread_pool_size)

    @property
    def remote_log_manager_expiration_thread_pool_size_effective(self) -> int:
        """Of how many partitions remote segments are deleted at a time."""
        return self._pool_size(self.remote_log_manager_expiration_thread_pool_size)

    @property
    def remote_log_prefixes(self) -> tuple[ManagerPrefix, ...]:
        return (
            ManagerPrefix(STORAGE_PREFIX, self.remote_log_storage_manager_impl_prefix),
            ManagerPrefix(METADATA_PREFIX, self.remote_log_metadata_manager_impl_prefix),
        )

    def _pool_size(self, size: int) -> int:
        return self.remote_log_manager_thread_pool_size if size == _AS_THREAD_POOL else size
