"""A broker that uploads: real logs and partitions, buckets in memory, a publisher that remembers, virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.common.chance import Chance
from broker.common.disk import ThreadDiskExecutor
from broker.common.identifiers import TopicIdPartition, TopicPartition
from broker.objectstore.failing_object_store import FailingObjectStore
from broker.records.record_batch import batches
from broker.replication.partition import Partition
from broker.schemas.remote_wal_metadata import RemoteWalCombinedLogSegmentMetadataRecord, encode
from broker.wal.cost.cost_meter import Traffic
from broker.wal.follow.wal_interval_map import WalIntervalMap
from broker.wal.objects.wal_entry import WalEntry, entries_of
from broker.wal.remote_wal_stats import RemoteWalStats
from broker.wal.upload.backfill import Backfill
from broker.wal.upload.combiner import Combiner
from broker.wal.upload.leader_partition import WalLeaderPartition
from broker.wal.upload.object_identities import ObjectIdentities
from broker.wal.upload.partition_uploads import PartitionUploads
from broker.wal.upload.slice_reader import SliceReader
from tests.support.builders import ReplicaWorld, batch, topic_uuid
from tests.support.sim_loop import SimClock, SimLoop, simulate
from tests.unit.wal.storage_world import OWN, Buckets, storage_manager

LEADER, FOLLOWER, OTHER = 1, 2, 3
LOST = "file:///zone-lost"  # a bucket that never answers
SETTINGS = {
    "remote.wal.storage.system.enable": "true",
    "remote.wal.storage.manager.class.name": "LocalWalStorageManager",
    "rwsm.config.bucket": OWN,
    "broker.rack": "zone-a",
}


class RememberingPublisher:
    """Acknowledges after `seconds`, or when `hold` is let go; `published` is in the order of the acknowledgements."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.is_ready = True
        self.is_failing = False
        self.begun: list[RemoteWalCombinedLogSegmentMetadataRecord] = []
        self.encoded = 0  # events that had to be encoded once more
        self.with_slices: list[RemoteWalCombinedLogSegmentMetadataRecord] = []
        self.published: list[RemoteWalCombinedLogSegmentMetadataRecord] = []
        self.invalidated: list[tuple[TopicIdPartition, int, int]] = []
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.on_published: Callable[[RemoteWalCombinedLogSegmentMetadataRecord], None] = lambda metadata: None

    async def publish(self, metadata: RemoteWalCombinedLogSegmentMetadataRecord, event: bytes | None) -> None:
        assert event is None or event == encode(metadata)
        self.begun.append(metadata)
        self.encoded += event is None
        await asyncio.sleep(self.seconds)
        await self.may_go.wait()
        self.published.append(metadata)
        self.on_published(metadata)

    async def publish_slices(self, metadata: RemoteWalCombinedLogSegmentMetadataRecord) -> None:
        assert metadata in self.published
        self.with_slices.append(metadata)

    def publish_invalidate(self, partition: TopicIdPartition, leader_epoch: int, from_offset: int) -> None:
        self.invalidated.append((partition, leader_epoch, from_offset))

    @property
    def entries(self) -> list[WalEntry]:
        """All slices that were announced, in order."""
        return [each for metadata in self.published for each in entries_of(metadata)]

    def offsets(self, partition: int = 0, topic: str = "t") -> list[tuple[int, int]]:
        """(first, last) of each slice of a partition."""
        return [
            (each.start_offset, each.end_offset)
            for each in self.entries
            if (each.partition.topic, each.partition.partition) == (topic, partition)
        ]


class UploadWorld:
    """Broker 1, which leads; `running` starts its uploads."""

    def __init__(self, directory: Path, loop: SimLoop, settings: Mapping[str, str] | None = None) -> None:
        self.loop = loop
        self.replicas = ReplicaWorld(directory, {**SETTINGS, **(settings or {})})
        self.replicas.register_brokers(LEADER, FOLLOWER, OTHER)
        self.buckets = Buckets()
        self.storage = storage_manager(self.buckets)
        self.publisher = RememberingPublisher()
        self.stats = RemoteWalStats()
        self.chance = Chance(7)
        self.clock = SimClock(loop)
        self.traffic = Traffic(0.0, 0.0, someone_waits_for_all=False)
        self.disk = ThreadDiskExecutor(1)
        self.identities = ObjectIdentities(
            cluster_id="c",
            broker_id=LEADER,
            broker_epoch=lambda: 11,
            bucket=self.storage.own_bucket,
            clock=self.clock,
            chance=self.chance,
        )
        self.combiner = Combiner(
            self.replicas.config,
            self.identities,
            self.storage,
            self.publisher,
            SliceReader(self.disk, self.chance.uuid),
            self.stats,
            lambda waits: Traffic(
                self.traffic.object_price, self.traffic.classic_price_per_second, someone_waits_for_all=waits
            ),
        )
        self.metadata_lag = 0
        self.known: dict[TopicIdPartition, WalIntervalMap] = {}
        self.backfill = Backfill(
            self.replicas.config,
            self.identities,
            self.storage,
            self.publisher,
            SliceReader(self.disk, self.chance.uuid),
            self.combiner,
            self.stats,
            self.clock,
            lambda: self.metadata_lag,
        )
        self.publisher.on_published = self._deliver

    @asynccontextmanager
    async def running(self) -> AsyncIterator["UploadWorld"]:
        try:
            async with self.storage.running(), self.combiner.running(), self.backfill.running():
                yield self
        finally:
            self.disk.close()

    @property
    def store(self) -> FailingObjectStore:
        return self.buckets.store()

    def topic(self, name: str = "t", *, partitions: int = 1, leader: int = LEADER, **configs: str) -> Partition:
        """Led here and followed by broker 2, with WAL."""
        self.replicas.create_topic(
            name,
            partitions=partitions,
            replicas=(LEADER, FOLLOWER),
            leader=leader,
            configs={"remote.wal.enable": "true", **{key.replace("_", "."): each for key, each in configs.items()}},
        )
        for index in range(partitions if leader == LEADER else 0):
            self.lead(index, name)
        return self.partition(0, name)

    def lead(self, partition: int = 0, topic: str = "t") -> WalLeaderPartition:
        """As the metadata's listener does after an election."""
        led = self.partition(partition, topic)
        wal = self.combiner.activate(led)
        led.leader_wal = wal
        known = self.map_of(partition, topic)
        known.begin_epoch(led.leader_epoch)
        known.log_moved(led.log.log_end_offset, led.log.high_watermark)
        self.backfill.begin(led, known)
        return wal

    def map_of(self, partition: int = 0, topic: str = "t") -> WalIntervalMap:
        """What this broker knows of slices of the partition."""
        place = self.place(partition, topic)
        if place not in self.known:
            self.known[place] = WalIntervalMap(
                OWN, 3_600_000, lambda bucket: bucket != LOST and self.storage.is_reachable(bucket)
            )
        return self.known[place]

    def _deliver(self, metadata: RemoteWalCombinedLogSegmentMetadataRecord) -> None:
        """A broker reads what it announced itself."""
        for each in entries_of(metadata):
            if each.partition in self.known:
                self.known[each.partition].add(each)

    def elect(self, leader: int, leader_epoch: int, partition: int = 0, topic: str = "t") -> None:
        """The metadata says so; the uploads are told as the listener does."""
        self.replicas.place(topic, partition, leader=leader, leader_epoch=leader_epoch)
        if leader == LEADER:
            self.lead(partition, topic)
        else:
            self.combiner.deactivate(self.place(partition, topic))
            self.backfill.end(self.place(partition, topic))

    def partition(self, partition: int = 0, topic: str = "t") -> Partition:
        return self.replicas.partition(topic, partition)

    @staticmethod
    def place(partition: int = 0, topic: str = "t") -> TopicIdPartition:
        return TopicIdPartition(topic_uuid(topic), *TopicPartition(topic, partition))

    def be_late(self, by_ms: float = 300.0) -> None:
        """From now on the loop comes so late whenever the combiner has asked for it."""
        pace = self.combiner._pace
        woken = pace.woken
        for _ in range(100):
            woken(by_ms)
        pace.woken = lambda late_ms: woken(by_ms)  # type: ignore[method-assign]

    def uploads(self, partition: int = 0, topic: str = "t") -> PartitionUploads:
        found = self.combiner.uploads_of(self.place(partition, topic))
        assert found is not None
        return found

    def append(self, count: int = 1, *, size: int = 20, partition: int = 0, topic: str = "t") -> None:
        """One batch of `count` records with values of `size` bytes."""
        self.replicas.append(batch(*[b"v" * size] * count), topic=topic, partition=partition)

    def append_as_follower(self, *counts: int, epoch: int = 0, partition: int = 0, topic: str = "t") -> None:
        """What an earlier leader wrote: batches of so many records each."""
        local = self.partition(partition, topic).log
        for count in counts:
            data = batch(*["v"] * count, base_offset=local.log_end_offset, partition_leader_epoch=epoch)
            local.append_as_follower(data, epoch)

    def fetched(self, offset: int, partition: int = 0, topic: str = "t", replica_id: int = FOLLOWER) -> None:
        """A follower's fetch says that it has everything below `offset`."""
        led = self.partition(partition, topic)
        led.update_follower_fetch_state(
            replica_id,
            fetch_offset=offset,
            log_start_offset=0,
            leader_log_end_offset=led.log.log_end_offset,
            replica_epoch=10 + replica_id,
        )

    def in_bucket(self, partition: int = 0, topic: str = "t") -> list[tuple[int, int, int]]:
        """(base offset, last offset, epoch) of the batches of all announced slices, read from the bucket."""
        found: list[tuple[int, int, int]] = []
        for each in self.publisher.entries:
            if each.partition == self.place(partition, topic):
                data = self.buckets.objects()[each.object_key][each.position : each.object_end]
                found += [(one.base_offset, one.last_offset, one.partition_leader_epoch) for one in batches(data)]
        return found


def told(directory: Path, story: Callable[[UploadWorld], Coroutine[Any, Any, None]], **settings: str) -> None:
    """Tell the story in virtual time, with uploads running; settings' names have underscores for dots."""

    async def run(loop: SimLoop) -> None:
        world = UploadWorld(directory, loop, {key.replace("_", "."): value for key, value in settings.items()})
        async with world.running():
            await story(world)

    simulate(run)
