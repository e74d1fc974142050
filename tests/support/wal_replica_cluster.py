"""Brokers in one loop that follow through buckets: real logs, fetch states, followers and slices; memory for buckets.

What leads and uploads is a few lines here, so that a story can have its leaders do what they should not: announce
after they were deposed, twice, overlapping, out of order, or into a bucket that is dead.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from broker.common.identifiers import TopicIdPartition, TopicPartition
from broker.network.byte_stream import AsyncioNetwork
from broker.objectstore.errors import Unavailable
from broker.objectstore.objects import ObjectInfo
from broker.records.append_origin import AppendOrigin
from broker.records.record_batch import batches
from broker.replication.bucket_fetch_state import BucketFetchState
from broker.replication.bucket_follower import MakeBucketFollower
from broker.replication.leader_wal import LeaderWal
from broker.replication.partition import Partition
from broker.replication.remote_log import RemoteLog
from broker.server.leader_connector import LeaderConnector
from broker.server.wal.remote_leader_epochs import RemoteLeaderEpochs
from broker.wal.follow.wal_fetcher import WalFetcher
from broker.wal.follow.wal_follower import WalFollower
from broker.wal.follow.wal_interval_map import WalIntervalMap
from broker.wal.objects.combined_segment import CombinedSegment, ObjectIdentity, build_combined_segment
from broker.wal.objects.wal_entry import WalEntry, entries_of
from broker.wal.objects.wal_slice import ReservationToken, WalSlice, build_slice
from broker.wal.remote_wal_stats import RemoteWalStats
from broker.wal.storage.remote_wal_storage_manager import RemoteWalStorageManager
from tests.support.builders import ReplicaWorld, batch, parsed
from tests.support.memory_object_store import MemoryObjectStore
from tests.support.replica_cluster import ClusterBroker, ClusterConnection, ReplicaCluster, T
from tests.support.sim_loop import SimClock

GET_S: Final = 0.005
METADATA_S: Final = 0.003
UPLOAD_S: Final = 0.010

WAL_TOPIC: Final = {"remote.wal.enable": "true"}
_PROPERTIES: Final = {
    "remote.wal.storage.system.enable": "true",
    "remote.wal.storage.manager.class.name": "LocalWalStorageManager",
    "rwsm.config.bucket": "file:///zone",
    "broker.rack": "zone",
}


def bucket_of(broker_id: int) -> str:
    """Each broker is in a zone of its own."""
    return f"file:///zone-{broker_id}"


class MemoryWalStorage(RemoteWalStorageManager):
    """One broker's view of the cluster's buckets."""

    def __init__(self, cluster: "WalReplicaCluster", broker_id: int) -> None:
        self.own_bucket = bucket_of(broker_id)
        self.gets: list[tuple[str, int, int]] = []
        self._cluster = cluster

    async def copy_wal_combined_segment(self, combined: CombinedSegment) -> None:
        raise NotImplementedError("the cluster uploads")

    async def fetch_wal_segment(self, bucket: str, object_key: str, start: int, end: int) -> bytes:
        self.gets.append((object_key, start, end))
        await asyncio.sleep(self._cluster.get_latency())
        if bucket in self._cluster.dead_buckets:
            raise Unavailable(f"{bucket} is dead")
        return await self._cluster.buckets[bucket].get_range(object_key, start, end - start)

    async def delete_wal_combined_segments(self, bucket: str, object_keys: Sequence[str]) -> None:
        await self._cluster.buckets[bucket].delete_many(object_keys)

    async def list_wal_objects(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        async for found in self._cluster.buckets[self.own_bucket].list(prefix):
            yield found

    def is_reachable(self, bucket: str) -> bool:
        return True

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield


class StoryLeaderWal(LeaderWal):
    """Leads a partition through the bucket: uploads by itself when the cluster says so."""

    def __init__(self, cluster: "WalReplicaCluster", broker_id: int, partition: Partition) -> None:
        self.next_offset = partition.log.high_watermark
        self.start_offset = self.next_offset
        self.fallbacks = 0
        self._cluster = cluster
        self._broker_id = broker_id
        self._partition = partition
        self._due = False
        self.appended(0)

    def appended(self, size_bytes: int) -> None:
        if self._cluster.uploads_itself and not self._due and self.next_offset < self._partition.log.log_end_offset:
            self._due = True
            asyncio.get_running_loop().call_later(UPLOAD_S, self._upload)

    def serves_records(self, replica_id: int, fetch_offset: int) -> bool:
        return self._cluster.may_fall_back and (
            replica_id in self._cluster.falls_back or fetch_offset < self.start_offset
        )

    def count_fallback(self, replica_id: int, size_bytes: int) -> None:
        self.fallbacks += 1

    def log_start_moved(self) -> None: ...

    def _upload(self) -> None:
        self._due = False
        partition = self._partition
        if partition.leader_wal is self and self._broker_id in self._cluster.brokers:
            start, self.next_offset = self.next_offset, partition.log.log_end_offset
            self._cluster.announce(self._cluster.upload(self._broker_id, (partition.topic_partition.partition, start)))


class WalBroker(ClusterBroker):
    """It hears everything that is announced, in its order, a moment later."""

    wal: WalFetcher

    def __init__(self, cluster: "WalReplicaCluster", broker_id: int) -> None:
        self.wal_cluster = cluster
        self.storage = MemoryWalStorage(cluster, broker_id)
        self.wal_stats = RemoteWalStats()
        self.known: dict[TopicIdPartition, WalIntervalMap] = {}
        self.reseeks = 0
        self._stopped = asyncio.Event()
        super().__init__(cluster, broker_id)
        self.running = asyncio.get_running_loop().create_task(self._run())

    def bucket_follower_maker(self) -> MakeBucketFollower | None:
        connector = LeaderConnector(self.broker_id, self.config, self.metadata, self._broker_epoch, AsyncioNetwork())
        epochs = RemoteLeaderEpochs(
            self.broker_id,
            self.config,
            connector.address_of,
            lambda address: ClusterConnection(self.wal_cluster, self.broker_id, address.broker_id),
        )
        clock = SimClock(asyncio.get_running_loop())
        self.wal = WalFetcher(self.storage, epochs, self.map_of, self.config, self.wal_stats, clock)
        return self.wal.make_follower

    async def _run(self) -> None:
        async with self.wal.running():
            await self._stopped.wait()

    async def stop_wal(self) -> None:
        self._stopped.set()
        await self.running

    def map_of(self, partition: TopicIdPartition) -> WalIntervalMap | None:
        """Made when it is first asked for, of all that was announced so far."""
        found = self.known.get(partition)
        if found is None:
            found = self.known[partition] = WalIntervalMap(self.storage.own_bucket, 1 << 40, self.storage.is_reachable)
            self._read(found, partition)
        elif found.needs_reseek:
            self.reseeks += 1
            found.reseek_began()
            self._read(found, partition)
        return found

    def hear(self, entries: Iterable[WalEntry]) -> None:
        changed = set()
        for entry in entries:
            known = self.known.get(entry.partition)
            if known is not None and known.add(entry):
                changed.add(entry.partition)
        self.wal.wake(changed)

    def _read(self, known: WalIntervalMap, partition: TopicIdPartition) -> None:
        for entry in self.wal_cluster.topic:
            if entry.partition == partition:
                known.add(entry)

    def lead(self) -> None:
        """After metadata: each partition that is led here and has no wal gets one."""
        for partition in self.replicas.partitions():
            if partition.is_leader and partition.is_through_bucket and partition.leader_wal is None:
                partition.leader_wal = StoryLeaderWal(self.wal_cluster, self.broker_id, partition)


class WalReplicaCluster(ReplicaCluster):
    """`topic` is all that was announced.  Leaders upload and announce by themselves unless `uploads_itself` is False;
    followers in `deaf` do not hear of it."""

    def __init__(
        self,
        directory: Path,
        *,
        broker_ids: tuple[int, ...] = (1, 2, 3),
        properties: Mapping[str, str] | None = None,
        uploads_itself: bool = True,
        may_fall_back: bool = False,
        remote_log: RemoteLog | None = None,
    ) -> None:
        self.buckets = {bucket_of(broker_id): MemoryObjectStore(bucket_of(broker_id)) for broker_id in broker_ids}
        self.dead_buckets: set[str] = set()
        self.topic: list[WalEntry] = []
        self.get_latency: Callable[[], float] = lambda: GET_S
        self.metadata_latency: Callable[[], float] = lambda: METADATA_S
        self.uploads_itself = uploads_itself
        self.may_fall_back = may_fall_back
        self.falls_back: set[int] = set()
        self.deaf: set[int] = set()
        self.objects_made = 0
        self.uploaded_at_ms = 1000  # what objects say of themselves
        super().__init__(
            directory, broker_ids=broker_ids, properties={**_PROPERTIES, **(properties or {})}, remote_log=remote_log
        )

    def make_broker(self, broker_id: int) -> ClusterBroker:
        return WalBroker(self, broker_id)

    async def kill(self, broker_id: int) -> None:
        await self.wal_broker(broker_id).stop_wal()
        await super().kill(broker_id)

    def tell(self, broker: ClusterBroker) -> None:
        super().tell(broker)
        assert isinstance(broker, WalBroker)
        broker.lead()

    def wal_broker(self, broker_id: int) -> WalBroker:
        broker = self.brokers[broker_id]
        assert isinstance(broker, WalBroker)
        return broker

    def create_wal_topic(self, **options: Any) -> None:
        self.create_topic(configs=WAL_TOPIC, **options)

    def follower(self, broker_id: int, partition: int = 0) -> WalFollower | None:
        """The one there is now; None for a leader, and for who gave up because its leader knows a newer epoch."""
        for _, state in self.brokers[broker_id].fetchers.states():
            if state.topic_partition == TopicPartition("t", partition):
                assert isinstance(state, BucketFetchState) and isinstance(state.follower, WalFollower)
                return state.follower
        return None

    def is_agreed(self, broker_id: int, partition: int = 0) -> bool:
        """Whether it follows and has shaken hands with its leader."""
        follower = self.follower(broker_id, partition)
        return follower is not None and follower.may_append

    # What leaders do

    def append(self, broker_id: int, *values: str, partition: int = 0) -> None:
        """One batch for each value; whoever does not know better takes it."""
        for value in values:
            results = self.partition(broker_id, "t", partition).append_records_to_leader(
                parsed(batch(value)), AppendOrigin.CLIENT
            )
            assert all(result.error is None for result in results), results

    def slice_of(
        self, broker_id: int, partition: int, start: int, end: int | None = None, *, epoch: int | None = None
    ) -> WalSlice:
        """A broker's batches from `start` to `end`, exclusive, as the leader of `epoch` (or its own) announces them."""
        replica = self.partition(broker_id, "t", partition)
        upper = replica.log.log_end_offset if end is None else end
        chosen = [
            bytes(each.buffer)
            for each in batches(self.log_bytes(broker_id, "t", partition))
            if each.last_offset >= start and each.next_offset <= upper
        ]
        built = build_slice(
            TopicIdPartition(replica.topic_id, "t", partition),
            UUID(int=(1 << 64) + self._next_id()),
            ReservationToken(replica.leader_epoch if epoch is None else epoch, 0, 1),
            b"".join(chosen),
            start_offset=start,
            upper_offset=upper,
            size_max=1 << 30,
            room=None,
        )
        assert built is not None
        return built

    def upload(self, broker_id: int, *ranges: tuple[int, int] | WalSlice, bucket: str | None = None) -> list[WalEntry]:
        """An object of slices, each a partition and where it starts, or made already: stored, and not announced yet."""
        slices = [each if isinstance(each, WalSlice) else self.slice_of(broker_id, *each) for each in ranges]
        where = bucket or bucket_of(broker_id)
        number = self._next_id()
        identity = ObjectIdentity(
            UUID(int=number), broker_id, 1, self.uploaded_at_ms, where, f"wal/{broker_id}/{number}"
        )
        combined = build_combined_segment(identity, slices, lambda partition: ())
        store = self.buckets[where]
        store.objects[identity.object_key] = b"".join(bytes(each) for each in combined.buffers)
        store.modified_ms[identity.object_key] = 0
        return list(entries_of(combined.metadata, number))

    def announce(self, entries: Iterable[WalEntry]) -> None:
        """Append to the metadata topic; each broker hears it in its own time."""
        told = list(entries)
        self.topic += told
        for broker in list(self.brokers.values()):
            assert isinstance(broker, WalBroker)
            if broker.broker_id not in self.deaf:
                asyncio.get_running_loop().call_later(self.metadata_latency(), broker.hear, told)

    def _next_id(self) -> int:
        self.objects_made += 1
        return self.objects_made

    # What became of it

    def reaches(self, broker_id: int, end: int, partition: int = 0) -> Callable[[], bool]:
        return lambda: self.partition(broker_id, "t", partition).log.log_end_offset == end

    def gets(self, broker_id: int) -> list[tuple[str, int, int]]:
        return self.wal_broker(broker_id).storage.gets


__all__ = ["ReplicaWorld", "T", "WalReplicaCluster", "bucket_of"]
