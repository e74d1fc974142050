"""A deleted topic leaves nothing in remote storage: its leaders remove it, and a sweep finds what they could not.

Behaviour 46 of tiered storage, in a bucket that is a directory and in one that fails as buckets do.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from broker.common.chance import Chance
from broker.common.disk import InlineDiskExecutor
from broker.common.errors import KafkaError
from broker.common.identifiers import TopicIdPartition
from broker.metadata.broker_registration import BrokerRegistration
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.topics_image import TopicImage, TopicsImage
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.metrics.registry import MetricsRegistry
from broker.objectstore.failing_object_store import FailingObjectStore, Fault, FaultPlan
from broker.objectstore.local_directory_store import LocalDirectoryStore
from broker.objectstore.object_store import ObjectStore
from broker.tiering.errors import RemoteStorageError
from broker.tiering.local_tiered_storage import LocalTieredStorage
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate
from broker.tiering.remote_log_stats import RemoteLogStats
from broker.tiering.remote_log_sweeper import KnownCluster, RemoteLogSweeper
from broker.tiering.remote_partition_remover import RemotePartitionRemover, RemovalPurpose
from broker.tiering.remote_storage_context import RemoteStorageContext, RemoteStorageSettings
from tests.support.memory_object_store import MemoryObjectStore
from tests.support.sim_disk import SimFileSystem
from tests.support.sim_loop import SimClock, SimLoop, simulate
from tests.unit.tiering.memory_remote_log_metadata_manager import MemoryRemoteLogMetadataManager
from tests.unit.tiering.segment_world import DELETING, FINISHED, STARTED, update
from tests.unit.tiering.storage_world import Made, batch, make_segment

HOUR = 3600
GONE = [TopicIdPartition(UUID(int=5 << 100), "orders", number) for number in (0, 1)]
KEPT = TopicIdPartition(UUID(int=6 << 100), "kept", 0)
RECREATED = TopicIdPartition(UUID(int=7 << 100), "orders", 0)
OBJECTS_OF_SEGMENT = 5  # there are no aborted transactions
FAULTY = FaultPlan({Fault.SLOW_DOWN: 0.1, Fault.RESET: 0.1, Fault.LOST_REPLY: 0.1, Fault.STALE_LIST: 0.1})


class Metadata(MemoryRemoteLogMetadataManager):
    """The topic that all brokers read; one of `fail_every` events is given up."""

    def __init__(self, partitions: Iterable[TopicIdPartition], fail_every: int) -> None:
        super().__init__(partitions)
        self._fail_every = fail_every
        self._told = 0

    async def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        await asyncio.sleep(0.05)
        self._told += 1
        if self._fail_every and self._told % self._fail_every == 0:
            raise RemoteStorageError("the event was not read back in time")
        await super().update_remote_log_segment_metadata(update)


class NoIndexes:
    def remove(self, segment_ids: Iterable[UUID]) -> None:
        """None is cached."""


@dataclass
class Broker:
    """What one process has of it."""

    storage: LocalTieredStorage
    remover: RemotePartitionRemover
    sweeper: RemoteLogSweeper
    stats: RemoteLogStats


class World:
    """Brokers 1 and 2 of the cluster that shares the bucket, and what the controllers say."""

    def __init__(self, loop: SimLoop, bucket: Callable[[], ObjectStore], epoch_ms: int, *, fail_every: int = 0) -> None:
        self.clock = SimClock(loop, epoch_ms)
        self.bucket = bucket
        self.disk = SimFileSystem()
        self.metadata = Metadata([*GONE, KEPT, RECREATED], fail_every)
        self.topics = {partition.topic_id: partition.topic for partition in (*GONE, KEPT)}
        self.up = {1, 2}
        self.made: dict[UUID, Made] = {}

    @asynccontextmanager
    async def broker(self, broker_id: int, cluster_id: str = "cluster") -> AsyncIterator[Broker]:
        async def open_store(url: str) -> ObjectStore:
            return self.bucket()

        context = RemoteStorageContext(
            RemoteStorageSettings("LocalTieredStorage", "file:///bucket"),
            cluster_id,
            self.disk,
            InlineDiskExecutor(),
            Chance(broker_id),
            ObjectStoreMetrics(MetricsRegistry()),
            open_store,
        )
        storage, stats = LocalTieredStorage(context), RemoteLogStats()
        chance = Chance(broker_id)
        remover = RemotePartitionRemover(broker_id, self.metadata, storage, NoIndexes(), stats, self.clock, chance)
        sweeper = RemoteLogSweeper(broker_id, storage, self.cluster, stats, self.clock, chance)
        async with storage.running(), remover.running(), sweeper.running():
            yield Broker(storage, remover, sweeper, stats)

    def cluster(self) -> KnownCluster:
        topics = {topic_id: TopicImage(name, topic_id) for topic_id, name in self.topics.items()}
        brokers = {each: BrokerRegistration(id=each, epoch=1, fenced=each not in self.up) for each in (1, 2)}
        return KnownCluster(MetadataImage(offset=1, brokers=brokers, topics=TopicsImage(topics, {})), True)

    def delete_topic(self) -> None:
        del self.topics[GONE[0].topic_id]

    async def copy(self, broker: Broker, partition: TopicIdPartition, *, count: int = 3, is_told: bool = True) -> None:
        """Segments of a partition, up to what the metadata says of them."""
        for number in range(count):
            made = self._make(partition, number)
            with contextlib.suppress(KafkaError):
                await broker.storage.copy_log_segment_data(made.segment, made.data)
                if is_told:
                    self.metadata.store.apply(replace(made.segment, state=STARTED))
                    self.metadata.store.apply(update(made.segment.segment_id.int, FINISHED, partition=partition))

    def _make(self, partition: TopicIdPartition, number: int) -> Made:
        tag = len(self.made) + 1
        directory = Path(f"/log/{tag}")
        made = make_segment(self.disk, tag, [batch(10 * number), batch(10 * number + 5)], directory=directory)
        made = made._replace(segment=replace(made.segment, partition=partition))
        self.made[made.segment.segment_id] = made
        return made

    async def segments(self, partition: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
        return list(await self.metadata.list_remote_log_segments(partition))

    async def objects(self, broker: Broker) -> dict[str, int]:
        """How many there are of each topic id."""
        counts: dict[str, int] = {}
        async for each in self.bucket_inside().list("tiered/cluster/"):
            folder = each.key.split("/")[2]
            counts[folder] = counts.get(folder, 0) + 1
        return counts

    def bucket_inside(self) -> ObjectStore:
        store = self.bucket()
        return store._inner if isinstance(store, FailingObjectStore) else store


@pytest.fixture(params=["directory", "faulty"])
def make_world(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[SimLoop], World]:
    if request.param == "directory":
        epoch_ms = int(tmp_path.stat().st_mtime * 1000)  # the time of its files
        store = LocalDirectoryStore(tmp_path, InlineDiskExecutor(), Chance(3))
        return lambda loop: World(loop, lambda: store, epoch_ms)
    failing = FailingObjectStore(MemoryObjectStore("file:///bucket"), Chance(4))
    return lambda loop: World(loop, lambda: failing, 0, fail_every=5)


def begin_to_fail(world: World) -> None:
    """From now on the bucket fails, if it can."""
    store = world.bucket()
    if isinstance(store, FailingObjectStore):
        store.plan = FAULTY


def folder(partition: TopicIdPartition) -> str:
    tails = {GONE[0].topic_id: "AAAAUAAAAAAAAAAAAAAAAA", KEPT.topic_id: "AAAAYAAAAAAAAAAAAAAAAA"}
    return f"{partition.topic}-{partition.partition}-{tails.get(partition.topic_id, 'AAAAcAAAAAAAAAAAAAAAAA')}"


MakeWorld = Callable[[SimLoop], World]


def test_46_a_deleted_topic_leaves_nothing_and_others_stay(make_world: MakeWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world = make_world(loop)
        async with world.broker(1) as leader:
            for partition in (*GONE, KEPT, RECREATED):
                await world.copy(leader, partition)
            assert (await world.objects(leader))[folder(GONE[0])] == 3 * OBJECTS_OF_SEGMENT
            begin_to_fail(world)
            world.delete_topic()
            await asyncio.gather(*(leader.remover.remove(each, RemovalPurpose.TOPIC_DELETED) for each in GONE))
            assert set(await world.objects(leader)) == {folder(KEPT), folder(RECREATED)}
            for partition in GONE:
                assert await world.segments(partition) == []
            for partition in (KEPT, RECREATED):
                assert [each.state for each in await world.segments(partition)] == [FINISHED] * 3
            assert (await world.objects(leader))[folder(KEPT)] == 3 * OBJECTS_OF_SEGMENT

    simulate(story)


def test_46_what_a_leader_that_was_down_left_is_swept(make_world: MakeWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world = make_world(loop)
        async with world.broker(1) as survivor:
            world.topics[RECREATED.topic_id] = "orders"
            async with world.broker(2) as leader:
                for partition in (*GONE, KEPT, RECREATED):
                    await world.copy(leader, partition)
            world.up = {1}
            begin_to_fail(world)
            world.delete_topic()
            await survivor.remover.remove(GONE[0], RemovalPurpose.TOPIC_DELETED)  # which it leads
            assert folder(GONE[1]) in await world.objects(survivor)
            await asyncio.sleep(0.9 * HOUR)
            assert folder(GONE[1]) in await world.objects(survivor)
            await asyncio.sleep(12 * HOUR)
            everything = await world.objects(survivor)
            assert everything == dict.fromkeys((folder(KEPT), folder(RECREATED)), 3 * OBJECTS_OF_SEGMENT)
            assert survivor.stats.leaked_partitions_deleted >= 1
            assert survivor.stats.leaked_topics == 0

    simulate(story)


def test_46_a_leader_that_dies_while_it_removes_is_finished_by_the_sweep(make_world: MakeWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world = make_world(loop)
        async with world.broker(2) as leader:
            await world.copy(leader, GONE[0])
            world.delete_topic()
            removal = leader.remover.remove(GONE[0], RemovalPurpose.TOPIC_DELETED)
            while all(each.state is not DELETING for each in await world.segments(GONE[0])):
                await asyncio.sleep(0.01)
        assert removal.cancelled()
        left = await world.segments(GONE[0])
        assert left
        begin_to_fail(world)
        async with world.broker(1) as other:
            await asyncio.sleep(12 * HOUR)
            assert await world.objects(other) == {}

    simulate(story)


def test_46_a_restart_does_not_sweep_early(make_world: MakeWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world = make_world(loop)
        async with world.broker(1) as broker:
            await world.copy(broker, GONE[0])
            world.delete_topic()
        for _ in range(5):
            async with world.broker(1) as broker:
                await asyncio.sleep(1.3 * HOUR)  # looks once
                assert broker.stats.leaked_topics == 1
                assert await world.objects(broker) == {folder(GONE[0]): 3 * OBJECTS_OF_SEGMENT}

    simulate(story)


def test_46_what_no_metadata_tells_of_in_a_topic_that_is_there_stays(make_world: MakeWorld) -> None:
    """A copy whose first event nobody has read yet looks like this."""

    async def story(loop: SimLoop) -> None:
        world = make_world(loop)
        async with world.broker(1) as broker:
            await world.copy(broker, KEPT, count=1, is_told=False)
            await asyncio.sleep(12 * HOUR)
            assert await world.objects(broker) == {folder(KEPT): OBJECTS_OF_SEGMENT}

    simulate(story)


def test_46_another_cluster_in_the_same_bucket_is_left_alone(make_world: MakeWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world = make_world(loop)
        async with world.broker(1) as broker, world.broker(1, cluster_id="cluste") as stranger:
            await world.copy(broker, GONE[0])
            await asyncio.sleep(0.5 * HOUR)
            world.topics.clear()  # both know of no topic; the stranger has nothing there
            with capture_logs() as logs:
                await stranger.sweeper.sweep()
                await asyncio.sleep(2 * HOUR)
                await stranger.sweeper.sweep()
            assert stranger.stats.leaked_topics == 0
            assert not [entry for entry in logs if entry.get("directory", "").startswith("tiered/cluste/")]
            await asyncio.sleep(12 * HOUR)
            assert await world.objects(broker) == {}

    simulate(story)
