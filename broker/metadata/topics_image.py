"""TopicsImage: every topic, by name and by id."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from broker.common.identifiers import TopicIdPartition, TopicPartition
from broker.metadata.partition_registration import PartitionRegistration


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One incarnation of a topic: deleted and created again, it has another id."""

    name: str
    id: UUID
    partitions: Mapping[int, PartitionRegistration] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicsImage:
    """The same topics in two mappings.  Neither may be changed by whoever reads them."""

    EMPTY: ClassVar["TopicsImage"]

    by_id: Mapping[UUID, TopicImage] = field(default_factory=dict)
    by_name: Mapping[str, TopicImage] = field(default_factory=dict)

    def topic(self, name: str) -> TopicImage | None:
        return self.by_name.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        return self.by_id.get(topic_id)

    def partition(self, topic_partition: TopicPartition) -> PartitionRegistration | None:
        topic = self.by_name.get(topic_partition.topic)
        return topic.partitions.get(topic_partition.partition) if topic else None

    def partition_by_id(self, topic_id: UUID, partition: int) -> PartitionRegistration | None:
        topic = self.by_id.get(topic_id)
        return topic.partitions.get(partition) if topic else None

    def partitions(self) -> Iterator[tuple[TopicIdPartition, PartitionRegistration]]:
        """Every partition of every topic, in the order of their creation."""
        for topic in self.by_id.values():
            for index, partition in topic.partitions.items():
                yield TopicIdPartition(topic.id, topic.name, index), partition

    def __len__(self) -> int:
        return len(self.by_id)


TopicsImage.EMPTY = TopicsImage()
