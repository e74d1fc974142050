"""WalReading: what a broker needs to follow leaders through their buckets (KIP-1176), before it has any replica."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from broker.common.identifiers import TopicIdPartition
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.metadata.config_repository import ConfigRepository
from broker.metadata.metadata_cache import MetadataCache
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.objectstore.fault_switch import FaultSwitch
from broker.server.broker_identity import BrokerIdentity
from broker.server.leader_connector import LeaderConnector
from broker.server.outside import Outside
from broker.server.wal.remote_leader_epochs import RemoteLeaderEpochs
from broker.wal.follow.wal_fetcher import WalFetcher
from broker.wal.follow.wal_interval_map import WalIntervalMap
from broker.wal.follow.wal_partitions import Placement, WalPartitions
from broker.wal.remote_wal_stats import RemoteWalStats
from broker.wal.storage.remote_wal_storage_manager import make_storage_manager
from broker.wal.storage.wal_storage_context import WalStorageContext, WalStorageSettings

_UNLIMITED: Final = -1


class WalReading:
    """`fetcher` makes the followers; `partitions` is what has been announced, as `RemoteWal` reads it."""

    def __init__(
        self,
        config: ConfigHolder[BrokerConfig],
        identity: BrokerIdentity,
        cache: MetadataCache,
        repository: ConfigRepository,
        leaders: LeaderConnector,
        outside: Outside,
        *,
        metrics: ObjectStoreMetrics,
        faults: FaultSwitch | None,
    ) -> None:
        """ConfigError when the settings name no storage that can be used."""
        self.config, self.identity, self.cache, self.repository = config, identity, cache, repository
        self.leaders, self.outside = leaders, outside
        self.stats = RemoteWalStats()
        self.store_metrics = metrics
        settings = WalStorageSettings.of(config.current)
        self.storage = make_storage_manager(
            WalStorageContext(settings, outside.disk, outside.chance, metrics, faults=faults)
        )
        self.epochs = RemoteLeaderEpochs(identity.node_id, config, leaders.address_of, leaders.connect_for_epochs)
        self.partitions = WalPartitions(self._new_map, self.placement)
        self.fetcher = WalFetcher(self.storage, self.epochs, self.partitions.map_of, config, self.stats, outside.clock)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["WalReading"]:
        """Opens the own bucket, without asking it anything.  ConfigError."""
        async with AsyncExitStack() as stack:
            for part in (self.storage, self.epochs, self.fetcher):
                await stack.enter_async_context(part.running())
            yield self

    def placement(self, partition: TopicIdPartition) -> Placement:
        """By the metadata of now."""
        registration = self.cache.image.topics.partition_by_id(partition.topic_id, partition.partition)
        if registration is None:
            return Placement.UNKNOWN
        return Placement.HERE if self.identity.node_id in registration.replicas else Placement.ELSEWHERE

    def keep_ms(self, partition: TopicIdPartition) -> int:
        """Objects are kept for as long as pointers are, and as records are on local disks."""
        topic = self.repository.topic_config(partition.topic)
        pointers_ms = self.config.current.rwlmm_config_remote_wal_log_metadata_topic_retention_ms
        local_ms = topic.local_retention_ms_effective
        return pointers_ms if local_ms == _UNLIMITED else min(pointers_ms, local_ms)

    def _new_map(self, partition: TopicIdPartition) -> WalIntervalMap:
        return WalIntervalMap(self.storage.own_bucket, self.keep_ms(partition), self.storage.is_reachable)
