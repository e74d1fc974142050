"""TopicsDelta: what became of topics and partitions since an image."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from broker.common.identifiers import TopicIdPartition
from broker.metadata.metadata_fault import MetadataFault
from broker.metadata.partition_registration import PartitionRegistration
from broker.metadata.topics_image import TopicImage, TopicsImage
from broker.schemas.cluster_metadata import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)


@dataclass(slots=True)
class TopicDelta:
    """One topic that is new (`before` is None) or has changed partitions."""

    name: str
    id: UUID
    before: TopicImage | None
    partition_changes: dict[int, PartitionRegistration] = field(default_factory=dict)

    def partition(self, index: int) -> PartitionRegistration | None:
        changed = self.partition_changes.get(index)
        return changed if changed is not None else self.partition_before(index)

    def partition_before(self, index: int) -> PartitionRegistration | None:
        return self.before.partitions.get(index) if self.before else None

    def apply(self) -> TopicImage:
        partitions = {**self.before.partitions, **self.partition_changes} if self.before else self.partition_changes
        return TopicImage(self.name, self.id, partitions)


@dataclass(frozen=True, slots=True)
class LocalReplicaChanges:
    """What one broker has to do (Kafka's LocalReplicaChanges): first the deletes, then leaders, then followers.

    `leaders` and `followers` hold every changed partition; `elected_leaders` those whose leader epoch rose.
    """

    deletes: dict[TopicIdPartition, None]
    leaders: dict[TopicIdPartition, PartitionRegistration]
    elected_leaders: dict[TopicIdPartition, PartitionRegistration]
    followers: dict[TopicIdPartition, PartitionRegistration]


class TopicsDelta:
    """`changed_topics` are new or changed, `deleted_topics` gives the names of those that went, by id.

    A name can be in both: deleted, and created again with another id.  Deletes come first.
    """

    def __init__(self, image: TopicsImage) -> None:
        self.image = image
        self.changed_topics: dict[UUID, TopicDelta] = {}
        self.deleted_topics: dict[UUID, str] = {}
        self._new_names: dict[str, UUID] = {}  # of topics that are not in the image

    @classmethod
    def between(cls, old: TopicsImage, new: TopicsImage) -> "TopicsDelta":
        delta = cls(old)
        for topic in old.by_id.values():
            if topic.id not in new.by_id:
                delta.deleted_topics[topic.id] = topic.name
        for topic in new.by_id.values():
            before = old.by_id.get(topic.id)
            changes = {
                index: partition
                for index, partition in topic.partitions.items()
                if before is None or before.partitions.get(index) != partition
            }
            if before is None or changes:
                delta.changed_topics[topic.id] = TopicDelta(topic.name, topic.id, before, changes)
        return delta

    @property
    def is_empty(self) -> bool:
        return not self.changed_topics and not self.deleted_topics

    def replay_topic(self, record: TopicRecord) -> None:
        if self._is_known(record.topic_id) or self._is_name_taken(record.name):
            raise MetadataFault(f"topic {record.name} ({record.topic_id}) is created twice")
        self.changed_topics[record.topic_id] = TopicDelta(record.name, record.topic_id, None)
        self._new_names[record.name] = record.topic_id

    def replay_partition(self, record: PartitionRecord) -> None:
        self._topic(record.topic_id).partition_changes[record.partition_id] = PartitionRegistration.from_record(record)

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        topic = self._topic(record.topic_id)
        partition = topic.partition(record.partition_id)
        if partition is None:
            raise MetadataFault(f"partition {topic.name}-{record.partition_id} changes before it exists")
        topic.partition_changes[record.partition_id] = partition.merge(record)

    def replay_remove_topic(self, record: RemoveTopicRecord) -> str:
        """Returns the name of the topic that went."""
        name = self._topic(record.topic_id).name
        self.changed_topics.pop(record.topic_id)
        if record.topic_id in self.image.by_id:
            self.deleted_topics[record.topic_id] = name
        else:
            del self._new_names[name]
        return name

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        """An empty name means every topic."""
        for topic_id, name in self._names().items():
            if record.topic_name not in ("", name):
                continue
            before = self.image.by_id.get(topic_id)
            known = {**(before.partitions if before else {})}
            if (delta := self.changed_topics.get(topic_id)) is not None:
                known |= delta.partition_changes
            for index, partition in known.items():
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    self._topic(topic_id).partition_changes[index] = partition.without_eligible_leader_replicas()

    def apply(self) -> TopicsImage:
        if self.is_empty:
            return self.image
        by_id, by_name = dict(self.image.by_id), dict(self.image.by_name)
        for topic_id, name in self.deleted_topics.items():
            del by_id[topic_id]
            del by_name[name]
        for topic_id, delta in self.changed_topics.items():
            by_id[topic_id] = by_name[delta.name] = delta.apply()
        return TopicsImage(by_id, by_name)

    def local_changes(self, broker_id: int) -> LocalReplicaChanges:
        """What the broker `broker_id` has to do about this delta."""
        changes = LocalReplicaChanges({}, {}, {}, {})
        for topic_id, name in self.deleted_topics.items():
            for index, partition in self.image.by_id[topic_id].partitions.items():
                if broker_id in partition.replicas:
                    changes.deletes[TopicIdPartition(topic_id, name, index)] = None
        for delta in self.changed_topics.values():
            _collect_local_changes(delta, broker_id, changes)
        return changes

    def _topic(self, topic_id: UUID) -> TopicDelta:
        delta = self.changed_topics.get(topic_id)
        if delta is None:
            before = self.image.by_id.get(topic_id)
            if before is None or topic_id in self.deleted_topics:
                raise MetadataFault(f"a record names the topic {topic_id}, which does not exist")
            delta = self.changed_topics[topic_id] = TopicDelta(before.name, topic_id, before)
        return delta

    def _is_known(self, topic_id: UUID) -> bool:
        return topic_id in self.changed_topics or topic_id in self.image.by_id

    def _is_name_taken(self, name: str) -> bool:
        existing = self.image.by_name.get(name)
        if existing is not None and existing.id not in self.deleted_topics:
            return True
        return name in self._new_names

    def _names(self) -> Mapping[UUID, str]:
        names = {topic.id: topic.name for topic in self.image.by_id.values() if topic.id not in self.deleted_topics}
        return names | {delta.id: delta.name for delta in self.changed_topics.values()}


def _collect_local_changes(delta: TopicDelta, broker_id: int, changes: LocalReplicaChanges) -> None:
    for index, partition in delta.partition_changes.items():
        before = delta.partition_before(index)
        key = TopicIdPartition(delta.id, delta.name, index)
        if broker_id not in partition.replicas:
            if before is not None and broker_id in before.replicas:
                changes.deletes[key] = None
        elif before is not None and before.partition_epoch == partition.partition_epoch:
            continue  # only its eligible leader replicas were cleared
        elif partition.leader == broker_id:
            changes.leaders[key] = partition
            if before is None or before.leader_epoch != partition.leader_epoch:
                changes.elected_leaders[key] = partition
        else:
            changes.followers[key] = partition
