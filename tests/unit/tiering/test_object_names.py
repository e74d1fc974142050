"""Names of objects: golden ones, there and back, and topics with awkward names."""

from dataclasses import replace
from uuid import UUID

import pytest

from broker.common.identifiers import TopicIdPartition
from broker.objectstore.object_keys import check_key
from broker.tiering.object_names import ObjectKind, ObjectNames, ParsedName

from .segment_world import segment

TOPIC_ID = UUID(bytes=bytes(range(16)))
ONE = segment(1, 42, 99, partition=TopicIdPartition(TOPIC_ID, "foo-1", 7))
NAMES = ObjectNames("c1")


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [
        (ObjectKind.LOG, ".log"),
        (ObjectKind.OFFSET_INDEX, ".index"),
        (ObjectKind.TIME_INDEX, ".timeindex"),
        (ObjectKind.TRANSACTION_INDEX, ".txnindex"),
        (ObjectKind.PRODUCER_SNAPSHOT, ".snapshot"),
        (ObjectKind.LEADER_EPOCHS, ".leader_epoch_checkpoint"),
    ],
)
def test_names_are_what_they_always_were(kind: ObjectKind, suffix: str) -> None:
    name = NAMES.name(ONE, kind)
    assert name == f"tiered/c1/foo-1-7-AAECAwQFBgcICQoLDA0ODw/00000000000000000042-AAAAAAAAAAAAAAAAAAAAAQ{suffix}"
    assert check_key(name) == name
    assert NAMES.parse(name) == ParsedName(TOPIC_ID, 7, 42, UUID(int=1), kind)
    assert NAMES.is_name(name)


def test_prefixes() -> None:
    assert NAMES.cluster_prefix == "tiered/c1/"
    assert NAMES.partition_prefix(ONE.partition) == "tiered/c1/foo-1-7-AAECAwQFBgcICQoLDA0ODw/"
    assert ObjectNames("c1", "").cluster_prefix == "c1/"
    assert ObjectNames("c1", "a/b").cluster_prefix == "a/b/c1/"
    for prefix in ("/a", "a/", "a//b", ".a", "ä"):
        with pytest.raises(ValueError, match=r"prefix|key"):
            ObjectNames("c1", prefix)


@pytest.mark.parametrize("topic_id", [UUID(int=(1 << 128) - 1), UUID(bytes=b"\xfb" * 16), UUID(int=0)])
@pytest.mark.parametrize("topic", ["a", "-", "a-0-AAAAAAAAAAAAAAAAAAAAAQ", ".hidden", "..a", "_", "t" * 249])
def test_any_topic_has_names_that_a_store_takes(topic: str, topic_id: UUID) -> None:
    one = replace(ONE, partition=TopicIdPartition(topic_id, topic, 100_000), segment_id=topic_id)
    name = NAMES.name(one, ObjectKind.LEADER_EPOCHS)
    assert check_key(name) == name
    assert NAMES.parse(name) == ParsedName(topic_id, 100_000, 42, topic_id, ObjectKind.LEADER_EPOCHS)


def test_folders_tell_of_partitions() -> None:
    assert NAMES.parse_folder(NAMES.partition_prefix(ONE.partition)) == (TOPIC_ID, 7)
    for prefix in (
        "tiered/c2/foo-1-7-AAECAwQFBgcICQoLDA0ODw/",
        "tiered/c1/foo-1-7-AAECAwQFBgcICQoLDA0ODw",
        "tiered/c1/x/foo-1-7-AAECAwQFBgcICQoLDA0ODw/",
        "tiered/c1/foo-AAECAwQFBgcICQoLDA0ODw/",
        "tiered/c1/",
        "",
    ):
        with pytest.raises(ValueError, match="begin with"):
            NAMES.parse_folder(prefix)


def test_long_names_and_dots_at_the_front_give_way() -> None:
    long = TopicIdPartition(TOPIC_ID, "t" * 249, 3)
    assert NAMES.partition_prefix(long) == f"tiered/c1/{'t' * 230}-3-AAECAwQFBgcICQoLDA0ODw/"
    assert NAMES.partition_prefix(TopicIdPartition(TOPIC_ID, ".a.b", 3)) == "tiered/c1/_a.b-3-AAECAwQFBgcICQoLDA0ODw/"


@pytest.mark.parametrize(
    "name",
    [
        "tiered/c2/foo-1-7-AAECAwQFBgcICQoLDA0ODw/00000000000000000042-AAAAAAAAAAAAAAAAAAAAAQ.log",
        "tiered/c1/foo-1-7/00000000000000000042-AAAAAAAAAAAAAAAAAAAAAQ.log",
        "tiered/c1/foo-1-7-AAECAwQFBgcICQoLDA0ODw/42-AAAAAAAAAAAAAAAAAAAAAQ.log",
        "tiered/c1/foo-1-7-AAECAwQFBgcICQoLDA0ODw/00000000000000000042-AAAAAAAAAAAAAAAAAAAAAQ.other",
        "tiered/c1/foo-1-7-AAECAwQFBgcICQoLDA0ODw/00000000000000000042-AAAAAAAAAAAAAAAAAAAAAQ",
        "tiered/c1/foo-1-7-AAECAwQFBgcICQoLDA0ODw/x/00000000000000000042-AAAAAAAAAAAAAAAAAAAAAQ.log",
        "foo-1-7-AAECAwQFBgcICQoLDA0ODw/00000000000000000042-AAAAAAAAAAAAAAAAAAAAAQ.log",
        "",
    ],
)
def test_other_names_are_refused(name: str) -> None:
    assert not NAMES.is_name(name)
    with pytest.raises(ValueError, match=r"remote segment|ObjectKind"):
        NAMES.parse(name)
