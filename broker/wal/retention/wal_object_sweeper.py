"""WalObjectSweeper: the task that deletes objects of the WAL when nobody needs them any more (KIP-1176).

Deleting announces nothing: a follower that finds an object gone looks for another, or asks its leader.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import structlog

from broker.common.clock import Clock
from broker.common.metadata_topic import MetadataTopic, MetadataTopicError
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.objectstore.errors import ObjectStoreError
from broker.objectstore.objects import DELETE_MANY_MAX
from broker.wal.remote_wal_stats import RemoteWalStats, RemoteWalTopicStats
from broker.wal.retention.departed_brokers import Zone
from broker.wal.retention.object_retention import (
    EARLY_AFTER_START_MS,
    ObjectRetentionMode,
    Progress,
    RetentionPass,
    RetentionSettings,
)
from broker.wal.retention.orphan_sweep import OrphanSweep, SweepSettings
from broker.wal.retention.wal_object_table import ObjectGroup, PackedKey, WalObjectTable
from broker.wal.storage.remote_wal_storage_manager import RemoteWalStorageManager

log = structlog.get_logger(__name__)

_GROUPS_AT_ONCE: Final = 500  # looked at before others may run
_ORPHANS: Final = "orphans"


class WalObjectSweeper:
    """`drop_expired` is told the wall time at each interval: for what the maps of partitions keep of expired objects.

    A failure is told once, and again after a success; what was not deleted is tried again at the next interval.
    """

    def __init__(
        self,
        table: WalObjectTable,
        storage: RemoteWalStorageManager,
        retention: RetentionSettings,
        progress: Progress,
        orphans: OrphanSweep,
        clock: Clock,
        stats: RemoteWalStats,
        *,
        interval_ms: int = 60_000,
        drop_expired: Callable[[int], None] = lambda now_ms: None,
    ) -> None:
        self._table = table
        self._storage = storage
        self._retention = retention
        self._progress = progress
        self._orphans = orphans
        self._clock = clock
        self._stats = stats
        self._interval_ms = interval_ms
        self._drop_expired = drop_expired
        self._started_at: float | None = None
        self._errors: dict[str, Exception] = {}  # of this interval, by bucket
        self._is_failing = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with BackgroundTasks("wal-gc") as tasks:
            self._started_at = asyncio.get_running_loop().time()
            tasks.start("sweep", self._run())
            yield

    def topic_replaced(self) -> None:
        """Somebody has deleted the metadata topic, and there is another one of its name."""
        self._orphans.topic_replaced()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            self._drop_expired(self._clock.now_ms())
            await self.sweep()

    async def sweep(self) -> None:
        """Delete what may go now, then look for orphans when that is due.  Failures are told, not raised."""
        self._errors.clear()
        await self._delete_released()
        try:
            await self._orphans.step()
        except (ObjectStoreError, MetadataTopicError) as error:
            self._errors[_ORPHANS] = error
        if self._errors and not self._is_failing:
            log.warning("wal_sweep_failed", errors={where: str(error) for where, error in self._errors.items()})
        self._is_failing = bool(self._errors)

    async def _delete_released(self) -> None:
        look = RetentionPass(
            self._retention, self._progress, self._clock.now_ms(), is_early_allowed=self._is_early_allowed()
        )
        batches: dict[str, dict[PackedKey, ObjectGroup]] = {}
        for number, group in enumerate(self._table.groups()):
            if number % _GROUPS_AT_ONCE == _GROUPS_AT_ONCE - 1:
                await asyncio.sleep(0)
            if not look.releases(group.end_offsets, group.uploaded_ms):
                continue
            for packed in tuple(group.keys):
                batch = batches.setdefault(group.bucket, {})
                batch[packed] = group
                if len(batch) == DELETE_MANY_MAX:
                    await self._delete(group.bucket, batches.pop(group.bucket))
        for bucket, batch in batches.items():
            await self._delete(bucket, batch)

    async def _delete(self, bucket: str, batch: Mapping[PackedKey, ObjectGroup]) -> None:
        """After a failure the bucket is left alone until the next interval."""
        if bucket in self._errors or not self._storage.is_reachable(bucket):
            return
        try:
            keys = [self._table.object_key(packed) for packed in batch]
            await self._storage.delete_wal_combined_segments(bucket, keys)
        except ObjectStoreError as error:
            self._errors[bucket] = error
            for counts in self._counts_of(batch):
                counts.delete_errors += 1
            return
        self._table.remove(batch)
        for counts in self._counts_of(batch):
            counts.delete_requests += 1

    def _counts_of(self, batch: Mapping[PackedKey, ObjectGroup]) -> Iterator[RemoteWalTopicStats]:
        """One for each object and topic in its group; topics that are not hosted here any more have none."""
        for group in batch.values():
            for topic in {partition.topic for partition in group.end_offsets}:
                if (counts := self._stats.topics.get(topic)) is not None:
                    yield counts

    def _is_early_allowed(self) -> bool:
        started_at = self._started_at
        if started_at is None:
            return False
        return (asyncio.get_running_loop().time() - started_at) * 1000 >= EARLY_AFTER_START_MS


def make_sweeper(
    config: BrokerConfig,
    cluster_id: str,
    *,
    table: WalObjectTable,
    storage: RemoteWalStorageManager,
    topic: MetadataTopic,
    progress: Progress,
    zone: Callable[[], Zone],
    clock: Clock,
    stats: RemoteWalStats,
    drop_expired: Callable[[int], None],
) -> WalObjectSweeper:
    """With a broker's settings; `table` is told of every combined event of this broker that is read."""
    retention = RetentionSettings(
        ObjectRetentionMode(config.remote_wal_object_retention_mode),
        config.remote_wal_object_min_retention_ms,
        config.rwlmm_config_remote_wal_log_metadata_topic_retention_ms,
    )
    settings = SweepSettings(cluster_id, config.node_id, config.remote_wal_orphan_min_age_ms)
    orphans = OrphanSweep(settings, retention, table, storage, topic, zone, clock, stats)
    return WalObjectSweeper(
        table,
        storage,
        retention,
        progress,
        orphans,
        clock,
        stats,
        interval_ms=config.remote_wal_gc_interval_ms,
        drop_expired=drop_expired,
    )
