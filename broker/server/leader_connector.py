"""Where the leaders of our followers are, and how they are reached: on the inter-broker listener."""

from collections.abc import Callable

from broker.common.identifiers import BrokerId
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_version import METADATA_VERSION_FEATURE, MINIMUM_METADATA_VERSION
from broker.network.broker_client import BrokerClient
from broker.network.byte_stream import Network
from broker.replication.replica_fetcher_manager import LeaderAddress
from broker.server.remote_leader_endpoint import RemoteLeaderEndPoint


class LeaderConnector:
    """Looks up and connects for the `ReplicaFetcherManager`."""

    def __init__(
        self,
        local_broker_id: BrokerId,
        config: ConfigHolder[BrokerConfig],
        cache: MetadataCache,
        broker_epoch: Callable[[], int],
        network: Network,
    ) -> None:
        self._local_broker_id = local_broker_id
        self._config = config
        self._cache = cache
        self._broker_epoch = broker_epoch
        self._network = network

    def address_of(self, broker_id: BrokerId) -> LeaderAddress | None:
        """None for a broker that is not registered, or not on that listener."""
        broker = self._cache.broker(broker_id)
        endpoint = None if broker is None else broker.listeners.get(self._config.current.inter_broker_listener_name)
        return None if endpoint is None else LeaderAddress(broker_id, endpoint.host, endpoint.port)

    def connect(self, address: LeaderAddress, fetcher_id: int) -> RemoteLeaderEndPoint:
        """An endpoint of its own for one fetcher; it connects with its first request."""
        client_id = f"broker-{self._local_broker_id}-fetcher-{fetcher_id}"
        return RemoteLeaderEndPoint(
            BrokerClient(address.host, address.port, client_id, network=self._network),
            local_broker_id=self._local_broker_id,
            broker_epoch=self._broker_epoch,
            metadata_version=self._metadata_version,
            config=self._config,
        )

    def connect_for_epochs(self, address: LeaderAddress) -> BrokerClient:
        """One for questions about leader epochs, which must not wait behind a fetch."""
        client_id = f"broker-{self._local_broker_id}-leader-epochs"
        return BrokerClient(address.host, address.port, client_id, network=self._network)

    def _metadata_version(self) -> int:
        return self._cache.image.features.finalized.get(METADATA_VERSION_FEATURE, MINIMUM_METADATA_VERSION)
