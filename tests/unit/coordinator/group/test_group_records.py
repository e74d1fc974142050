"""Records as Kafka writes them, byte for byte."""

from broker.common.identifiers import NO_TIMESTAMP
from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.classic_group_member import ClassicGroupMember
from broker.coordinator.group.committed_offset import CommittedOffset
from broker.coordinator.group.group_messages import MemberProtocol
from broker.coordinator.group.group_records import (
    committed_offset,
    empty_group_record,
    group_from_record,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
)
from broker.coordinator.group.group_state import GroupState
from broker.schemas.group_metadata import (
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_group_metadata,
    encode_offset_commit,
)

NOW = 1_700_000_000_000
SUBSCRIPTION = bytes.fromhex("0000000000010002743100000000")
ASSIGNMENT = bytes.fromhex("00000000000100027431000000010000000000000000")
STORED_GROUP = bytes.fromhex(
    "00030008636f6e73756d657200000001000572616e67650003632d310000018bcfe56800000000010003632d31ffff000163000a2f3132372e"
    "302e302e31000493e00000afc80000000e0000000000010002743100000000000000160000000000010002743100000001000000000000"
    "0000"
)


def encoded(record: GroupRecord) -> tuple[bytes, bytes | None]:
    key, value = record
    if isinstance(key, OffsetCommitKey):
        assert value is None or isinstance(value, OffsetCommitValue)
        return encode_offset_commit(key, value)
    assert value is None or isinstance(value, GroupMetadataValue)
    return encode_group_metadata(key, value)


def stable_group() -> ClassicGroup:
    group = ClassicGroup("g1", NOW)
    member = ClassicGroupMember(
        "c-1", None, "c", "/127.0.0.1", 300_000, 45_000, (MemberProtocol("range", SUBSCRIPTION),), ASSIGNMENT
    )
    group.add_member(member, "consumer", lambda _: None)
    group.state, group.generation, group.protocol_name = GroupState.STABLE, 1, "range"
    return group


def test_an_offset() -> None:
    offset = CommittedOffset(42, 7, "m", NOW)
    key, value = encoded(offset_record("g1", "t1", 0, offset))
    assert key.hex() == "0001000267310002743100000000"
    assert value is not None and value.hex() == "0003000000000000002a0000000700016d0000018bcfe56800"
    assert encoded(offset_tombstone("g1", "t1", 0)) == (key, None)


def test_an_offset_with_an_expiry_of_its_own() -> None:
    offset = CommittedOffset(42, -1, "m", NOW, 1_700_086_400_000)
    _, value = encoded(offset_record("g1", "t1", 0, offset))
    assert value is not None and value.hex() == "0001000000000000002a00016d0000018bcfe568000000018bd50bc400"


def test_an_offset_knows_where_it_is_stored() -> None:
    value = OffsetCommitValue(offset=42, leader_epoch=7, metadata="m", commit_timestamp=NOW)
    assert committed_offset(value, 9) == CommittedOffset(42, 7, "m", NOW, NO_TIMESTAMP, 9)


def test_a_group_with_members() -> None:
    key, value = encoded(group_record(stable_group(), {"c-1": ASSIGNMENT}))
    assert key.hex() == "000200026731"
    assert value == STORED_GROUP
    assert encoded(group_tombstone("g1")) == (key, None)


def test_a_group_without_members_keeps_its_type() -> None:
    group = ClassicGroup("g1", NOW)
    group.protocol_type, group.generation = "consumer", 2
    _, value = encoded(group_record(group, {}))
    assert value is not None and value.hex() == "00030008636f6e73756d657200000002ffffffff0000018bcfe5680000000000"


def test_a_new_group() -> None:
    _, value = encoded(empty_group_record("g1", NOW))
    assert value is not None and value.hex() == "0003000000000000ffffffff0000018bcfe5680000000000"


def test_44_a_group_from_its_record() -> None:
    group = stable_group()
    record = group_record(group, {"c-1": ASSIGNMENT})
    value = record[1]
    assert isinstance(value, GroupMetadataValue)
    loaded = group_from_record("g1", value)
    assert (loaded.state, loaded.generation, loaded.protocol_type, loaded.protocol_name, loaded.leader_id) == (
        GroupState.STABLE,
        1,
        "consumer",
        "range",
        "c-1",
    )
    assert loaded.state_timestamp_ms == NOW and loaded.subscribed_topics == {"t1"} and loaded.stored is value
    member = loaded.members["c-1"]
    assert (member.rebalance_timeout_ms, member.session_timeout_ms, member.assignment) == (300_000, 45_000, ASSIGNMENT)
    assert member.protocols == (MemberProtocol("range", SUBSCRIPTION),)
    assert not member.is_awaiting_join and not member.is_new


def test_44_an_empty_group_from_an_old_record() -> None:
    value = GroupMetadataValue(protocol_type="", generation=0, current_state_timestamp=-1)
    loaded = group_from_record("g1", value)
    assert (loaded.state, loaded.protocol_type, loaded.state_timestamp_ms) == (GroupState.EMPTY, None, None)
