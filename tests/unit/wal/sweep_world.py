"""A broker's objects in a bucket in virtual time, what the metadata topic tells of them, and who deletes them."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from broker.common.chance import Chance
from broker.common.disk import InlineDiskExecutor
from broker.common.identifiers import TopicIdPartition
from broker.common.metadata_topic import MetadataTopicError
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.metrics.registry import MetricsRegistry
from broker.schemas.remote_metadata_partitioner import combined_event_partition_of
from broker.schemas.remote_wal_metadata import RemoteWalCombinedLogSegmentMetadataRecord
from broker.wal.objects.combined_segment import CombinedSegment, ObjectIdentity, build_combined_segment
from broker.wal.objects.object_key import WalObjectKey
from broker.wal.remote_wal_stats import RemoteWalStats
from broker.wal.retention.departed_brokers import Zone
from broker.wal.retention.object_retention import PartitionProgress, RetentionSettings
from broker.wal.retention.orphan_sweep import OrphanSweep, SweepSettings
from broker.wal.retention.wal_object_sweeper import WalObjectSweeper
from broker.wal.retention.wal_object_table import WalObjectTable
from broker.wal.storage.wal_storage_context import WalStorageContext, WalStorageSettings
from tests.support.sim_buckets import SimBuckets, SimWalStorageManager
from tests.support.sim_loop import SimClock, SimLoop
from tests.unit.wal.wal_world import log_bytes, make_slice, new_id

CLUSTER = "5L6g3nShT-eMCtK--X86sw"
BROKER = 1
PARTITIONS = 50
MINUTE_MS = 60_000
LONG_MS = 1 << 40


@dataclass
class Replicas:
    """One partition as its leader sees it; `ends` by replica."""

    ends: dict[int, int] = field(default_factory=lambda: {1: 0, 2: 0, 3: 0})
    high_watermark: int = 0
    tiered: int = -1
    local_retention_ms: int | None = LONG_MS
    is_deleted: bool = False
    is_led_here: bool = True


class FakeProgress:
    """All partitions, as the test says."""

    def __init__(self) -> None:
        self.replicas: dict[TopicIdPartition, Replicas] = {}

    def __getitem__(self, partition: TopicIdPartition) -> Replicas:
        return self.replicas.setdefault(partition, Replicas())

    def is_deleted(self, partition: TopicIdPartition) -> bool:
        return self[partition].is_deleted

    def local_retention_ms(self, partition: TopicIdPartition) -> int | None:
        return self[partition].local_retention_ms

    def highest_tiered_offset(self, partition: TopicIdPartition) -> int:
        return self[partition].tiered

    def of(self, partition: TopicIdPartition) -> PartitionProgress | None:
        found = self[partition]
        if not found.is_led_here:
            return None
        return PartitionProgress(found.high_watermark, min(found.ends.values()))

    def all_at(self, partition: TopicIdPartition, offset: int) -> None:
        """Every replica and the high watermark."""
        found = self[partition]
        found.ends = dict.fromkeys(found.ends, offset)
        found.high_watermark = offset


class FakeTopic:
    """Events, and how far this broker has read them."""

    def __init__(self) -> None:
        self.partition_count: int | None = PARTITIONS
        self.lag = 0
        self.ends: dict[int, int] = {}
        self.read: dict[int, int] = {}
        self.is_down = False
        self.ends_asked = 0

    def append(self, partition: int, values: Sequence[bytes], *, may_linger: bool = False) -> Any:
        raise AssertionError

    def assign(self, partitions: Collection[int], *, unhurried: Collection[int] = ()) -> None:
        raise AssertionError

    def read_again(self, partition: int) -> None:
        raise AssertionError

    async def end_offset(self, partition: int) -> int:
        self.ends_asked += 1
        if self.is_down:
            raise MetadataTopicError("no leader")
        return self.ends.get(partition, 0)

    def position(self, partition: int) -> int | None:
        return self.read.get(partition)

    def running(self) -> AbstractAsyncContextManager[object]:
        return nullcontext()


class SweepWorld:
    """`start` begins the life of a broker process, with nothing but the bucket; a world may have several."""

    def __init__(
        self,
        loop: SimLoop,
        retention: RetentionSettings | None = None,
        *,
        buckets: SimBuckets | None = None,
        broker_id: int = BROKER,
    ) -> None:
        self.loop = loop
        self.clock = SimClock(loop)
        self.buckets = buckets or SimBuckets(loop, zones=2)
        self.buckets.install()
        self.bucket = self.buckets.zone(0)
        self.progress = FakeProgress()
        self.topic = FakeTopic()
        self.events: list[RemoteWalCombinedLogSegmentMetadataRecord] = []
        self.broker_id = broker_id
        self.partition = combined_event_partition_of(broker_id, PARTITIONS)
        self.zone = Zone(frozenset({broker_id}), frozenset({broker_id}))
        self.told: list[int] = []
        self._retention = retention or RetentionSettings()
        self._sequence = 0
        self.restart()

    def restart(self) -> None:
        """A new process of the same id: nothing is known, and nothing is read yet."""
        self.stats = RemoteWalStats()
        self.table = WalObjectTable(CLUSTER, self.broker_id)
        self.topic.read.clear()
        context = WalStorageContext(
            WalStorageSettings("", self.buckets.urls[0]),
            InlineDiskExecutor(),
            Chance(1),
            ObjectStoreMetrics(MetricsRegistry()),
        )
        self.storage = SimWalStorageManager(context)
        self.orphans = OrphanSweep(
            SweepSettings(CLUSTER, self.broker_id),
            self._retention,
            self.table,
            self.storage,
            self.topic,
            lambda: self.zone,
            self.clock,
            self.stats,
        )
        self.sweeper = WalObjectSweeper(
            self.table,
            self.storage,
            self._retention,
            self.progress,
            self.orphans,
            self.clock,
            self.stats,
            interval_ms=MINUTE_MS,
            drop_expired=self.told.append,
        )

    @property
    def keys(self) -> list[str]:
        return sorted(self.bucket.objects)

    async def put(self, ends: Mapping[TopicIdPartition, int], *, epoch: int = 7, broker_id: int | None = None) -> str:
        """An object with a slice of each partition up to these offsets; its key.  It is not announced."""
        combined = self._object(ends, epoch, self.broker_id if broker_id is None else broker_id)
        await self.storage.copy_wal_combined_segment(combined)
        self.stats.object_size(combined.size)
        self.last = combined.metadata
        return combined.metadata.object_key

    async def upload(self, ends: Mapping[TopicIdPartition, int], *, epoch: int = 7) -> str:
        """Put, announced, and read by this broker."""
        key = await self.put(ends, epoch=epoch)
        self.announce(self.last)
        self.read()
        return key

    def announce(self, record: RemoteWalCombinedLogSegmentMetadataRecord) -> None:
        self.events.append(record)
        self.topic.ends[self.partition] = len(self.events)

    def read(self) -> None:
        """The consumer reads all there is."""
        for record in self.events[self.topic.read.get(self.partition, 0) :]:
            self.table.add(record)
        self.topic.read[self.partition] = len(self.events)

    async def minutes(self, count: float) -> None:
        await asyncio.sleep(count * 60)

    def _object(self, ends: Mapping[TopicIdPartition, int], epoch: int, broker_id: int) -> CombinedSegment:
        self._sequence += 1
        combined_id, now_ms = new_id(), self.clock.now_ms()
        key = WalObjectKey.at(
            now_ms,
            cluster_id=CLUSTER,
            broker_id=broker_id,
            broker_epoch=epoch,
            sequence=self._sequence,
            combined_id=combined_id,
        )
        identity = ObjectIdentity(combined_id, broker_id, epoch, now_ms, self.storage.own_bucket, str(key))
        slices = [
            make_slice(log_bytes((0, 1), start=end), start=end, partition=partition) for partition, end in ends.items()
        ]
        for each in slices:
            self.stats.of(each.partition.topic)
        return build_combined_segment(identity, slices, lambda partition: ())
