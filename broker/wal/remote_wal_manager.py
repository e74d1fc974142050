"""RemoteWalManager: what this broker is to each partition that is replicated through a bucket (KIP-1176).

The counterpart of Kafka's RemoteLogManager for active segments: it follows the metadata, starts and ends what leaders
and followers do, and hands on what the metadata topic tells.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

import structlog

from broker.common.errors import KafkaError
from broker.common.identifiers import TopicIdPartition, TopicPartition
from broker.common.metadata_topic import MetadataRecord, MetadataTopic
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.metadata.configs_image import ConfigResourceType
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.replication.leader_wal import LeaderWal
from broker.replication.partition import Partition
from broker.schemas.remote_metadata_partitioner import combined_event_partition_of, metadata_partition_of
from broker.wal.announce.remote_wal_metadata_reader import RemoteWalMetadataReader
from broker.wal.follow.wal_interval_map import WalIntervalMap
from broker.wal.follow.wal_partitions import WalPartitions

log = structlog.get_logger(__name__)

SETTLE_SECONDS: Final = 1.0  # retention moves log starts, and disks come back, without the metadata telling


class Uploads(Protocol):
    """What of a led partition goes into the bucket (`Combiner`)."""

    def activate(self, partition: Partition) -> LeaderWal: ...
    def deactivate(self, partition: TopicIdPartition) -> None: ...


class Republishing(Protocol):
    """What a new leader uploads and voids because of what older leaders left behind (`Backfill`)."""

    def begin(self, partition: Partition, known: WalIntervalMap) -> None: ...
    def end(self, partition: TopicIdPartition) -> None: ...


class RemoteWalManager:
    """One per broker.  All of it is plain and in the loop; `running` owns the only task.

    `hosted` finds the replica here of a partition, `refollow` has followers look for their leader anew, `wake` tells
    who fetches from buckets that more is known of partitions.
    """

    def __init__(
        self,
        local_broker_id: int,
        *,
        hosted: Callable[[TopicPartition], Partition | None],
        partitions: WalPartitions,
        topic: MetadataTopic,
        reader: RemoteWalMetadataReader,
        uploads: Uploads,
        republishing: Republishing,
        refollow: Callable[[Iterable[Partition]], None],
        wake: Callable[[Iterable[TopicIdPartition]], None],
        config: ConfigHolder[BrokerConfig],
    ) -> None:
        self._local_broker_id = local_broker_id
        self._hosted = hosted
        self._partitions = partitions
        self._topic = topic
        self._reader = reader
        self._uploads = uploads
        self._republishing = republishing
        self._refollow = refollow
        self._wake = wake
        self._config = config
        self._led: dict[TopicIdPartition, int] = {}  # the leader epoch in which we upload
        self._broker_ids: frozenset[int] = frozenset()
        self._assigned: frozenset[int] = frozenset()
        self._partition_count: int | None = None
        self._is_assignment_due = False
        self._untold: set[TopicIdPartition] = set()  # what was announced of them before is to be told once more
        self._unsettled: set[TopicIdPartition] = set()  # and that was told
        self._offline: set[TopicIdPartition] = set()  # the metadata told of them while they had no log
        self._tasks = BackgroundTasks("remote-wal")

    @asynccontextmanager
    async def running(self) -> AsyncIterator["RemoteWalManager"]:
        """Looks each second at what nobody tells."""
        async with self._tasks:
            self._tasks.start("settle", self._settle_regularly())
            yield self

    # What the cluster says

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """After the replicas have become what the metadata says."""
        changes = delta.topics_delta.local_changes(self._local_broker_id)
        for deleted in changes.deletes:
            self._leave(deleted)
        placed = {**changes.leaders, **changes.followers}
        for partition in placed:
            self._place(partition, has_past=self._has_past(partition, delta))
        self._follow_settings(delta, image, placed.keys())
        if delta.changed_brokers or not self._broker_ids:
            self._broker_ids = frozenset(image.brokers)
            self._is_assignment_due = True
        self._follow_topic()

    def _has_past(self, partition: TopicIdPartition, delta: MetadataDelta) -> bool:
        """Whether something was announced of it that this broker has not read.  What the first metadata tells of was
        here in an earlier run, unless its log is empty: then it may have come here while the broker was down."""
        if self._broker_ids:
            return delta.image.topics.topic_by_id(partition.topic_id) is not None
        replica = self._replica(partition)
        return replica is not None and replica.log.log_end_offset == 0

    def _follow_settings(self, delta: MetadataDelta, image: MetadataImage, placed: Iterable[TopicIdPartition]) -> None:
        """Topics may be switched on and off while they are in use, by their own setting or the broker's list."""
        done = frozenset(placed)
        refollow = []
        for partition in self._reconfigured(delta, image):
            if partition in done:
                continue
            if self._is_offline(partition):
                self._offline.add(partition)
            replica = self._replica(partition)
            if replica is None or replica.is_through_bucket == (self._partitions.map_of(partition) is not None):
                continue
            self._place(partition, has_past=True)
            if not replica.is_leader:
                refollow.append(replica)
        self._refollow(refollow)

    def _reconfigured(self, delta: MetadataDelta, image: MetadataImage) -> Iterable[TopicIdPartition]:
        changed = delta.changed_configs
        if any(resource.type is ConfigResourceType.BROKER for resource in changed):
            topics = list(image.topics.by_id.values())
        else:
            names = (resource.name for resource in changed if resource.type is ConfigResourceType.TOPIC)
            topics = [topic for name in names if (topic := image.topics.topic(name)) is not None]
        for topic in topics:
            for index, registration in topic.partitions.items():
                if self._local_broker_id in registration.replicas:
                    yield TopicIdPartition(topic.id, topic.name, index)

    def _place(self, partition: TopicIdPartition, *, has_past: bool) -> None:
        """Become what the replica of the partition is now.  What is known of one without a log is kept, and taken note
        of: nobody tells when its log is opened again."""
        if self._is_offline(partition):
            self._stop_leading(partition)
            self._offline.add(partition)
            return
        self._offline.discard(partition)
        replica = self._replica(partition)
        if replica is None or not replica.is_through_bucket:
            self._leave(partition)
            return
        if self._partitions.host(partition):
            self._is_assignment_due = True
            if has_past:
                self._untold.add(partition)
        if replica.is_leader and replica.remote_replicas:
            self._lead(partition, replica)
        else:
            self._stop_leading(partition)

    def _replica(self, partition: TopicIdPartition) -> Partition | None:
        """None for one that is not here, or without a log."""
        replica = self._hosted(partition.topic_partition)
        if replica is None or replica.topic_id != partition.topic_id or replica.local_log is None:
            return None
        return replica

    def _is_offline(self, partition: TopicIdPartition) -> bool:
        replica = self._hosted(partition.topic_partition)
        return replica is not None and replica.topic_id == partition.topic_id and replica.local_log is None

    def _lead(self, partition: TopicIdPartition, replica: Partition) -> None:
        if self._led.get(partition) == replica.leader_epoch and replica.leader_wal is not None:
            return
        known = self._partitions.map_of(partition)
        assert known is not None, partition
        known.begin_epoch(replica.leader_epoch)
        known.log_moved(replica.log.log_end_offset, replica.log.high_watermark)
        replica.leader_wal = self._uploads.activate(replica)
        self._led[partition] = replica.leader_epoch
        self._republishing.begin(replica, known)

    def _stop_leading(self, partition: TopicIdPartition) -> None:
        if self._led.pop(partition, None) is None:
            return
        self._uploads.deactivate(partition)
        self._republishing.end(partition)
        replica = self._hosted(partition.topic_partition)
        if replica is not None and replica.topic_id == partition.topic_id:
            replica.leader_wal = None

    def _leave(self, partition: TopicIdPartition) -> None:
        self._stop_leading(partition)
        self._untold.discard(partition)
        self._unsettled.discard(partition)
        self._offline.discard(partition)
        if self._partitions.map_of(partition) is not None:
            self._partitions.drop(partition)
            self._is_assignment_due = True

    # What the metadata topic says

    def on_records(self, metadata_partition: int, records: Sequence[MetadataRecord]) -> None:
        """Events of one partition of the topic, in order."""
        changed = self._reader.read(metadata_partition, records, self._partitions)
        for partition in changed & self._led.keys():
            self._follow_own_log(partition)
        if changed:
            self._wake(changed)

    def _follow_own_log(self, partition: TopicIdPartition) -> None:
        """A leader needs no slice of its own, only to know that the bucket has it."""
        replica, known = self._replica(partition), self._partitions.map_of(partition)
        if replica is not None and known is not None:
            known.log_moved(replica.log.log_end_offset, replica.log.high_watermark)

    # What to read of it

    def _follow_topic(self) -> None:
        """Nothing is read before the metadata tells what is here: it would be told to nobody."""
        count = self._topic.partition_count
        if count is None or not self._broker_ids:
            return
        if self._is_assignment_due or count != self._partition_count:
            self._assign(count)
        if self._untold:
            self._read_again(count)

    def _assign(self, count: int) -> None:
        self._is_assignment_due = False
        self._partition_count = count
        wanted = {metadata_partition_of(each.topic_id, each.partition, count) for each, _ in self._partitions}
        # Always its own objects, which it must delete some day, whatever is replicated here now.
        wanted.add(combined_event_partition_of(self._local_broker_id, count))
        others = self._broker_ids - {self._local_broker_id} if len(self._partitions) else frozenset()
        plans = {combined_event_partition_of(broker_id, count) for broker_id in others}
        self._reader.begins((wanted | plans) - self._assigned)
        self._assigned = frozenset(wanted | plans)
        self._topic.assign(self._assigned, unhurried=wanted - plans)  # known here, or told of the object

    def _read_again(self, count: int) -> None:
        """After what tells of them was assigned: only what is assigned can be read again, and what has just been
        assigned would else begin where an earlier run was, which read nothing of them."""
        places = {metadata_partition_of(each.topic_id, each.partition, count) for each in self._untold}
        if not self._config.current.remote_wal_metadata_slice_events_enable:  # only leaders' objects tell of them
            places |= {combined_event_partition_of(broker_id, count) for broker_id in self._broker_ids}
        self._untold.clear()
        self._reader.begins(places)
        for place in sorted(places):
            self._topic.read_again(place)

    # Regularly

    async def _settle_regularly(self) -> None:
        while True:
            await asyncio.sleep(SETTLE_SECONDS)
            self.settle()

    def settle(self) -> None:
        """Take over what changes without the metadata: log starts, logs that are online again, maps that have to be
        read anew, and the topic's own coming into being."""
        for partition in [each for each in self._offline if not self._is_offline(each)]:
            self._place(partition, has_past=True)
        for partition, known in self._partitions:
            replica = self._replica(partition)
            if replica is None:
                continue
            if replica.is_leader and replica.leader_wal is None and replica.remote_replicas:
                self._place(partition, has_past=True)  # its disk is back
            try:
                self._settle_one(partition, replica, known)
            except KafkaError as error:
                say = log.debug if partition in self._unsettled else log.warning  # once until it succeeds
                say("wal_partition_not_settled", partition=str(partition.topic_partition), error=str(error))
                self._unsettled.add(partition)
            else:
                self._unsettled.discard(partition)
        self._follow_topic()

    def _settle_one(self, partition: TopicIdPartition, replica: Partition, known: WalIntervalMap) -> None:
        start_offset = replica.log.local_log_start_offset  # nobody needs from a bucket what is below
        if start_offset != known.log_start_offset:
            known.log_start_moved(start_offset)
            if replica.leader_wal is not None:
                replica.leader_wal.log_start_moved()
        if known.needs_reseek:
            known.reseek_began()
            self._untold.add(partition)
