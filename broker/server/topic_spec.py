"""TopicSpec: what is asked for when the broker has a topic created itself."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from broker.common.identifiers import CONSUMER_OFFSETS_TOPIC, REMOTE_LOG_METADATA_TOPIC, REMOTE_WAL_LOG_METADATA_TOPIC
from broker.config.broker_config import BrokerConfig
from broker.config.log_settings import SEGMENT_BYTES_MIN

# Retention removes closed segments only, and what is older than it is of no use to anybody.
WAL_METADATA_SEGMENT_MS: Final = 600_000
WAL_METADATA_SEGMENT_BYTES: Final = 64 * 1024 * 1024
WAL_METADATA_MESSAGE_BYTES: Final = 4 * 1024 * 1024  # one event tells of all slices of an object: thousands, if tiny
METADATA_MIN_ISR: Final = 2  # KIP-1235; what one broker alone has may go with it


class TopicSpec(NamedTuple):
    """`configs` are those that differ from the cluster's defaults."""

    name: str
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str] = MappingProxyType({})


def topic_spec(name: str, config: BrokerConfig) -> TopicSpec:
    """Some topics have their own size and settings, others this broker's defaults.

    offsets.topic.segment.bytes may be as small as 1, but a topic's segment.bytes may not: Kafka passes it on, and then
    its controller refuses the topic for ever.
    """
    if name == CONSUMER_OFFSETS_TOPIC:
        return TopicSpec(
            name,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(max(config.offsets_topic_segment_bytes, SEGMENT_BYTES_MIN)),
            },
        )
    if name == REMOTE_WAL_LOG_METADATA_TOPIC and config.remote_wal_storage_system_enable:
        replication_factor = config.rwlmm_config_remote_wal_log_metadata_topic_replication_factor
        return TopicSpec(
            name,
            config.rwlmm_config_remote_wal_log_metadata_topic_num_partitions,
            replication_factor,
            {
                "cleanup.policy": "delete",
                "retention.ms": str(config.rwlmm_config_remote_wal_log_metadata_topic_retention_ms),
                "segment.ms": str(WAL_METADATA_SEGMENT_MS),
                "segment.bytes": str(WAL_METADATA_SEGMENT_BYTES),
                "min.insync.replicas": str(min(METADATA_MIN_ISR, replication_factor)),
                "max.message.bytes": str(WAL_METADATA_MESSAGE_BYTES),
            },
        )
    if name == REMOTE_LOG_METADATA_TOPIC and config.remote_log_storage_system_enable:
        replication_factor = config.rlmm_config_remote_log_metadata_topic_replication_factor
        return TopicSpec(
            name,
            config.rlmm_config_remote_log_metadata_topic_num_partitions,
            replication_factor,
            {
                "cleanup.policy": "delete",
                "retention.ms": str(config.rlmm_config_remote_log_metadata_topic_retention_ms),
                "remote.storage.enable": "false",
                "min.insync.replicas": str(min(METADATA_MIN_ISR, replication_factor)),
            },
        )
    return TopicSpec(name, config.num_partitions, config.default_replication_factor)
