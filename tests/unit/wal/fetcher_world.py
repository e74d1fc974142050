"""Broker 1 follows broker 2 through buckets: real logs and fetch states; storage manager and leader are dicts."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from broker.common.identifiers import TopicIdPartition, TopicPartition
from broker.log.leader_epoch_file_cache import EpochEndOffset
from broker.objectstore.errors import Corrupt, NotFound
from broker.objectstore.objects import ObjectInfo
from broker.replication.bucket_fetch_state import BucketFetchState
from broker.replication.follower_replica import FollowerReplica
from broker.wal.follow.wal_fetcher import WalFetcher
from broker.wal.follow.wal_follower import WalFollower
from broker.wal.follow.wal_interval_map import WalIntervalMap
from broker.wal.objects.combined_segment import CombinedSegment, ObjectIdentity, build_combined_segment
from broker.wal.objects.wal_entry import WalEntry, entries_of
from broker.wal.remote_wal_stats import RemoteWalStats
from broker.wal.storage.remote_wal_storage_manager import RemoteWalStorageManager
from tests.support.builders import ReplicaWorld
from tests.unit.wal.wal_world import BUCKET, batch, bytes_of, make_slice, new_id

Range = tuple[str, int, int]


class DictStorage(RemoteWalStorageManager):
    """Objects by bucket and key.  `before` is awaited first in each GET and may raise; `change` may change bytes."""

    def __init__(self) -> None:
        self.own_bucket = BUCKET
        self.objects: dict[tuple[str, str], bytes] = {}
        self.gets: list[Range] = []
        self.closed: set[str] = set()
        self.under_way = 0
        self.under_way_max = 0
        self.before: Callable[[str, str], object] | None = None
        self.change: Callable[[str, bytes], bytes] = lambda key, data: data

    async def copy_wal_combined_segment(self, combined: CombinedSegment) -> None:
        metadata = combined.metadata
        self.objects[metadata.bucket, metadata.object_key] = bytes_of(combined)

    async def fetch_wal_segment(self, bucket: str, object_key: str, start: int, end: int) -> bytes:
        self.gets.append((object_key, start, end))
        self.under_way += 1
        self.under_way_max = max(self.under_way_max, self.under_way)
        try:
            if self.before is not None:
                waiting = self.before(bucket, object_key)
                if asyncio.iscoroutine(waiting) or isinstance(waiting, asyncio.Future):
                    await waiting
            if (bucket, object_key) not in self.objects:
                raise NotFound(f"there is no {object_key}")
            data = self.objects[bucket, object_key][start:end]
            if len(data) < end - start:
                raise Corrupt(f"{object_key} ends early")
            return self.change(object_key, data)
        finally:
            self.under_way -= 1

    async def delete_wal_combined_segments(self, bucket: str, object_keys: Sequence[str]) -> None:
        for key in object_keys:
            self.objects.pop((bucket, key), None)

    async def list_wal_objects(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        for _, key in self.objects:
            yield ObjectInfo(key, 0, 0)

    def is_reachable(self, bucket: str) -> bool:
        return bucket not in self.closed

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield


class DictEpochs:
    """What the leader answers, by epoch; an exception is raised, a future waited for."""

    def __init__(self) -> None:
        self.answers: dict[int, EpochEndOffset | Exception | asyncio.Future[EpochEndOffset]] = {}
        self.asked: list[tuple[int, TopicPartition, int, int]] = []

    async def end_offset(
        self, leader_id: int, topic_partition: TopicPartition, epoch: int, *, current_leader_epoch: int
    ) -> EpochEndOffset:
        self.asked.append((leader_id, topic_partition, epoch, current_leader_epoch))
        answer = self.answers[epoch]
        if isinstance(answer, asyncio.Future):
            return await answer
        if isinstance(answer, Exception):
            raise answer
        return answer


class WalFetcherWorld(ReplicaWorld):
    """Partitions t-0, t-1, ... without records, followed in the given epoch.  Needs a running loop."""

    def __init__(
        self,
        directory: Path,
        *,
        partitions: int = 1,
        leader_epoch: int = 1,
        properties: dict[str, str] | None = None,
        storage: RemoteWalStorageManager | None = None,
    ) -> None:
        """`storage` is read from in the place of the dict, which has what was uploaded all the same."""
        super().__init__(directory, properties)
        self.register_brokers(1, 2)
        self.create_topic(partitions=partitions, replicas=(2, 1), leader=2, leader_epoch=leader_epoch)
        self.storage = DictStorage()
        self.epochs = DictEpochs()
        self.stats = RemoteWalStats()
        self.known: dict[TopicIdPartition, WalIntervalMap] = {}
        self.told = 0
        used = storage or self.storage
        self.fetcher = WalFetcher(used, self.epochs, self.known.get, self.config, self.stats, self.clock)
        self.states: list[BucketFetchState] = []
        for index in range(partitions):
            self.known[self.place_of(index)] = WalIntervalMap(BUCKET, 1 << 40, used.is_reachable)
            self.states.append(self.follow(index))

    def place_of(self, partition: int = 0) -> TopicIdPartition:
        found = self.partition("t", partition)
        return TopicIdPartition(found.topic_id, "t", partition)

    def follow(self, partition: int = 0) -> BucketFetchState:
        replica = self.partition("t", partition)
        state = BucketFetchState(FollowerReplica(replica, replica.leader_epoch), self.fetcher.make_follower)
        if state.is_truncating:  # as the fetcher does before its first fetch
            state.truncate_to(state.fetch_offset)
        return state

    def follower(self, partition: int = 0) -> WalFollower:
        found = self.states[partition].follower
        assert isinstance(found, WalFollower)
        return found

    def map(self, partition: int = 0) -> WalIntervalMap:
        return self.known[self.place_of(partition)]

    def end(self, partition: int = 0) -> int:
        return self.partition("t", partition).log.log_end_offset

    def answer(self, partition: int = 0, *, log_start: int = 0, high_watermark: int = 0) -> None:
        """The leader answers an empty fetch at the log end."""
        state = self.states[partition]
        state.replica.update_offsets(high_watermark, log_start)
        state.answered(state.request(1000), log_start)

    def shake_hands(self) -> None:
        for index in range(len(self.states)):
            self.answer(index)

    async def upload(
        self,
        *ranges: tuple[int, int, int],
        key: str = "wal/k",
        epoch: int = 1,
        publisher: int | None = None,
        bucket: str = BUCKET,
        value: bytes = b"v",
        is_stored: bool = True,
    ) -> list[WalEntry]:
        """One object with slices of (partition, first offset, count of records, each its own batch)."""
        slices = [
            make_slice(
                b"".join(batch(offset, epoch=epoch, value=value) for offset in range(start, start + count)),
                start=start,
                partition=self.place_of(partition),
                leader_epoch=epoch if publisher is None else publisher,
            )
            for partition, start, count in ranges
        ]
        identity = ObjectIdentity(new_id(), 2, 7, 2000, bucket, key)
        combined = build_combined_segment(identity, slices, lambda partition: (1,))
        if is_stored:
            await self.storage.copy_wal_combined_segment(combined)
        self.told += 1
        return list(entries_of(combined.metadata, self.told))

    def tell(self, *entries: WalEntry) -> None:
        """What one batch of metadata says."""
        for entry in entries:
            self.known[entry.partition].add(entry)
        self.fetcher.wake({entry.partition for entry in entries})

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def log_bytes(self, partition: int = 0) -> bytes:
        return b"".join(segment.records.path.read_bytes() for segment in self.partition("t", partition).log.segments)


def records(start: int, end: int, *, epoch: int = 1, value: bytes = b"v") -> bytes:
    """What a log of one-record batches holds."""
    return b"".join(batch(offset, epoch=epoch, value=value) for offset in range(start, end))
