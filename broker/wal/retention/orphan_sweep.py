"""OrphanSweep: objects in the bucket that nobody was told of: stored by a broker that died, or could not announce them.

Only a listing finds them, and a listing also shows objects that were announced and not heard of yet.  So an object is
an orphan only if it is old and still unknown when this broker has read its own events up to the end that the metadata
topic had after the listing.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from broker.common.clock import Clock
from broker.common.metadata_topic import MetadataTopic
from broker.objectstore.objects import DELETE_MANY_MAX, ObjectInfo
from broker.schemas.remote_metadata_partitioner import combined_event_partition_of
from broker.wal.objects.object_key import WalObjectKey, broker_prefix, cluster_prefix
from broker.wal.remote_wal_stats import RemoteWalStats
from broker.wal.retention.departed_brokers import DepartedBrokers, Zone
from broker.wal.retention.object_retention import RetentionSettings
from broker.wal.retention.wal_object_table import WalObjectTable
from broker.wal.storage.remote_wal_storage_manager import RemoteWalStorageManager

log = structlog.get_logger(__name__)

CANDIDATES_MAX: Final = 10_000  # keys kept until they are judged; the next listing brings the others
_OBJECTS_AT_ONCE: Final = 100  # of a listing, looked at before others may run


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """`orphan_min_age_ms` is remote.wal.orphan.min.age.ms; a listing costs a request per 1000 objects."""

    cluster_id: str
    broker_id: int
    orphan_min_age_ms: int = 600_000
    interval_seconds: float = 3600


class OrphanSweep:
    """`step` does what is due.  Nothing is listed while nothing was uploaded and nothing was left undecided.

    `zone` tells which brokers are up.  The first sweep of a process, that of the lowest id in its zone, looks at the
    whole cluster's objects in this bucket, to find brokers that were removed before this process began.
    """

    def __init__(
        self,
        settings: SweepSettings,
        retention: RetentionSettings,
        table: WalObjectTable,
        storage: RemoteWalStorageManager,
        topic: MetadataTopic,
        zone: Callable[[], Zone],
        clock: Clock,
        stats: RemoteWalStats,
    ) -> None:
        self._settings = settings
        self._retention = retention
        self._table = table
        self._storage = storage
        self._topic = topic
        self._zone = zone
        self._clock = clock
        self._stats = stats
        self._departed = DepartedBrokers(settings.broker_id, retention.keep_max_ms / 1000)
        self._candidates: list[str] = []
        self._judged_from: int | None = None  # the offset to have read before they are judged
        self._due_at: float | None = None
        self._is_first = True
        self._is_something_left = True  # earlier processes may have left orphans
        self._uploads_swept = 0

    async def step(self) -> None:
        """ObjectStoreError, MetadataTopicError: to be called again later, and goes on where it was."""
        now = asyncio.get_running_loop().time()
        self._departed.observe(self._zone(), now)
        if self._due_at is None:
            self._due_at = now + self._settings.orphan_min_age_ms / 1000  # nothing here is older before
        if self._candidates:
            await self._judge()
        elif now >= self._due_at and self._storage.is_reachable(self._storage.own_bucket):
            if self._is_something_left or self._uploads() != self._uploads_swept:
                await self._list_own()
            await self._sweep_departed(now)
            self._due_at = now + self._settings.interval_seconds

    def topic_replaced(self) -> None:
        """Offsets of the metadata topic begin anew: what waits for the old ones is judged after the next listing."""
        if self._candidates:
            self._candidates, self._judged_from = [], None
            self._is_something_left = True

    def _uploads(self) -> int:
        """Changes whenever an object was stored, or perhaps was."""
        return self._stats.objects_stored + sum(topic.copy_errors for topic in self._stats.topics.values())

    # -- own objects ------------------------------------------------------------------------------------------------

    async def _list_own(self) -> None:
        uploads, is_something_left, number = self._uploads(), False, 0
        candidates: list[str] = []
        strangers: set[int] = set()
        async for found in self._storage.list_wal_objects(self._prefix()):
            number += 1
            if number % _OBJECTS_AT_ONCE == 0:
                await asyncio.sleep(0)
            broker_id = self._owner_of(found)
            if broker_id != self._settings.broker_id:
                if broker_id is not None:
                    strangers.add(broker_id)
            elif not self._table.holds(found.key):
                if self._is_old(found) and len(candidates) < CANDIDATES_MAX:
                    candidates.append(found.key)
                else:
                    is_something_left = True
        self._uploads_swept, self._is_something_left, self._is_first = uploads, is_something_left, False
        self._departed.found(strangers, self._zone(), asyncio.get_running_loop().time())
        self._candidates, self._judged_from = candidates, None
        if candidates:
            await self._judge()

    def _prefix(self) -> str:
        zone = self._zone()
        if self._is_first and self._settings.broker_id == min(zone.here, default=None):
            return cluster_prefix(self._settings.cluster_id)
        return broker_prefix(self._settings.cluster_id, self._settings.broker_id)

    def _owner_of(self, found: ObjectInfo) -> int | None:
        """None for what is no object of the WAL of this cluster, which stays."""
        try:
            key = WalObjectKey.parse(found.key)
        except ValueError:
            return None
        return key.broker_id if key.cluster_id == self._settings.cluster_id else None

    def _is_old(self, found: ObjectInfo) -> bool:
        """Of those that the table may have forgotten nobody can tell that they were announced: they stay as long as
        any."""
        is_forgettable = found.last_modified_ms <= self._table.forgotten_until_ms + self._settings.orphan_min_age_ms
        wanted_ms = self._retention.keep_max_ms if is_forgettable else self._settings.orphan_min_age_ms
        return self._clock.now_ms() - found.last_modified_ms > wanted_ms

    async def _judge(self) -> None:
        count = self._topic.partition_count
        if count is None:
            return
        partition = combined_event_partition_of(self._settings.broker_id, count)
        if self._judged_from is None:
            self._judged_from = await self._topic.end_offset(partition)
        position = self._topic.position(partition)
        if position is None or position < self._judged_from:
            return
        orphans = [key for key in self._candidates if not self._table.holds(key)]
        await self._delete(orphans)
        self._candidates = []
        if orphans:
            log.info("wal_orphans_deleted", bucket=self._storage.own_bucket, objects=len(orphans), first=orphans[0])

    # -- objects of brokers that are gone ---------------------------------------------------------------------------

    async def _sweep_departed(self, now: float) -> None:
        for broker_id in self._departed.left_behind(self._zone(), now):
            old: list[str] = []
            is_something_left = False
            async for found in self._storage.list_wal_objects(broker_prefix(self._settings.cluster_id, broker_id)):
                is_expired = self._clock.now_ms() - found.last_modified_ms > self._retention.keep_max_ms
                if self._owner_of(found) == broker_id and is_expired and len(old) < CANDIDATES_MAX:
                    old.append(found.key)
                else:
                    is_something_left = True
            await self._delete(old)
            log.info("wal_of_departed_broker_deleted", broker=broker_id, objects=len(old))
            if not is_something_left:
                self._departed.forget(broker_id)

    async def _delete(self, keys: Sequence[str]) -> None:
        for first in range(0, len(keys), DELETE_MANY_MAX):
            batch = keys[first : first + DELETE_MANY_MAX]
            await self._storage.delete_wal_combined_segments(self._storage.own_bucket, batch)
            self._stats.orphans_deleted += len(batch)
