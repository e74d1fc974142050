from uuid import UUID

import pytest

from broker.common.identifiers import (
    METADATA_TOPIC_ID,
    ZERO_UUID,
    TopicIdPartition,
    TopicPartition,
    java_string_hash,
    partition_for_key,
    uuid_from_text,
    uuid_to_text,
)


def test_partitions_are_written_as_their_directories_are() -> None:
    assert str(TopicPartition("a-b", 3)) == "a-b-3"
    assert TopicIdPartition(ZERO_UUID, "a", 1).topic_partition == TopicPartition("a", 1)


def test_uuids_have_kafkas_text() -> None:
    assert uuid_to_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    value = UUID("ffeeddcc-bbaa-9988-7766-554433221100")
    assert uuid_from_text(uuid_to_text(value)) == value


@pytest.mark.parametrize("text", ["", "abc", "AAAAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAA!", "é" * 22])
def test_other_texts_are_no_uuids(text: str) -> None:
    with pytest.raises(ValueError, match=r"base64|bytes, a uuid has 16"):
        uuid_from_text(text)


@pytest.mark.parametrize(
    ("key", "expected_hash", "partition"),
    [
        ("", 0, 0),
        ("console-consumer-12345", 158455506, 6),
        ("my-group", -1906497762, 12),
        ("orders", -1008770331, 31),
        ("äöü", 226986, 36),
        ("😀", 1772899, 49),  # two code units
        ("polygenelubricants", -(1 << 31), 0),  # the smallest integer has no absolute value
    ],
)
def test_a_group_belongs_to_the_partition_of_its_java_hash(key: str, expected_hash: int, partition: int) -> None:
    assert java_string_hash(key) == expected_hash
    assert partition_for_key(key, 50) == partition
