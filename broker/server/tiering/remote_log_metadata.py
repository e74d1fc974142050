"""`__remote_log_metadata`, and how a broker keeps in it what remote segments there are (KIP-405)."""

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.common.identifiers import REMOTE_LOG_METADATA_TOPIC, BrokerId
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.metadata.metadata_cache import MetadataCache
from broker.replication.replica_fetcher_manager import LeaderAddress
from broker.server.forwarding_manager import ForwardingManager
from broker.server.metadata_topic.metadata_topic_client import MetadataTopicClient
from broker.server.metadata_topic.starting_policy import FromEarliest
from broker.server.outside import Outside
from broker.server.topic_spec import topic_spec
from broker.tiering.topic_based_remote_log_metadata_manager import (
    TopicBasedRemoteLogMetadataManager,
    TopicBasedSettings,
)

ACKS_ALL: Final = -1


class RemoteLogMetadata(NamedTuple):
    """The manager runs the topic's client within its own `running`; metrics ask both."""

    manager: TopicBasedRemoteLogMetadataManager
    topic: MetadataTopicClient


def remote_log_metadata(
    local_broker_id: BrokerId,
    config: ConfigHolder[BrokerConfig],
    cache: MetadataCache,
    forwarding: ForwardingManager,
    outside: Outside,
    on_fatal: Callable[[Exception], None],
) -> RemoteLogMetadata:
    """`on_fatal`: see `TopicBasedRemoteLogMetadataManager`."""
    settings = config.current

    def address_of(broker_id: BrokerId) -> LeaderAddress | None:
        broker = cache.broker(broker_id)
        endpoint = None if broker is None else broker.listeners.get(settings.remote_log_metadata_listener_name)
        return None if endpoint is None else LeaderAddress(broker_id, endpoint.host, endpoint.port)

    topic = MetadataTopicClient(
        topic_spec(REMOTE_LOG_METADATA_TOPIC, settings),
        local_broker_id,
        config,
        cache,
        forwarding,
        address_of,
        FromEarliest(),
        lambda partition, records: manager.on_metadata(partition, records),
        lambda: manager.on_replaced(),
        client_id=f"broker-{local_broker_id}-remote-log-metadata",
        acks=ACKS_ALL,
        network=outside.network,
        clock=outside.clock,
        chance=outside.chance,
    )
    manager = TopicBasedRemoteLogMetadataManager(
        topic, TopicBasedSettings.of(settings), could_exist=lambda: topic.could_exist, on_fatal=on_fatal
    )
    return RemoteLogMetadata(manager, topic)
