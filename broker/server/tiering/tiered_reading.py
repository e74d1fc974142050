"""TieredReading: what remote storage has of the partitions here, and how it is read (KIP-405), before there are any."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.metadata.metadata_cache import MetadataCache
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.objectstore.fault_switch import FaultSwitch
from broker.server.broker_identity import BrokerIdentity
from broker.server.forwarding_manager import ForwardingManager
from broker.server.outside import Outside
from broker.server.tiering.remote_log_metadata import remote_log_metadata
from broker.tiering.remote_index_cache import RemoteIndexCache
from broker.tiering.remote_log_access import RemoteLogAccess
from broker.tiering.remote_log_chunks import RemoteLogChunks
from broker.tiering.remote_log_reader import RemoteLogReader
from broker.tiering.remote_log_stats import RemoteLogStats
from broker.tiering.remote_quota import RemoteQuota
from broker.tiering.remote_storage_context import RemoteStorageContext, RemoteStorageSettings
from broker.tiering.remote_storage_manager import make_remote_storage_manager


class TieredReading:
    """`access` is what replicas ask; `metadata` knows which segments there are, `storage` has them."""

    def __init__(
        self,
        config: ConfigHolder[BrokerConfig],
        identity: BrokerIdentity,
        cache: MetadataCache,
        forwarding: ForwardingManager,
        outside: Outside,
        *,
        metrics: ObjectStoreMetrics,
        faults: FaultSwitch | None,
        on_fatal: Callable[[Exception], None],
    ) -> None:
        """`on_fatal` is told when this broker will never know which segments there are.

        ConfigError when the settings name no storage that can be used.
        """
        self.config, self.identity, self.outside = config, identity, outside
        self.stats = RemoteLogStats()
        self.storage = make_remote_storage_manager(
            RemoteStorageContext(
                RemoteStorageSettings.of(config.current),
                identity.cluster_id,
                outside.file_system,
                outside.disk,
                outside.chance,
                metrics,
                faults=faults,
            )
        )
        self.metadata, self.metadata_topic = remote_log_metadata(
            identity.node_id, config, cache, forwarding, outside, on_fatal
        )
        settings = config.current
        self.indexes = RemoteIndexCache(
            settings.log_dir,
            settings.remote_log_index_file_cache_total_size_bytes,
            self.storage,
            outside.file_system,
            outside.disk,
        )
        self.indexes.follow(config)
        self._chunk_tasks = BackgroundTasks("remote-log-chunks")
        self.chunks = RemoteLogChunks(
            self.storage, self._chunk_tasks, read_ahead_chunks=settings.wherry_remote_log_read_ahead_chunks
        )
        self.quota = RemoteQuota.for_fetches(config, self.stats)
        self.access = RemoteLogAccess(
            metadata=self.metadata,
            storage=self.storage,
            reader=RemoteLogReader(self.indexes, self.chunks, outside.disk),
            quota=self.quota,
            stats=self.stats,
            config=config,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["TieredReading"]:
        """Opens the bucket, without asking it anything.  ConfigError, StorageFailure."""
        async with AsyncExitStack() as stack:
            for part in (self.storage, self.indexes):
                await stack.enter_async_context(part.running())
            await stack.enter_async_context(self._chunk_tasks)
            for reader in (self.metadata, self.access):
                await stack.enter_async_context(reader.running())
            yield self
