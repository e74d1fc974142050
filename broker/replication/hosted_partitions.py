"""The partitions whose replicas are on this broker, as the metadata places them (Kafka's HostedPartition)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from uuid import UUID

import structlog

from broker.common.errors import (
    ErrorCode,
    InconsistentTopicIdError,
    KafkaError,
    NotLeaderOrFollowerError,
    StorageFailure,
    UnknownTopicOrPartitionError,
)
from broker.common.identifiers import TopicIdPartition, TopicPartition
from broker.log.log_manager import LogManager
from broker.log.unified_log import UnifiedLog
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.partition_registration import NO_LEADER, PartitionRegistration
from broker.replication.fetch_params import NO_LEADER_HINT, LeaderHint
from broker.replication.follower_fetchers import FollowerFetchers
from broker.replication.partition import Partition
from broker.replication.partition_context import PartitionContext
from broker.replication.topic_stats import BrokerTopicStats

log = structlog.get_logger(__name__)


class HostedPartitions:
    """Finds a partition, or says why it is not to be found; becomes leader or follower as the metadata says.

    `before_stop` is called with a partition that is about to be dropped, while it can still be written.
    """

    def __init__(
        self,
        *,
        local_broker_id: int,
        log_manager: LogManager,
        metadata_cache: MetadataCache,
        topic_stats: BrokerTopicStats,
        before_stop: Callable[[Partition], object],
        fetchers: FollowerFetchers,
    ) -> None:
        self._local_broker_id = local_broker_id
        self._log_manager = log_manager
        self._metadata_cache = metadata_cache
        self._topic_stats = topic_stats
        self._before_stop = before_stop
        self._fetchers = fetchers
        self._partitions: dict[TopicPartition, Partition] = {}
        self._offline: dict[TopicPartition, None] = {}
        self.get = self._partitions.get  # offline ones among them; what the hot paths ask

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def partition(self, topic_partition: TopicPartition) -> Partition:
        """The partition that is here and has its log.  KafkaError: 56 offline, 6 elsewhere, 3 unknown."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            if self.lookup_error(topic_partition) is ErrorCode.not_leader_or_follower:
                raise NotLeaderOrFollowerError(f"{topic_partition} is not hosted by this broker")
            raise UnknownTopicOrPartitionError(f"{topic_partition} does not exist")
        if partition.is_offline:
            raise StorageFailure(f"{topic_partition} is in an offline log directory")
        return partition

    def lookup_error(self, topic_partition: TopicPartition) -> ErrorCode:
        """What to answer about a partition that is not usable here; `none` for one that is."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            return ErrorCode.kafka_storage_error if partition.is_offline else ErrorCode.none
        if self._metadata_cache.image.topics.partition(topic_partition) is not None:
            return ErrorCode.not_leader_or_follower
        return ErrorCode.unknown_topic_or_partition

    def leader_hint(self, topic_partition: TopicPartition) -> LeaderHint:
        """Who leads, for a client that asked the wrong broker (KIP-951)."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            return LeaderHint(partition.leader_id, partition.leader_epoch)
        registration = self._metadata_cache.image.topics.partition(topic_partition)
        if registration is not None:
            return LeaderHint(registration.leader, registration.leader_epoch)
        return NO_LEADER_HINT

    # Metadata

    def apply(self, delta: MetadataDelta, image: MetadataImage, context: PartitionContext) -> None:
        """Become leader or follower, and drop what has left, as a delta says.  The image is already published.

        Deletes come first: a topic of the same name may be created again in the same delta.  A partition leaves its
        fetcher before it leads, and meets the next one when it has become a follower (applyDelta in Kafka).
        """
        changes = delta.topics_delta.local_changes(self._local_broker_id)
        self._fetchers.leave(each.topic_partition for each in changes.deletes)
        for deleted in changes.deletes:
            try:
                self._delete(deleted)
            except Exception:
                log.exception("partition_not_deleted", partition=str(deleted.topic_partition))
        self._forget_stats(changes.deletes)
        self._fetchers.leave(each.topic_partition for each in changes.leaders)
        for topic_id_partition, registration in changes.leaders.items():
            self._apply(topic_id_partition, registration, Partition.make_leader, context)
        self._follow(changes.followers, image, context)
        if delta.changed_brokers:
            self._fetchers.on_brokers_changed(delta.changed_brokers)
        self._fetchers.settle()

    def _follow(
        self,
        followers: Mapping[TopicIdPartition, PartitionRegistration],
        image: MetadataImage,
        context: PartitionContext,
    ) -> None:
        ours = image.brokers.get(self._local_broker_id)
        is_leaving = ours is not None and ours.in_controlled_shutdown
        to_leave, to_follow = [], []
        for topic_id_partition, registration in followers.items():
            is_new_epoch = self._apply(topic_id_partition, registration, Partition.make_follower, context)
            partition = self._partitions.get(topic_id_partition.topic_partition)
            if partition is None:
                continue  # it could not be made
            is_unwanted = registration.leader == NO_LEADER or self._local_broker_id not in registration.isr
            if partition.is_offline or (is_leaving and is_unwanted):
                to_leave.append(topic_id_partition.topic_partition)
            elif is_new_epoch:
                to_follow.append(partition)
        self._fetchers.leave(to_leave)
        self._fetchers.follow(to_follow)

    def _apply(
        self,
        topic_id_partition: TopicIdPartition,
        registration: PartitionRegistration,
        become: Callable[[Partition, PartitionRegistration], bool],
        context: PartitionContext,
    ) -> bool:
        """Whether it is to be followed from now on, for `Partition.make_follower`.  Whatever goes wrong, the other
        partitions of the change become what they are to be: nobody would tell them again."""
        topic_partition = topic_id_partition.topic_partition
        try:
            partition = self._get_or_create(topic_id_partition, context)
            was_offline = partition.is_offline
            return become(partition, registration) or was_offline
        except KafkaError as error:
            log.error("partition_offline", partition=str(topic_partition), error=str(error))
        except Exception:
            log.exception("partition_offline", partition=str(topic_partition))
        self._set_offline(topic_partition)
        return False

    def _set_offline(self, topic_partition: TopicPartition) -> None:
        """Out of service until `reopen_offline` succeeds."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            return
        self._offline[topic_partition] = None
        try:
            partition.stop(ErrorCode.kafka_storage_error, is_deleted=False)
        except Exception:
            log.exception("partition_not_stopped", partition=str(topic_partition))

    def reopen_offline(self, image: MetadataImage, context: PartitionContext) -> None:
        """Try again to open what the disk refused, as `image` places it; its first refusal ends the round.

        Kafka gives a failed directory up until the next start.  With one directory per broker a full disk is the
        usual reason, and it ends when somebody frees space.
        """
        for topic_partition in list(self._offline):
            partition = self._partitions.get(topic_partition)
            registration = image.topics.partition(topic_partition)
            if partition is None or registration is None or not partition.is_offline:
                del self._offline[topic_partition]
                continue
            is_leader = registration.leader == self._local_broker_id
            become = Partition.make_leader if is_leader else Partition.make_follower
            try:
                become(partition, registration)
            except KafkaError as error:
                log.debug("partition_still_offline", partition=str(topic_partition), error=str(error))
                self._set_offline(topic_partition)
                return
            except Exception as error:
                log.debug("partition_still_offline", partition=str(topic_partition), error=repr(error))
                self._set_offline(topic_partition)
                continue
            del self._offline[topic_partition]
            if not is_leader:
                self._fetchers.follow((partition,))
            log.info("partition_online", partition=str(topic_partition))

    def _get_or_create(self, topic_id_partition: TopicIdPartition, context: PartitionContext) -> Partition:
        topic_partition = topic_id_partition.topic_partition
        partition = self._partitions.get(topic_partition)
        if partition is not None and partition.topic_id == topic_id_partition.topic_id:
            return partition
        assert partition is None or partition.is_offline, (
            f"{topic_partition} is hosted with id {partition.topic_id} and placed with {topic_id_partition.topic_id}"
        )
        partition = Partition(
            topic_partition,
            topic_id_partition.topic_id,
            context,
            self._topic_stats.of(topic_partition.topic),
        )
        self._partitions[topic_partition] = partition
        return partition

    def _delete(self, deleted: TopicIdPartition) -> None:
        topic_partition = deleted.topic_partition
        partition = self._partitions.get(topic_partition)
        if partition is None or partition.topic_id != deleted.topic_id:
            return
        self._before_stop(partition)
        del self._partitions[topic_partition]
        had_log = partition.local_log is not None
        partition.stop(self.lookup_error(topic_partition), is_deleted=True)
        if had_log:
            try:
                self._log_manager.mark_for_deletion(topic_partition)
            except StorageFailure as error:  # it is stray now, and goes at the next start
                log.error("log_not_deleted", partition=str(topic_partition), error=str(error))

    def create_log(self, topic_partition: TopicPartition, topic_id: UUID) -> UnifiedLog:
        """The log of a partition of this incarnation of its topic.  StorageFailure."""
        try:
            return self._log_manager.get_or_create(topic_partition, topic_id)
        except InconsistentTopicIdError:  # the topic was deleted and made again while this broker was down
            self._log_manager.set_stray_aside(topic_partition)
            return self._log_manager.get_or_create(topic_partition, topic_id)

    def set_stray_logs_aside(self, image: MetadataImage) -> None:
        """Set the logs of partitions aside that the cluster no longer places here.

        To be called once at start, with the first image that is not behind what this broker had seen before
        (LogManager.isStrayReplica).
        """
        for local in list(self._log_manager.all()):
            topic_partition = local.topic_partition
            registration = image.topics.partition(topic_partition)
            topic = image.topics.topic(topic_partition.topic)
            if (
                registration is None
                or self._local_broker_id not in registration.replicas
                or (topic is not None and local.topic_id not in (None, topic.id))
            ):
                self._log_manager.set_stray_aside(topic_partition)

    def _forget_stats(self, deleted: Iterable[TopicIdPartition]) -> None:
        gone = {each.topic for each in deleted}
        if gone:
            gone -= {topic_partition.topic for topic_partition in self._partitions}
            for topic in gone:
                self._topic_stats.remove(topic)
