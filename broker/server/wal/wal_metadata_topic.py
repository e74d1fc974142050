"""`__remote_wal_log_metadata`, and how a broker reads and writes it (KIP-1176)."""

from collections.abc import Callable
from typing import Final

from broker.common.identifiers import REMOTE_WAL_LOG_METADATA_TOPIC, BrokerId
from broker.common.metadata_topic import OnMetadata, OnReplaced
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.metadata.metadata_cache import MetadataCache
from broker.replication.replica_fetcher_manager import LeaderAddress
from broker.schemas.remote_metadata_partitioner import combined_event_partition_of
from broker.server.forwarding_manager import ForwardingManager
from broker.server.metadata_topic.metadata_topic_client import MetadataTopicClient
from broker.server.metadata_topic.starting_policy import WithinRetention
from broker.server.metadata_topic.topic_positions import READ_AGAIN_SECONDS, TopicPositions
from broker.server.outside import Outside
from broker.server.topic_spec import topic_spec

POSITIONS_FILE: Final = "remote-wal-metadata-positions"
ACKS: Final = {"all": -1, "-1": -1, "1": 1}


def wal_metadata_topic(
    local_broker_id: BrokerId,
    config: ConfigHolder[BrokerConfig],
    cache: MetadataCache,
    forwarding: ForwardingManager,
    address_of: Callable[[BrokerId], LeaderAddress | None],
    on_metadata: OnMetadata,
    outside: Outside,
    *,
    on_replaced: OnReplaced = lambda: None,
    read_again_seconds: float = READ_AGAIN_SECONDS,
) -> MetadataTopicClient:
    """Pointers to slices are of use for one retention, and an earlier run has read most of them; but which objects are
    this broker's own, and may be deleted, only memory knows."""
    settings = config.current
    client: MetadataTopicClient

    def tells_of_own_objects(partition: int) -> bool:
        count = client.partition_count
        return count is not None and partition == combined_event_partition_of(local_broker_id, count)

    positions = TopicPositions(
        outside.file_system,
        outside.disk,
        settings.log_dir / POSITIONS_FILE,
        read_again_seconds=read_again_seconds,
    )
    retention_ms = settings.rwlmm_config_remote_wal_log_metadata_topic_retention_ms
    client = MetadataTopicClient(
        topic_spec(REMOTE_WAL_LOG_METADATA_TOPIC, settings),
        local_broker_id,
        config,
        cache,
        forwarding,
        address_of,
        WithinRetention(positions, outside.clock, retention_ms=retention_ms, is_wanted_whole=tells_of_own_objects),
        on_metadata,
        on_replaced,
        client_id=f"broker-{local_broker_id}-wal-metadata",
        acks=ACKS[settings.rwlmm_config_remote_wal_log_metadata_producer_acks],
        network=outside.network,
        clock=outside.clock,
        chance=outside.chance,
    )
    return client
