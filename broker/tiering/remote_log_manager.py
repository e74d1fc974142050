"""RemoteLogManager: what this broker is to each partition whose log is tiered (Kafka's class of that name).

It follows the metadata: leaders copy and expire, followers learn what was copied, and remote data goes with its topic.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, Protocol

import structlog

from broker.common.chance import Chance
from broker.common.clock import Clock
from broker.common.errors import KafkaError
from broker.common.identifiers import NO_OFFSET, TopicIdPartition, TopicPartition
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.log.unified_log import UnifiedLog
from broker.metadata.configs_image import ConfigResourceType
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.replication.partition import Partition
from broker.tiering.copy_task import CopyTask
from broker.tiering.expiration_task import ExpirationTask
from broker.tiering.follower_task import FollowerTask
from broker.tiering.remote_log_metadata_manager import RemoteLogMetadataManager
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata
from broker.tiering.remote_log_start import RemoteLogStart
from broker.tiering.remote_log_stats import RemoteLogStats
from broker.tiering.remote_partition_remover import RemovalPurpose
from broker.tiering.remote_quota import RemoteQuota
from broker.tiering.remote_storage_manager import RemoteStorageManager
from broker.tiering.remote_task_context import RemoteTaskContext
from broker.tiering.remote_task_pool import RemoteTask, RemoteTaskPool
from broker.tiering.tiered_partition import TieredPartition

log = structlog.get_logger(__name__)

SETTLE_SECONDS: Final = 1.0  # disks come back without the metadata telling


class PartitionRemover(Protocol):
    """Who deletes all of a partition (`RemotePartitionRemover`)."""

    def remove(
        self, partition: TopicIdPartition, purpose: RemovalPurpose, *, from_offset: int = 0
    ) -> "asyncio.Future[None]":
        """Begin; the future is done, or cancelled, when it has ended."""

    def stop(self, partition: TopicIdPartition) -> None:
        """Leave what is not deleted yet."""


class _Hosted:
    """A tiered replica here, and its tasks."""

    def __init__(self, partition: TopicIdPartition, replica: Partition, context: RemoteTaskContext) -> None:
        self.replica = replica
        self.tiered = TieredPartition(partition, replica)
        self.log_start = RemoteLogStart(self.tiered, context)
        self.is_leader: bool | None = None  # None: neither, its log is not available
        self.leader_epoch = replica.leader_epoch
        self._context = context
        self.copy: CopyTask | None = None
        self._copying: RemoteTask | None = None
        self._others: list[RemoteTask] = []

    def start(self, *tasks: RemoteTask) -> None:
        self._others += tasks

    def start_copying(self, copy: CopyTask, task: RemoteTask) -> None:
        self.copy, self._copying = copy, task

    def stop_copying(self) -> None:
        if self._copying is not None:
            self._copying.cancel()
        self.copy = self._copying = None

    def stop(self) -> None:
        self.stop_copying()
        self.log_start = RemoteLogStart(self.tiered, self._context)
        for task in self._others:
            task.cancel()
        self._others = []


class RemoteLogManager:
    """One per broker; `running` owns its tasks.  `hosted` finds the replica here of a partition."""

    def __init__(
        self,
        *,
        local_broker_id: int,
        config: ConfigHolder[BrokerConfig],
        hosted: Callable[[TopicPartition], Partition | None],
        metadata: RemoteLogMetadataManager,
        storage: RemoteStorageManager,
        remover: PartitionRemover,
        copy_quota: RemoteQuota,
        stats: RemoteLogStats,
        clock: Clock,
        chance: Chance,
    ) -> None:
        self._local_broker_id = local_broker_id
        self._config = config
        self._find_replica = hosted
        self._metadata = metadata
        self._remover = remover
        self._stats = stats
        self._context = RemoteTaskContext(local_broker_id, config, metadata, storage, copy_quota, stats, clock, chance)
        self._hosted: dict[TopicIdPartition, _Hosted] = {}
        self._unsettled: dict[TopicIdPartition, None] = {}  # not yet what they are to be
        self._removals: dict[TopicIdPartition, asyncio.Future[None]] = {}
        self._ended: dict[TopicIdPartition, RemovalPurpose] = {}  # tiered no more: what was begun last
        metadata.watch_losses(self._on_lost)
        self._tasks = BackgroundTasks("remote-log")
        self._copiers = self._pool(
            "remote-log-copier",
            lambda config: config.remote_log_manager_copier_thread_pool_size_effective,
            self._show_busy,
        )
        self._expirers = self._pool(
            "remote-log-expiration", lambda config: config.remote_log_manager_expiration_thread_pool_size_effective
        )
        self._followers = self._pool("remote-log-follower", lambda config: config.remote_log_manager_thread_pool_size)

    def _pool(
        self, name: str, size: Callable[[BrokerConfig], int], on_busy: Callable[[int], None] = lambda busy: None
    ) -> RemoteTaskPool:
        return RemoteTaskPool(
            name,
            lambda: size(self._config.current),
            lambda: self._config.current.remote_log_manager_task_interval_ms,
            on_busy,
        )

    def _show_busy(self, busy: int) -> None:
        self._stats.copy_tasks_busy = busy

    @asynccontextmanager
    async def running(self) -> AsyncIterator["RemoteLogManager"]:
        """Tasks run within this; at its end they are given up, and a later process takes up what they have left."""
        self._stats.copy_tasks_max = self._config.current.remote_log_manager_copier_thread_pool_size_effective
        async with AsyncExitStack() as stack:
            for pool in (self._copiers, self._expirers, self._followers):
                await stack.enter_async_context(pool.running())
            await stack.enter_async_context(self._tasks)
            self._tasks.start("settle", self._settle_regularly())
            yield self

    def highest_remote_offset(self, partition: TopicIdPartition) -> int:
        """The last offset, inclusive, up to which a partition here is known to be in remote storage; NO_OFFSET."""
        hosted = self._hosted.get(partition)
        local = None if hosted is None else hosted.replica.local_log
        return NO_OFFSET if local is None else local.highest_remote_offset

    def _on_lost(self, partition: TopicIdPartition, segment: RemoteLogSegmentMetadata | None) -> None:
        """See `OnLost`."""
        hosted = self._hosted.get(partition)
        if hosted is not None:
            hosted.tiered.lose(segment)

    # What the cluster says

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """After the replicas have become what the metadata says, and their logs have their settings."""
        changes = delta.topics_delta.local_changes(self._local_broker_id)
        for gone in changes.deletes:
            self._leave(gone, is_deleted=image.topics.topic_by_id(gone.topic_id) is None)
        if changes.deletes:
            self._forget_topics(changes.deletes)
        self._place_all({**changes.leaders, **changes.followers, **dict.fromkeys(self._reconfigured(delta, image))})

    def _reconfigured(self, delta: MetadataDelta, image: MetadataImage) -> Iterable[TopicIdPartition]:
        """Topics may be tiered, or not any more, while they are in use."""
        for resource in delta.changed_configs:
            topic = image.topics.topic(resource.name) if resource.type is ConfigResourceType.TOPIC else None
            for index, registration in (topic.partitions if topic is not None else {}).items():
                if topic is not None and self._local_broker_id in registration.replicas:
                    yield TopicIdPartition(topic.id, topic.name, index)

    def _place_all(self, partitions: Iterable[TopicIdPartition]) -> None:
        leaders: list[TopicIdPartition] = []
        followers: list[TopicIdPartition] = []
        begun: list[_Hosted] = []
        for partition in partitions:
            hosted = self._place(partition)
            if hosted is not None:
                (leaders if hosted.is_leader else followers).append(partition)
                begun.append(hosted)
        if begun:
            self._metadata.on_partition_leadership_changes(leaders, followers)
        for hosted in begun:
            self._begin(hosted)

    def _place(self, partition: TopicIdPartition) -> _Hosted | None:
        """Look what the replica here is now.  The one whose tasks are to begin, after the metadata manager was told."""
        replica = self._find_replica(partition.topic_partition)
        self._unsettled.pop(partition, None)
        if replica is None or replica.topic_id != partition.topic_id:
            return None
        local, hosted = replica.local_log, self._hosted.get(partition)
        if local is None:
            self._unsettled[partition] = None
            self._stop_removing(partition)
            if hosted is not None:
                self._halt(hosted)
            return None
        if not local.is_tiered:
            self._place_untiered(partition, replica, local)
            return None
        if not self._has_settled(partition, replica, local):
            return None
        if hosted is None:
            hosted = self._hosted[partition] = _Hosted(partition, replica, self._context)
        if hosted.is_leader is replica.is_leader:
            self._go_on(hosted, local)
            return None
        if hosted.is_leader is None:
            hosted.tiered.lose(None)  # nobody has told its log of losses meanwhile
        self._halt(hosted)
        hosted.is_leader = replica.is_leader
        return hosted

    def _has_settled(self, partition: TopicIdPartition, replica: Partition, local: UnifiedLog) -> bool:
        """Whether no event of when it was not tiered may be on its way, of this broker or of one that led it then.

        A segment that seems to be there would be taken for copied, its records deleted from this disk, and then the
        event deletes it.  So whoever leads tells it of all segments whose records are on its disk, and copies those
        again; until that is known nobody deletes them.
        """
        if partition not in self._removals:
            self._ended.pop(partition, None)
            return True
        self._unsettled[partition] = None
        purpose = RemovalPurpose.TIERED_AGAIN if replica.is_leader else RemovalPurpose.FOLLOWED_AGAIN
        self._begin_removal(partition, purpose, local)
        return False

    # Tasks

    def _begin(self, hosted: _Hosted) -> None:
        name = hosted.tiered.name
        if not hosted.is_leader:
            hosted.start(self._followers.add(f"follow {name}", FollowerTask(hosted.tiered, self._context).run))
            return
        hosted.leader_epoch = hosted.replica.leader_epoch
        expiration = ExpirationTask(hosted.tiered, self._context, hosted.log_start)
        hosted.start(self._expirers.add(f"expire {name}", expiration.run))
        if hosted.replica.local_log is not None:
            self._go_on(hosted, hosted.replica.local_log)

    def _go_on(self, hosted: _Hosted, local: UnifiedLog) -> None:
        """Its role is the same; copies may have been switched on or off (remote.log.copy.disable)."""
        if not hosted.is_leader:
            return
        if hosted.leader_epoch != hosted.replica.leader_epoch:
            hosted.leader_epoch = hosted.replica.leader_epoch
            if hosted.copy is not None and hosted.copy.has_given_up:
                hosted.stop_copying()
        if local.config.remote_log_copy_disable:
            hosted.stop_copying()
            gauges = self._stats.partition(hosted.tiered.partition.topic_partition)
            gauges.copy_lag_bytes = gauges.copy_lag_segments = 0
        elif hosted.copy is None:
            copy = CopyTask(hosted.tiered, self._context, hosted.log_start)
            hosted.start_copying(copy, self._copiers.add(f"copy {hosted.tiered.name}", copy.run))

    def _halt(self, hosted: _Hosted) -> None:
        """Neither leader nor follower for the time being."""
        hosted.stop()
        hosted.is_leader = None
        self._stats.forget_partition(hosted.tiered.partition.topic_partition)

    # What is tiered no more

    def _leave(self, partition: TopicIdPartition, *, is_deleted: bool) -> None:
        """The replica is gone from here.  Remote data goes with the topic; elsewhere others go on with it."""
        self._unsettled.pop(partition, None)
        ended = self._ended.pop(partition, None)
        was_leader = partition in self._removals and ended is not None and ended.leads
        hosted = self._hosted.pop(partition, None)
        if hosted is not None:
            was_leader = bool(hosted.is_leader)
            self._halt(hosted)
        if is_deleted and was_leader:
            self._remove(partition, RemovalPurpose.TOPIC_DELETED)
        else:
            self._stop_removing(partition)
            self._metadata.on_stop_partitions([partition])

    def _place_untiered(self, partition: TopicIdPartition, replica: Partition, local: UnifiedLog) -> None:
        """remote.storage.enable is false: what is on the local disk is all there is (KIP-950).

        Each new leader sees to that, for the one before it may not have lived to end it: the log would begin with what
        nobody can read, and what is remote would stay for ever.  Followers look whether it has come about, for the
        topic may be tiered again (`_has_settled`).
        """
        hosted, config = self._hosted.get(partition), local.config
        if hosted is not None:
            self._halt(hosted)
        if config.remote_storage_enable or not config.remote_log_delete_on_disable:
            self._stop_removing(partition)
            if self._hosted.pop(partition, None) is not None:
                self._metadata.on_stop_partitions([partition])
            return
        leads = replica.is_leader and self._begin_with_disk(partition, replica, local)
        self._hosted.pop(partition, None)
        purpose = RemovalPurpose.TIERED_NO_MORE if leads else RemovalPurpose.FOLLOWED_NO_MORE
        self._begin_removal(partition, purpose, local)

    def _begin_with_disk(self, partition: TopicIdPartition, replica: Partition, local: UnifiedLog) -> bool:
        """Move the log start of a log led here to its local part; False when that cannot be yet, and is tried again."""
        try:
            replica.increment_log_start(local.local_log_start_offset, "tiering was disabled")
        except KafkaError as error:
            log.warning("log_start_not_moved", partition=str(partition.topic_partition), error=str(error))
            self._unsettled[partition] = None  # remote data stays until nobody is told to read it
            return False
        return True

    def _begin_removal(self, partition: TopicIdPartition, purpose: RemovalPurpose, local: UnifiedLog) -> None:
        """Unless it is what was begun last.

        Segments that begin below a log's local part may hold records that are nowhere else.
        """
        if self._ended.get(partition) is purpose:
            return
        self._ended[partition] = purpose
        leaders, followers = ([partition], []) if purpose.leads else ([], [partition])
        self._metadata.on_partition_leadership_changes(leaders, followers)
        is_all_on_disk = local.log_start_offset == local.local_log_start_offset
        self._remove(partition, purpose, from_offset=0 if is_all_on_disk else local.local_log_start_offset)

    def _remove(self, partition: TopicIdPartition, purpose: RemovalPurpose, *, from_offset: int = 0) -> None:
        """The metadata manager needs to know of it until that has ended."""
        removal = self._removals[partition] = self._remover.remove(partition, purpose, from_offset=from_offset)
        removal.add_done_callback(functools.partial(self._removed, partition))

    def _removed(self, partition: TopicIdPartition, removal: "asyncio.Future[None]") -> None:
        if self._removals.get(partition) is not removal:
            return
        del self._removals[partition]
        if partition in self._unsettled:
            self._place_all([partition])  # it is tiered again, and has waited for this
        else:
            self._metadata.on_stop_partitions([partition])

    def _stop_removing(self, partition: TopicIdPartition) -> None:
        """Another broker does that, or it is not to be done any more."""
        self._ended.pop(partition, None)
        if self._removals.pop(partition, None) is not None:
            self._remover.stop(partition)
            self._metadata.on_stop_partitions([partition])

    def _forget_topics(self, gone: Iterable[TopicIdPartition]) -> None:
        for topic in {partition.topic for partition in gone} - {partition.topic for partition in self._hosted}:
            self._stats.forget_topic(topic)

    # Regularly

    async def _settle_regularly(self) -> None:
        while True:
            await asyncio.sleep(SETTLE_SECONDS)
            self._place_all(list(self._unsettled))
