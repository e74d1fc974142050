from broker.controller.brokers_to_isrs import BrokersToIsrs, PartitionKey
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.schemas.cluster_metadata import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.unit.controller.controller_support import directory_of

TOPIC = directory_of(500)


def delta(image: MetadataImage, *records: object) -> MetadataDelta:
    changes = MetadataDelta(image)
    for record in records:
        changes.replay(record)  # type: ignore[arg-type]
    return changes


def two_partitions() -> MetadataDelta:
    def partition(index: int, replicas: tuple[int, ...]) -> PartitionRecord:
        return PartitionRecord(
            partition_id=index,
            topic_id=TOPIC,
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
        )

    return delta(MetadataImage.EMPTY, TopicRecord(name="t", topic_id=TOPIC), partition(0, (1, 2)), partition(1, (2, 3)))


def test_new_partitions_are_found_by_member_and_leader() -> None:
    index = BrokersToIsrs()
    index.update(two_partitions().topics_delta)
    assert list(index.partitions_with_broker_in_isr(2)) == [PartitionKey(TOPIC, 0), PartitionKey(TOPIC, 1)]
    assert list(index.partitions_led_by(1)) == [PartitionKey(TOPIC, 0)]
    assert index.has_leaderships(2)
    assert not index.has_leaderships(3)
    assert index.leaderless_count() == 0


def test_changes_and_deletions_move_partitions() -> None:
    index = BrokersToIsrs()
    first = two_partitions()
    index.update(first.topics_delta)
    image = first.apply(3, 1)
    changed = delta(
        image,
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(), leader=-1, eligible_leader_replicas=(1, 2)),
    )
    index.update(changed.topics_delta)
    assert list(index.partitions_with_no_leader()) == [PartitionKey(TOPIC, 0)]
    assert index.leaderless_count() == 1
    assert list(index.partitions_with_broker_in_isr(1)) == [PartitionKey(TOPIC, 0)]  # by its ELR
    index.update(delta(changed.apply(4, 1), RemoveTopicRecord(topic_id=TOPIC)).topics_delta)
    assert list(index.partitions_with_broker_in_isr(2)) == []
    assert list(index.partitions_with_no_leader()) == []


def test_rebuild_gives_the_same_as_updates() -> None:
    updated, rebuilt = BrokersToIsrs(), BrokersToIsrs()
    first = two_partitions()
    updated.update(first.topics_delta)
    rebuilt.rebuild(first.apply(3, 1).topics)
    for broker_id in (1, 2, 3):
        expected = list(updated.partitions_with_broker_in_isr(broker_id))
        assert list(rebuilt.partitions_with_broker_in_isr(broker_id)) == expected
        assert list(rebuilt.partitions_led_by(broker_id)) == list(updated.partitions_led_by(broker_id))
