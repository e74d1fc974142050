from uuid import UUID

import pytest

from broker.common.errors import InvalidTopicError
from broker.controller.topic_names import UnifiedNames, check_topic_name, unified_name
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.schemas.cluster_metadata import RemoveTopicRecord, TopicRecord


@pytest.mark.parametrize("name", ["a", "a" * 249, "A.b_c-9", "...", "__consumer_offsets"])
def test_legal_names(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a" * 250, "is longer than the max allowed length 249"),
        ("a b", "one or more characters other than ASCII alphanumerics"),
        ("ä", "one or more characters other than ASCII alphanumerics"),
        ("a\n", "one or more characters other than ASCII alphanumerics"),
    ],
)
def test_illegal_names(name: str, reason: str) -> None:
    with pytest.raises(InvalidTopicError, match="Topic name is invalid: ") as raised:
        check_topic_name(name)
    assert reason in str(raised.value)


def test_dots_and_underscores_collide() -> None:
    assert unified_name("a.b_c") == "a_b_c"
    names = UnifiedNames()
    first, second = UUID(int=11), UUID(int=12)
    delta = MetadataDelta(MetadataImage.EMPTY)
    delta.replay(TopicRecord(name="t_x", topic_id=first))
    delta.replay(TopicRecord(name="other", topic_id=second))
    names.update(delta.topics_delta)
    assert (names.find("t.x"), names.find("t_x"), names.find("tx")) == ("t_x", "t_x", None)
    image = delta.apply(1, 1)
    delta = MetadataDelta(image)
    delta.replay(RemoveTopicRecord(topic_id=first))
    names.update(delta.topics_delta)
    assert (names.find("t.x"), names.find("other")) == (None, "other")
    names.rebuild(image.topics)
    assert names.find("t.x") == "t_x"
