"""A broker that tiers: real partitions and logs, a bucket in memory, metadata that is known at once, virtual time.

Everything the tasks wait for passes `Steps`, where it can be made to fail, to wait, or to be overtaken by events.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from broker.common.buffers import Buffer
from broker.common.chance import Chance
from broker.common.file_system import OsFileSystem
from broker.common.identifiers import TopicIdPartition, TopicPartition, uuid_to_text
from broker.log.file_records import read
from broker.log.unified_log import UnifiedLog
from broker.metadata.configs_image import ConfigResourceType
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.objectstore.failing_object_store import FailingObjectStore
from broker.records.record_batch import batches
from broker.replication.fetch_params import FetchPartition
from broker.replication.partition import Partition
from broker.schemas.cluster_metadata import ConfigRecord, MetadataRecord
from broker.schemas.remote_log_metadata import RemoteLogSegmentState
from broker.tiering.copy_task import CopyTask
from broker.tiering.expiration_task import ExpirationTask
from broker.tiering.follower_task import FollowerTask
from broker.tiering.local_tiered_storage import LocalTieredStorage
from broker.tiering.remote_log_manager import RemoteLogManager
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate
from broker.tiering.remote_log_start import RemoteLogStart
from broker.tiering.remote_log_stats import RemoteLogStats
from broker.tiering.remote_partition_remover import RemotePartitionRemover
from broker.tiering.remote_quota import RemoteQuota
from broker.tiering.remote_storage_manager import LogSegmentData
from broker.tiering.remote_task_context import RemoteTaskContext
from broker.tiering.tiered_partition import TieredPartition
from tests.support.builders import LOCAL_BROKER_ID, ReplicaWorld, batch, topic_uuid
from tests.support.sim_loop import SimClock, SimLoop, simulate

from .memory_remote_log_metadata_manager import MemoryRemoteLogMetadataManager
from .segment_world import DELETED, DELETING, FINISHED
from .storage_world import BUCKET, Bucket, RecordingStore, context

OTHER = LOCAL_BROKER_ID + 1
T0 = TopicIdPartition(topic_uuid("t"), "t", 0)
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "LocalTieredStorage",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "rsm.config.bucket": BUCKET,
    "remote.log.manager.task.interval.ms": "1000",
}
SEGMENT_BYTES = 150  # one batch of `TaskWorld.append`, and no other
DAY_MS = 86_400_000


class Steps:
    """`passed` are the names of what was waited for.  What was told for a name, or for a place among them, is done
    there, once."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.told: dict[str | int, Callable[[], object]] = {}

    def fail(self, name: str | int, error: Exception) -> None:
        def act() -> None:
            raise error

        self.told[name] = act

    async def at(self, name: str) -> None:
        place = len(self.passed)
        self.passed.append(name)
        await asyncio.sleep(0)
        act = self.told.pop(place, None) or self.told.pop(name, None)
        if act is not None:
            act()
            await asyncio.sleep(0)


class SteppedMetadata(MemoryRemoteLogMetadataManager):
    """`begun` are all segments that were ever told of."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self.begun: list[RemoteLogSegmentMetadata] = []
        self.states: list[RemoteLogSegmentState] = []
        self._steps = steps

    async def add_remote_log_segment_metadata(self, segment: RemoteLogSegmentMetadata) -> None:
        await self._steps.at("tell STARTED")
        self.begun.append(segment)
        self.states.append(segment.state)
        await super().add_remote_log_segment_metadata(segment)
        await self._steps.at("told STARTED")

    async def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        name = {FINISHED: "FINISHED", DELETING: "DELETING", DELETED: "DELETED"}[update.state]
        await self._steps.at(f"tell {name}")
        self.states.append(update.state)
        await super().update_remote_log_segment_metadata(update)
        await self._steps.at(f"told {name}")

    async def highest_offset_for_epoch(self, partition: TopicIdPartition, epoch: int) -> int | None:
        await self._steps.at("highest")
        return await super().highest_offset_for_epoch(partition, epoch)

    async def remote_log_segment_metadata(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        await self._steps.at("lookup")
        return await super().remote_log_segment_metadata(partition, epoch, offset)

    async def list_remote_log_segments(
        self, partition: TopicIdPartition, epoch: int | None = None
    ) -> Sequence[RemoteLogSegmentMetadata]:
        await self._steps.at("list" if epoch is None else "list epoch")
        return await super().list_remote_log_segments(partition, epoch)


class SteppedStore(RecordingStore):
    def __init__(self, steps: Steps) -> None:
        super().__init__(BUCKET)
        self._steps = steps

    async def put(self, key: str, body: Buffer) -> None:
        kind = key.rpartition(".")[2]
        await self._steps.at(f"put {kind}")
        await super().put(key, body)
        await self._steps.at(f"has put {kind}")

    async def delete_many(self, keys: Sequence[str]) -> None:
        await self._steps.at("delete")
        await super().delete_many(keys)


class SteppedBucket(Bucket):
    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self.inner = SteppedStore(steps)
        self.failing = FailingObjectStore(self.inner, Chance(1))


class Storage(LocalTieredStorage):
    """`custom_metadata` is what it has of each segment."""

    custom_metadata: bytes | None = None

    async def copy_log_segment_data(self, segment: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        await super().copy_log_segment_data(segment, data)
        return self.custom_metadata


class Remote:
    """What brokers share: the bucket, and what is known of it."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.metadata = SteppedMetadata(self.steps)
        self.bucket = SteppedBucket(self.steps)
        self.storage = Storage(context(self.bucket, OsFileSystem()))

    def segments(self, partition: TopicIdPartition = T0) -> list[RemoteLogSegmentMetadata]:
        known = self.metadata.store.list_remote_log_segments(partition)
        return sorted(known, key=lambda segment: (segment.start_offset, segment.end_offset))

    def ranges(
        self, state: RemoteLogSegmentState = FINISHED, partition: TopicIdPartition = T0
    ) -> list[tuple[int, int]]:
        """(first, last offset) of the segments in a state."""
        found = [segment for segment in self.segments(partition) if segment.state is state]
        return [(segment.start_offset, segment.end_offset) for segment in found]

    def objects_of(self, segment_id: UUID) -> dict[str, bytes]:
        """Content by the ends of their names."""
        mark = uuid_to_text(segment_id)
        return {key.rpartition(".")[2]: data for key, data in self.bucket.objects.items() if f"-{mark}." in key}


class TaskReplicas(ReplicaWorld):
    """Tells `on_metadata` after the replicas; the logs' settings follow the topics'."""

    def __init__(self, directory: Path, properties: Mapping[str, str], clock: SimClock, broker_id: int) -> None:
        super().__init__(directory, {**SETTINGS, **properties}, broker_id=broker_id)
        self.logs.environment.is_remote_storage_enabled = True
        self.logs.environment.clock = clock
        self.on_metadata: Callable[[MetadataDelta, MetadataImage], None] = lambda delta, image: None

    def replay(self, *records: MetadataRecord) -> None:
        delta = MetadataDelta(self.metadata.image)
        for record in records:
            delta.replay(record)
        self._offset += 1
        image = delta.apply(self._offset, 1)
        self.metadata.set_image(image)
        for local in self.logs.all():
            local.update_config(self.topic_config(local.topic_partition.topic))
        self.replicas.apply_metadata(delta, image)
        self.on_metadata(delta, image)


class _Answered:
    """Hears that a fetch which waits can be answered."""

    def __init__(self) -> None:
        self.requests: list[FetchPartition] = []

    def on_partition_changed(self, request: FetchPartition) -> None:
        self.requests.append(request)


def fetch_of_a_follower(world: "TaskWorld") -> list[FetchPartition]:
    """It waits at the log end; what is returned has it once for each time that there is something to tell."""
    answered = _Answered()
    request = FetchPartition("t", 0, world.log.log_end_offset, 1)
    world.replicas.partition().watch_fetch(request, answered, is_from_follower=True)
    return answered.requests


class TaskWorld:
    """One broker; `manager` hears of the metadata within `running`."""

    def __init__(
        self,
        directory: Path,
        loop: SimLoop,
        properties: Mapping[str, str] | None = None,
        *,
        broker_id: int = LOCAL_BROKER_ID,
        remote: Remote | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.clock = SimClock(loop)
        self.replicas = TaskReplicas(directory / f"broker-{broker_id}", properties or {}, self.clock, broker_id)
        self.replicas.register_brokers(LOCAL_BROKER_ID, OTHER, 3)
        self.remote = remote or Remote()
        self.steps, self.metadata = self.remote.steps, self.remote.metadata
        self.stats = RemoteLogStats()
        self.chance = Chance(broker_id)
        self.context = RemoteTaskContext(
            local_broker_id=broker_id,
            config=self.replicas.config,
            metadata=self.metadata,
            storage=self.remote.storage,
            copy_quota=RemoteQuota.for_copies(self.replicas.config, self.stats),
            stats=self.stats,
            clock=self.clock,
            chance=self.chance,
        )
        self.remover = RemotePartitionRemover(
            broker_id, self.metadata, self.remote.storage, _NoIndexes(), self.stats, self.clock, self.chance
        )
        self.manager = RemoteLogManager(
            local_broker_id=broker_id,
            config=self.replicas.config,
            hosted=self.replicas.replicas.hosted_partition,
            metadata=self.metadata,
            storage=self.remote.storage,
            remover=self.remover,
            copy_quota=self.context.copy_quota,
            stats=self.stats,
            clock=self.clock,
            chance=self.chance,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["TaskWorld"]:
        """The manager, and all it needs."""
        self.replicas.on_metadata = self.manager.on_metadata
        async with self.remover.running(), self.manager.running():
            yield self
        self.replicas.on_metadata = lambda delta, image: None

    # The topic

    def topic(
        self,
        name: str = "t",
        *,
        replicas: tuple[int, ...] = (),
        isr: tuple[int, ...] | None = None,
        leader: int = 0,
        leader_epoch: int = 0,
        partitions: int = 1,
        **configs: object,
    ) -> Partition:
        """Tiered and led here, with segments of one batch; settings' names have underscores for dots."""
        named = {"remote.storage.enable": "true", "internal.segment.bytes": str(SEGMENT_BYTES)}
        named |= {key.replace("_", "."): str(value) for key, value in configs.items()}
        self.replicas.create_topic(
            name,
            partitions=partitions,
            replicas=replicas or (self.broker_id,),
            isr=isr,
            leader=leader or self.broker_id,
            leader_epoch=leader_epoch,
            configs=named,
        )
        return self.replicas.partition(name)

    def configure(self, name: str = "t", **configs: object) -> None:
        """None takes a setting away."""
        self.replicas.replay(
            *(
                ConfigRecord(
                    resource_type=int(ConfigResourceType.TOPIC),
                    resource_name=name,
                    name=key.replace("_", "."),
                    value=None if value is None else str(value),
                )
                for key, value in configs.items()
            )
        )

    @property
    def log(self) -> UnifiedLog:
        return self.replicas.partition().log

    def append(self, count: int = 1, *, topic: str = "t", partition: int = 0, **keywords: Any) -> None:
        """So many batches of two records; a segment each."""
        for _ in range(count):
            timestamp = keywords.pop("timestamp", self.clock.now_ms())
            self.replicas.append(
                batch("first", "second", timestamp=timestamp, **keywords), topic=topic, partition=partition
            )

    def replicate(self, leader: "TaskWorld") -> None:
        """What the leader has more than we goes here, as a follower's fetches get it."""
        source, target = leader.log, self.log
        while target.log_end_offset < source.log_end_offset:
            answer = source.read(target.log_end_offset, 1 << 20, source.log_end_offset, min_one_batch=True)
            assert answer.file_slice is not None
            target.append_as_follower(bytes(read(answer.file_slice)), leader.replicas.partition().leader_epoch)
        target.update_high_watermark(source.high_watermark)

    # Tasks

    def expire_locally(self) -> None:
        """Local retention has nothing more to do after this; the device and the checkpoints have everything."""
        self.log.flush()
        while self.log.delete_old_segments():
            pass
        self.log.flush()

    def tiered(self, partition: TopicIdPartition = T0) -> TieredPartition:
        """As the manager's, when there is one."""
        replica = self.replicas.replicas.hosted_partition(TopicPartition(partition.topic, partition.partition))
        assert replica is not None
        self.metadata.on_partition_leadership_changes([partition], [])
        return TieredPartition(partition, replica)

    def copy_task(self, tiered: TieredPartition | None = None) -> CopyTask:
        tiered = tiered or self.tiered()
        return CopyTask(tiered, self.context, RemoteLogStart(tiered, self.context))

    def expiration_task(self, tiered: TieredPartition | None = None) -> ExpirationTask:
        tiered = tiered or self.tiered()
        return ExpirationTask(tiered, self.context, RemoteLogStart(tiered, self.context))

    def follower_task(self, tiered: TieredPartition | None = None) -> FollowerTask:
        return FollowerTask(tiered or self.tiered(), self.context)

    async def copy(self) -> None:
        """One run of a new task."""
        await self.copy_task().run()

    async def expire(self) -> None:
        await self.expiration_task().run()

    @property
    def counts(self) -> Any:
        return self.stats.topic("t")

    @property
    def gauges(self) -> Any:
        return self.stats.partition(T0.topic_partition)


class _NoIndexes:
    """Nothing is cached."""

    def remove(self, segment_ids: Iterable[UUID]) -> None:
        list(segment_ids)


def told(
    directory: Path,
    story: Callable[[TaskWorld], Coroutine[Any, Any, None]],
    properties: Mapping[str, str] | None = None,
) -> None:
    """Tell the story in virtual time; without the manager, unless the story runs it."""

    async def run(loop: SimLoop) -> None:
        world = TaskWorld(directory, loop, properties)
        async with world.remote.storage.running():
            await story(world)

    simulate(run)


def check_remote(world: TaskWorld) -> None:
    """What is readable is whole; every record is on the disk or readable; the log believes in no more than that."""
    lookup = world.metadata.store.remote_log_segment_metadata
    for segment in world.remote.segments():
        if segment.state is FINISHED:
            _check_whole(world, segment)
    reached = world.log.log_start_offset
    while reached < world.log.log_end_offset:
        epoch = world.log.leader_epochs.epoch_for_offset(reached)
        found = None if epoch is None else lookup(T0, epoch, reached)
        if found is None:
            break
        reached = found.next_offset
    assert world.log.local_log_start_offset <= max(reached, world.log.log_start_offset)
    assert world.log.highest_remote_offset < max(reached, world.log.log_start_offset)


def _check_whole(world: TaskWorld, segment: RemoteLogSegmentMetadata) -> None:
    objects = world.remote.objects_of(segment.segment_id)
    assert {"log", "index", "timeindex", "snapshot", "leader_epoch_checkpoint"} <= objects.keys()
    assert len(objects["log"]) == segment.segment_size_in_bytes
    assert segment.is_txn_index_empty or "txnindex" in objects
    found = list(batches(objects["log"]))
    assert (found[0].base_offset, found[-1].last_offset) == (segment.start_offset, segment.end_offset)
    for each in found:
        each.ensure_valid()
