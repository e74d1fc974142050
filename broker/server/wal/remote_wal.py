"""RemoteWal: replication of topics through buckets (KIP-1176), all its parts built and run in one place."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from broker.config.broker_config import BrokerConfig
from broker.metrics.cost_metrics import CostMetrics
from broker.metrics.registry import MetricsRegistry
from broker.metrics.remote_wal_metrics import RemoteWalMetrics
from broker.objectstore.object_store_url import parse_bucket_url
from broker.replication.follower_fetchers import FollowerFetchers
from broker.replication.replica_manager import ReplicaManager
from broker.schemas.remote_wal_metadata import RemoteWalCombinedLogSegmentMetadataRecord
from broker.server.broker_lifecycle_manager import BrokerLifecycleManager
from broker.server.forwarding_manager import ForwardingManager
from broker.server.metadata_topic.metadata_topic_client import MetadataTopicClient
from broker.server.wal.remote_wal_topic_check import RemoteWalTopicCheck
from broker.server.wal.wal_metadata_topic import wal_metadata_topic
from broker.server.wal.wal_reading import WalReading
from broker.wal.announce.remote_wal_metadata_publisher import RemoteWalMetadataPublisher
from broker.wal.announce.remote_wal_metadata_reader import RemoteWalMetadataReader
from broker.wal.cost.cost_meter import CostMeter, FollowerSpread, spread_of
from broker.wal.cost.prices import Prices
from broker.wal.remote_wal_manager import RemoteWalManager
from broker.wal.retention.departed_brokers import Zone
from broker.wal.retention.replica_progress import ReplicaProgress
from broker.wal.retention.wal_object_sweeper import WalObjectSweeper, make_sweeper
from broker.wal.retention.wal_object_table import WalObjectTable
from broker.wal.upload.backfill import Backfill
from broker.wal.upload.combiner import Combiner
from broker.wal.upload.object_identities import ObjectIdentities
from broker.wal.upload.slice_reader import SliceReader


class RemoteWal:
    """Exists where `remote.wal.storage.system.enable` is true; `manager` is told of the metadata."""

    def __init__(
        self,
        reading: WalReading,
        replicas: ReplicaManager,
        fetchers: FollowerFetchers,
        lifecycle: BrokerLifecycleManager,
        forwarding: ForwardingManager,
    ) -> None:
        self._reading, self._replicas = reading, replicas
        self._config, self._identity, self._cache = reading.config, reading.identity, reading.cache
        self.stats, clock = reading.stats, reading.outside.clock
        self.topic = self._build_topic(forwarding)
        self.publisher = RemoteWalMetadataPublisher(self.topic, self._config, self._identity.node_id, clock, self.stats)
        self.objects = WalObjectTable(self._identity.cluster_id, self._identity.node_id)
        retention_ms = self._config.current.rwlmm_config_remote_wal_log_metadata_topic_retention_ms
        self.objects.forgotten_until_ms = clock.now_ms() - retention_ms  # events that are older are not read again
        self.costs = self._build_costs()
        identities = self._identities(lifecycle)
        slices = SliceReader(reading.outside.disk, reading.outside.chance.uuid)
        self.combiner = Combiner(
            self._config, identities, reading.storage, self.publisher, slices, self.stats, self.costs.traffic
        )
        self.backfill = Backfill(
            self._config,
            identities,
            reading.storage,
            self.publisher,
            slices,
            self.combiner,
            self.stats,
            clock,
            metadata_lag=lambda: self.topic.lag,
        )
        self.manager = self._build_manager(fetchers)
        self.sweeper = self._build_sweeper()

    def _build_topic(self, forwarding: ForwardingManager) -> MetadataTopicClient:
        return wal_metadata_topic(
            self._identity.node_id,
            self._config,
            self._cache,
            forwarding,
            self._reading.leaders.address_of,
            lambda partition, records: self.manager.on_records(partition, records),
            self._reading.outside,
            on_replaced=lambda: self.sweeper.topic_replaced(),
        )

    def _identities(self, lifecycle: BrokerLifecycleManager) -> ObjectIdentities:
        return ObjectIdentities(
            cluster_id=self._identity.cluster_id,
            broker_id=self._identity.node_id,
            broker_epoch=lambda: lifecycle.broker_epoch,
            bucket=self._reading.storage.own_bucket,
            clock=self._reading.outside.clock,
            chance=self._reading.outside.chance,
        )

    def _build_manager(self, fetchers: FollowerFetchers) -> RemoteWalManager:
        reading = self._reading
        return RemoteWalManager(
            self._identity.node_id,
            hosted=self._replicas.hosted_partition,
            partitions=reading.partitions,
            topic=self.topic,
            reader=RemoteWalMetadataReader(
                self._identity.node_id, reading.outside.clock, self.stats, self._note_object
            ),
            uploads=self.combiner,
            republishing=self.backfill,
            refollow=fetchers.follow,
            wake=reading.fetcher.wake,
            config=self._config,
        )

    def _build_sweeper(self) -> WalObjectSweeper:
        cache, config = self._cache, self._config
        return make_sweeper(
            config.current,
            self._identity.cluster_id,
            table=self.objects,
            storage=self._reading.storage,
            topic=self.topic,
            progress=ReplicaProgress(
                lambda: cache.image, self._replicas.hosted_partition, self._reading.repository.topic_config
            ),
            zone=lambda: Zone.of(cache.image, config.current.broker_rack),
            clock=self._reading.outside.clock,
            stats=self.stats,
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

    def _build_costs(self) -> CostMeter:
        settings = self._config.current
        return CostMeter(
            own_bucket=self._reading.storage.own_bucket,
            own_zone=settings.broker_rack,
            usage=self._reading.store_metrics.usage,
            topics=self._replicas.topic_stats.topics,
            stats=self.stats,
            prices=Prices.of(settings),
            zone_of=self._cache.rack_of,
            spread=self._spread,
            live_bytes=lambda: self.objects.live_bytes,
            tiered_bucket=tiered_bucket(settings),
            time=lambda: asyncio.get_running_loop().time(),
        )

    def _spread(self) -> FollowerSpread:
        led = (each.replicas for each in self._replicas.partitions() if each.leader_wal is not None)
        return spread_of(led, self._identity.node_id, self._cache.rack_of)


def tiered_bucket(config: BrokerConfig) -> str | None:
    """Its URL, as its requests are counted; None without tiered storage, or with a manager that has no bucket."""
    if not config.remote_log_storage_system_enable:
        return None
    try:
        return str(parse_bucket_url(config.rsm_properties().get("bucket", "")))
    except ValueError:
        return None
