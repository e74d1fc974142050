from uuid import UUID

import pytest

from broker.common.identifiers import TopicIdPartition
from broker.metadata.metadata_fault import MetadataFault
from broker.metadata.topics_delta import TopicsDelta
from broker.schemas.cluster_metadata import ClearElrRecord, MetadataRecord, RemoveTopicRecord
from tests.unit.metadata.image_support import (
    OTHER,
    TOPIC,
    change_record,
    delta_of,
    full_image,
    image_of,
    partition_record,
    topic_record,
)

AGAIN = UUID(int=0xC0C0)


def local_names(keys: object) -> list[tuple[str, int]]:
    return [(key.topic, key.partition) for key in keys]  # type: ignore[attr-defined]


def test_only_changed_topics_are_copied() -> None:
    image = full_image()
    after = delta_of(image, change_record(0, isr=(1,))).apply(101, 1)
    assert after.topics.by_name["u"] is image.topics.by_name["u"]
    assert after.topics.by_name["t"].partitions[1] is image.topics.by_name["t"].partitions[1]
    assert after.topics.by_name["t"].partitions[0].isr == (1,)
    assert image.topics.by_name["t"].partitions[0].isr == (1, 2)


def test_nothing_changed_is_the_same_image() -> None:
    image = full_image()
    assert delta_of(image).apply(101, 1).topics is image.topics


def test_40_deleted_and_created_again_in_one_delta() -> None:
    delta = delta_of(
        full_image(), RemoveTopicRecord(topic_id=TOPIC), topic_record("t", AGAIN), partition_record(0, (1,), AGAIN)
    )
    topics = delta.topics_delta
    assert topics.deleted_topics == {TOPIC: "t"}
    assert list(topics.changed_topics) == [AGAIN]
    image = delta.apply(101, 1)
    assert image.topics.by_name["t"].id == AGAIN
    assert TOPIC not in image.topics.by_id
    changes = topics.local_changes(1)
    assert list(changes.deletes) == [TopicIdPartition(TOPIC, "t", 0), TopicIdPartition(TOPIC, "t", 1)]
    assert list(changes.leaders) == [TopicIdPartition(AGAIN, "t", 0)]


def test_a_topic_that_came_and_went_leaves_no_trace() -> None:
    delta = delta_of(full_image(), topic_record("x", AGAIN), RemoveTopicRecord(topic_id=AGAIN))
    assert delta.topics_delta.is_empty


def test_local_changes_tell_leaders_followers_and_elections() -> None:
    delta = delta_of(
        full_image(),
        change_record(0, isr=(1,)),  # broker 1 leads on in the same epoch
        change_record(1, leader=1),  # broker 1 is elected
        change_record(0, OTHER, replicas=(2,), isr=(2,), leader=2),  # broker 1 loses its replica
    )
    changes = delta.topics_delta.local_changes(1)
    assert local_names(changes.leaders) == [("t", 0), ("t", 1)]
    assert local_names(changes.elected_leaders) == [("t", 1)]
    assert local_names(changes.deletes) == [("u", 0)]
    assert local_names(changes.followers) == []
    assert local_names(delta.topics_delta.local_changes(2).followers) == [("t", 0), ("t", 1)]
    assert local_names(delta.topics_delta.local_changes(2).elected_leaders) == [("u", 0)]


def test_cleared_elr_is_nothing_to_do_for_a_broker() -> None:
    delta = delta_of(full_image(), ClearElrRecord(topic_name=""))
    assert delta.apply(101, 1).topics.by_name["t"].partitions[1].eligible_leader_replicas == ()
    assert local_names(delta.topics_delta.local_changes(1).followers) == []


def test_cleared_elr_of_one_topic() -> None:
    elr = {"eligible_leader_replicas": (2,)}
    image = image_of(
        topic_record(), partition_record(**elr), topic_record("u", OTHER), partition_record(0, (1, 2), OTHER, **elr)
    )
    after = delta_of(image, ClearElrRecord(topic_name="u")).apply(101, 1)
    assert after.topics.by_name["t"].partitions[0].eligible_leader_replicas == (2,)
    assert after.topics.by_name["u"].partitions[0].eligible_leader_replicas == ()


@pytest.mark.parametrize(
    "record",
    [
        topic_record("t", AGAIN),
        topic_record("x", TOPIC),
        partition_record(0, (1,), AGAIN),
        change_record(9, isr=(1,)),
        change_record(0, AGAIN, isr=(1,)),
        RemoveTopicRecord(topic_id=AGAIN),
    ],
)
def test_impossible_records_are_faults(record: MetadataRecord) -> None:
    with pytest.raises(MetadataFault):
        delta_of(full_image(), record)


def test_a_deleted_topic_cannot_change() -> None:
    with pytest.raises(MetadataFault):
        delta_of(full_image(), RemoveTopicRecord(topic_id=TOPIC), change_record(0, isr=(1,)))


def test_between_two_images() -> None:
    old = full_image()
    new = delta_of(
        old,
        change_record(0, isr=(1,)),
        RemoveTopicRecord(topic_id=OTHER),
        topic_record("x", AGAIN),
        partition_record(0, (1,), AGAIN),
    ).apply(101, 1)
    delta = TopicsDelta.between(old.topics, new.topics)
    assert delta.deleted_topics == {OTHER: "u"}
    assert {each.name: list(each.partition_changes) for each in delta.changed_topics.values()} == {"t": [0], "x": [0]}
    assert delta.apply() == new.topics
    assert TopicsDelta.between(old.topics, old.topics).is_empty
