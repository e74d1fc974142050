import pytest

from broker.schemas.group_metadata import (
    GroupMemberMetadata,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode,
    encode_group_metadata,
)
from broker.schemas.keyed_record import encode_versioned
from broker.schemas.message_codec import MalformedRecordError, UnknownVersionError

OFFSET_KEY = encode_versioned(OffsetCommitKey(group="g", topic="t", partition=3), 1)
GROUP_KEY = encode_versioned(GroupMetadataKey(group="g"), 2)
MEMBER = GroupMemberMetadata(
    member_id="m",
    group_instance_id="i",
    client_id="c",
    client_host="/h",
    rebalance_timeout=300,
    session_timeout=45,
    subscription=b"s",
    assignment=b"a",
)
GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=4,
    protocol="range",
    leader="m",
    current_state_timestamp=99,
    members=(MEMBER,),
)


def test_offset_keys_of_both_versions_are_read() -> None:
    for version in (0, 1):
        key = encode_versioned(OffsetCommitKey(group="g", topic="t", partition=3), version)
        assert decode(key, None) == (OffsetCommitKey(group="g", topic="t", partition=3), None)


@pytest.mark.parametrize(
    ("version", "leader_epoch", "expire_timestamp"), [(0, -1, -1), (1, -1, 60), (2, -1, -1), (3, 5, -1), (4, 5, -1)]
)
def test_offset_values_of_all_versions_are_read(version: int, leader_epoch: int, expire_timestamp: int) -> None:
    full = OffsetCommitValue(offset=8, leader_epoch=5, metadata="é", commit_timestamp=50, expire_timestamp=60)
    _, value = decode(OFFSET_KEY, encode_versioned(full, version)) or (None, None)
    assert value == OffsetCommitValue(
        offset=8,
        leader_epoch=leader_epoch,
        metadata="é",
        commit_timestamp=50,
        expire_timestamp=expire_timestamp,
    )


@pytest.mark.parametrize(
    ("version", "instance", "rebalance_timeout", "timestamp"),
    [(0, None, 45, -1), (1, None, 300, -1), (2, None, 300, 99), (3, "i", 300, 99), (4, "i", 300, 99)],
)
def test_group_values_of_all_versions_are_read(
    version: int, instance: str | None, rebalance_timeout: int, timestamp: int
) -> None:
    _, value = decode(GROUP_KEY, encode_versioned(GROUP, version)) or (None, None)
    assert isinstance(value, GroupMetadataValue)
    (member,) = value.members
    assert (member.group_instance_id, member.rebalance_timeout, member.session_timeout) == (
        instance,
        rebalance_timeout,
        45,
    )
    assert (value.current_state_timestamp, value.protocol, value.leader) == (timestamp, "range", "m")
    assert (member.subscription, member.assignment) == (b"s", b"a")


def test_tombstones() -> None:
    assert encode_group_metadata(GroupMetadataKey(group="g"), None) == (GROUP_KEY, None)
    assert decode(GROUP_KEY, None) == (GroupMetadataKey(group="g"), None)


@pytest.mark.parametrize("version", [3, 4, 8, 15, 16, 300, -1])
def test_other_kinds_of_records_are_skipped(version: int) -> None:
    assert decode(version.to_bytes(2, "big", signed=True) + b"anything", b"\x00\x00whatever") is None


def test_a_tag_of_a_newer_broker_is_skipped() -> None:
    raw = encode_versioned(OffsetCommitValue(offset=1, commit_timestamp=2), 4)
    with_topic_id = raw[:-1] + b"\x01\x00\x10" + bytes(range(16))
    assert decode(OFFSET_KEY, with_topic_id) == decode(OFFSET_KEY, raw)


def test_a_value_of_a_newer_version_is_not_guessed_at() -> None:
    with pytest.raises(UnknownVersionError):
        decode(OFFSET_KEY, b"\x00\x05" + bytes(50))


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x03", b"\x00\x03" + bytes(5)])
def test_nonsense_is_refused(value: bytes) -> None:
    with pytest.raises(MalformedRecordError):
        decode(OFFSET_KEY, value)
    with pytest.raises(MalformedRecordError):
        decode(GROUP_KEY, value)
