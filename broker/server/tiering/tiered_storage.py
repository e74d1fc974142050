"""TieredStorage: closed segments go to remote storage, and from there when their time is over (KIP-405).

Its parts are built and run in one place.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from broker.metrics.registry import MetricsRegistry
from broker.metrics.remote_log_metrics import RemoteLogMetrics
from broker.metrics.remote_storage_metrics import RemoteStorageMetrics
from broker.replication.replica_manager import ReplicaManager
from broker.server.tiering.tiered_reading import TieredReading
from broker.tiering.remote_log_manager import RemoteLogManager
from broker.tiering.remote_log_sweeper import KnownCluster, RemoteLogSweeper
from broker.tiering.remote_partition_remover import RemotePartitionRemover
from broker.tiering.remote_quota import RemoteQuota
from broker.tiering.remote_storage_manager import StoresDirectories


class TieredStorage:
    """Exists where `remote.log.storage.system.enable` is true; `manager` is told of the metadata."""

    def __init__(self, reading: TieredReading, replicas: ReplicaManager, cluster: Callable[[], KnownCluster]) -> None:
        self._reading, self._replicas = reading, replicas
        outside, node_id = reading.outside, reading.identity.node_id
        self._copy_quota = RemoteQuota.for_copies(reading.config, reading.stats)
        self._remover = RemotePartitionRemover(
            node_id,
            reading.metadata,
            reading.storage,
            reading.indexes,
            reading.stats,
            outside.clock,
            outside.chance,
        )
        self.manager = RemoteLogManager(
            local_broker_id=node_id,
            config=reading.config,
            hosted=replicas.hosted_partition,
            metadata=reading.metadata,
            storage=reading.storage,
            remover=self._remover,
            copy_quota=self._copy_quota,
            stats=reading.stats,
            clock=outside.clock,
            chance=outside.chance,
        )
        self._sweeper = (
            RemoteLogSweeper(node_id, reading.storage, cluster, reading.stats, outside.clock, outside.chance)
            if isinstance(reading.storage, StoresDirectories)
            else None
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["TieredStorage"]:
        """Within `TieredReading.running`."""
        async with AsyncExitStack() as stack:
            for part in (self._remover, self.manager, self._sweeper):
                if part is not None:
                    await stack.enter_async_context(part.running())
            yield self

    def observe(self, registry: MetricsRegistry) -> None:
        reading = self._reading
        RemoteLogMetrics(registry).observe(
            reading.stats, replicas=self._replicas, copy_quota=self._copy_quota, fetch_quota=reading.quota
        )
        RemoteStorageMetrics(registry).observe(
            reading.stats,
            indexes=reading.indexes,
            chunks=reading.chunks,
            metadata=reading.metadata,
            metadata_topic=reading.metadata_topic,
            removals=self._remover,
        )
