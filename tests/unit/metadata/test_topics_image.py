from uuid import UUID

from broker.common.identifiers import TopicPartition
from tests.unit.metadata.image_support import OTHER, TOPIC, full_image


def test_topics_are_found_by_name_and_by_id() -> None:
    topics = full_image().topics
    topic = topics.topic("t")
    assert topic is not None
    assert topic is topics.topic_by_id(TOPIC)
    assert topics.topic("x") is None
    assert topics.topic_by_id(UUID(int=1)) is None
    assert len(topics) == 2


def test_partitions_are_found_and_listed() -> None:
    topics = full_image().topics
    assert topics.partition(TopicPartition("t", 1)) is topics.partition_by_id(TOPIC, 1)
    assert topics.partition(TopicPartition("t", 9)) is None
    assert topics.partition(TopicPartition("x", 0)) is None
    assert topics.partition_by_id(UUID(int=1), 0) is None
    assert [(key.topic_id, key.topic, key.partition) for key, _ in topics.partitions()] == [
        (TOPIC, "t", 0),
        (TOPIC, "t", 1),
        (OTHER, "u", 0),
    ]
