"""RemoteWal: replication of topics through buckets (KIP-1176), all its parts built and run in one place."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from broker.common.chance import Chance
from broker.common.clock import Clock
from broker.common.disk import DiskExecutor
from broker.common.file_system import FileSystem
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.metadata.config_repository import ConfigRepository
from broker.metadata.metadata_cache import MetadataCache
from broker.metrics.cost_metrics import CostMetrics
from broker.metrics.registry import MetricsRegistry
from broker.metrics.remote_wal_metrics import RemoteWalMetrics
from broker.network.byte_stream import Network
from broker.replication.follower_fetchers import FollowerFetchers
from broker.replication.replica_manager import ReplicaManager
from broker.schemas.remote_wal_metadata import RemoteWalCombinedLogSegmentMetadataRecord
from broker.server.broker_identity import BrokerIdentity
from broker.server.broker_lifecycle_manager import BrokerLifecycleManager
from broker.server.forwarding_manager import ForwardingManager
from broker.server.leader_connector import LeaderConnector
from broker.server.remote_wal_topic_check import RemoteWalTopicCheck
from broker.server.wal_metadata_positions import WalMetadataPositions
from broker.server.wal_metadata_topic import WalMetadataTopic
from broker.server.wal_reading import WalReading
from broker.wal.backfill import Backfill
from broker.wal.combiner import Combiner
from broker.wal.cost_meter import CostMeter, FollowerSpread, spread_of
from broker.wal.departed_brokers import Zone
from broker.wal.object_identities import ObjectIdentities
from broker.wal.prices import Prices
from broker.wal.remote_wal_manager import RemoteWalManager
from broker.wal.remote_wal_metadata_publisher import RemoteWalMetadataPublisher
from broker.wal.remote_wal_metadata_reader import RemoteWalMetadataReader
from broker.wal.replica_progress import ReplicaProgress
from broker.wal.slice_reader import SliceReader
from broker.wal.wal_object_sweeper import make_sweeper
from broker.wal.wal_object_table import WalObjectTable


class RemoteWal:
    """Exists where `remote.wal.storage.system.enable` is true; `manager` is told of the metadata."""

    def __init__(
        self,
        config: ConfigHolder[BrokerConfig],
        identity: BrokerIdentity,
        cache: MetadataCache,
        repository: ConfigRepository,
        reading: WalReading,
        replicas: ReplicaManager,
        fetchers: FollowerFetchers,
        leaders: LeaderConnector,
        lifecycle: BrokerLifecycleManager,
        forwarding: ForwardingManager,
        *,
        clock: Clock,
        chance: Chance,
        file_system: FileSystem,
        disk: DiskExecutor,
        network: Network,
    ) -> None:
        self._config, self._identity, self._cache = config, identity, cache
        self._reading, self._replicas = reading, replicas
        self.stats = stats = reading.stats
        settings = config.current
        self.topic = WalMetadataTopic(
            identity.node_id,
            config,
            cache,
            forwarding,
            leaders.address_of,
            WalMetadataPositions(file_system, disk, Path(settings.log_dir)),
            lambda partition, records: self.manager.on_records(partition, records),
            network=network,
            clock=clock,
            chance=chance,
        )
        self.publisher = RemoteWalMetadataPublisher(self.topic, config, identity.node_id, clock, stats)
        self.costs = self._build_costs(settings)
        identities = ObjectIdentities(
            cluster_id=identity.cluster_id,
            broker_id=identity.node_id,
            broker_epoch=lambda: lifecycle.broker_epoch,
            bucket=reading.storage.own_bucket,
            clock=clock,
            chance=chance,
        )
        reader = SliceReader(disk, chance.uuid)
        self.combiner = Combiner(config, identities, reading.storage, self.publisher, reader, stats, self.costs.traffic)
        self.backfill = Backfill(
            config,
            identities,
            reading.storage,
            self.publisher,
            reader,
            self.combiner,
            stats,
            clock,
            metadata_lag=lambda: self.topic.lag,
        )
        self.manager = RemoteWalManager(
            identity.node_id,
            hosted=replicas.hosted_partition,
            partitions=reading.partitions,
            topic=self.topic,
            reader=RemoteWalMetadataReader(clock, stats, self._note_object),
            uploads=self.combiner,
            republishing=self.backfill,
            refollow=fetchers.follow,
            wake=reading.fetcher.wake,
            config=config,
        )
        self.objects = WalObjectTable(identity.cluster_id, identity.node_id)
        self.sweeper = make_sweeper(
            settings,
            identity.cluster_id,
            table=self.objects,
            storage=reading.storage,
            topic=self.topic,
            progress=ReplicaProgress(lambda: cache.image, replicas.hosted_partition, repository.topic_config),
            zone=lambda: Zone.of(cache.image, config.current.broker_rack),
            clock=clock,
            stats=stats,
            drop_expired=self._drop_expired,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["RemoteWal"]:
        """Runs until no leader uploads any more; followers are `WalReading`'s."""
        async with AsyncExitStack() as stack:
            for part in (self.topic, self.combiner, self.backfill, self.sweeper, self.manager):
                await stack.enter_async_context(part.running())
            yield self

    def observe(self, registry: MetricsRegistry, check: RemoteWalTopicCheck) -> None:
        RemoteWalMetrics(registry).observe(
            self.stats,
            replicas=self._replicas,
            uploads=self.combiner,
            storage=self._reading.storage,
            stores=self._reading.store_metrics,
            metadata_topic=self.topic,
            objects=self.objects,
            check=check,
        )
        CostMetrics(registry).observe(self.costs)

    def _note_object(self, record: RemoteWalCombinedLogSegmentMetadataRecord) -> None:
        if record.broker_id == self._identity.node_id:
            self.objects.add(record)

    def _drop_expired(self, now_ms: int) -> None:
        for _, known in self._reading.partitions:
            known.coverage.drop_expired(now_ms)

    # What it costs

    def _build_costs(self, settings: BrokerConfig) -> CostMeter:
        return CostMeter(
            own_bucket=self._reading.storage.own_bucket,
            own_zone=settings.broker_rack,
            usage=self._reading.store_metrics.usage,
            topics=self._replicas.topic_stats.topics,
            stats=self.stats,
            prices=Prices.of(settings),
            zone_of=self._zone_of,
            spread=self._spread,
            live_bytes=lambda: self.objects.live_bytes,
            time=lambda: asyncio.get_running_loop().time(),
        )

    def _zone_of(self, broker_id: int) -> str | None:
        broker = self._cache.image.brokers.get(broker_id)
        return None if broker is None else broker.rack

    def _spread(self) -> FollowerSpread:
        led = (each.replicas for each in self._replicas.partitions() if each.leader_wal is not None)
        return spread_of(led, self._identity.node_id, self._zone_of)

