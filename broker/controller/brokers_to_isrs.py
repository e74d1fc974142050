"""BrokersToIsrs: which partitions a change of one broker touches (Kafka's class of the same name)."""

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from broker.metadata.partition_registration import NO_LEADER, PartitionRegistration
from broker.metadata.topics_delta import TopicsDelta
from broker.metadata.topics_image import TopicsImage


class PartitionKey(NamedTuple):
    topic_id: UUID
    partition: int


class BrokersToIsrs:
    """Partitions by the members of their ISR and ELR, by their leader, and those without one.

    An index over the image: it is derived from it and can be rebuilt from it at any time.
    """

    def __init__(self) -> None:
        self._in_isr: dict[int, dict[PartitionKey, None]] = {}
        self._in_elr: dict[int, dict[PartitionKey, None]] = {}
        self._led_by: dict[int, dict[PartitionKey, None]] = {}

    def rebuild(self, topics: TopicsImage) -> None:
        self._in_isr, self._in_elr, self._led_by = {}, {}, {}
        for key, partition in topics.partitions():
            self._add(PartitionKey(key.topic_id, key.partition), partition)

    def update(self, delta: TopicsDelta) -> None:
        for topic_id in delta.deleted_topics:
            for index, partition in delta.image.by_id[topic_id].partitions.items():
                self._remove(PartitionKey(topic_id, index), partition)
        for topic in delta.changed_topics.values():
            for index, partition in topic.partition_changes.items():
                key = PartitionKey(topic.id, index)
                before = topic.partition_before(index)
                if before is not None:
                    self._remove(key, before)
                self._add(key, partition)

    def partitions_with_broker_in_isr(self, broker_id: int) -> Iterator[PartitionKey]:
        """Partitions whose ISR or ELR holds the broker."""
        in_isr = self._in_isr.get(broker_id, {})
        yield from list(in_isr)
        yield from [key for key in self._in_elr.get(broker_id, {}) if key not in in_isr]

    def partitions_with_no_leader(self) -> Iterator[PartitionKey]:
        yield from list(self._led_by.get(NO_LEADER, {}))

    def partitions_led_by(self, broker_id: int) -> Iterator[PartitionKey]:
        yield from list(self._led_by.get(broker_id, {}))

    def has_leaderships(self, broker_id: int) -> bool:
        return bool(self._led_by.get(broker_id))

    def leaderless_count(self) -> int:
        return len(self._led_by.get(NO_LEADER, {}))

    def _add(self, key: PartitionKey, partition: PartitionRegistration) -> None:
        for broker_id in partition.isr:
            self._in_isr.setdefault(broker_id, {})[key] = None
        for broker_id in partition.eligible_leader_replicas:
            self._in_elr.setdefault(broker_id, {})[key] = None
        self._led_by.setdefault(partition.leader, {})[key] = None

    def _remove(self, key: PartitionKey, partition: PartitionRegistration) -> None:
        for broker_id in partition.isr:
            self._in_isr[broker_id].pop(key, None)
        for broker_id in partition.eligible_leader_replicas:
            self._in_elr[broker_id].pop(key, None)
        self._led_by[partition.leader].pop(key, None)
