"""The records of `__consumer_offsets` that a group coordinator writes, and groups made from them."""

from collections.abc import Mapping

from broker.common.identifiers import NO_TIMESTAMP
from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.classic_group_member import ClassicGroupMember
from broker.coordinator.group.committed_offset import CommittedOffset
from broker.coordinator.group.group_messages import MemberProtocol
from broker.coordinator.group.group_state import GroupState
from broker.schemas.group_metadata import (
    GroupMemberMetadata,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)


def offset_record(group_id: str, topic: str, partition: int, offset: CommittedOffset) -> GroupRecord:
    value = OffsetCommitValue(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp_ms,
        expire_timestamp=offset.expire_timestamp_ms,
    )
    return (OffsetCommitKey(group=group_id, topic=topic, partition=partition), value)


def offset_tombstone(group_id: str, topic: str, partition: int) -> GroupRecord:
    return (OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def committed_offset(value: OffsetCommitValue, record_offset: int) -> CommittedOffset:
    """The offset a stored value stands for; `record_offset` is where the record lies."""
    return CommittedOffset(
        value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp, record_offset
    )


def empty_group_record(group_id: str, now_ms: int) -> GroupRecord:
    """A group that has just been made: no members, generation 0, no protocol type yet."""
    value = GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=now_ms, members=()
    )
    return (GroupMetadataKey(group=group_id), value)


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> GroupRecord:
    """The group as it is now, with these assignments by member id; a member without one gets none."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=NO_TIMESTAMP if group.state_timestamp_ms is None else group.state_timestamp_ms,
        members=tuple(_stored_member(group, member, assignments) for member in group.members.values()),
    )
    return (GroupMetadataKey(group=group.group_id), value)


def group_tombstone(group_id: str) -> GroupRecord:
    return (GroupMetadataKey(group=group_id), None)


def group_from_record(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """A group with members was Stable when it was stored; rebalances, pending members and parked requests are lost."""
    group = ClassicGroup(group_id, value.current_state_timestamp)
    group.state = GroupState.STABLE if value.members else GroupState.EMPTY
    group.state_timestamp_ms = None if value.current_state_timestamp < 0 else value.current_state_timestamp
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    for stored in value.members:
        group.restore_member(_member_from_record(stored, value.protocol or ""))
    group.leader_id = value.leader
    group.subscribed_topics = group.compute_subscribed_topics()
    group.stored = value
    return group


def _stored_member(
    group: ClassicGroup, member: ClassicGroupMember, assignments: Mapping[str, bytes]
) -> GroupMemberMetadata:
    assert group.protocol_name is not None, f"group {group.group_id} has members and no protocol"
    return GroupMemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(group.protocol_name),
        assignment=assignments.get(member.member_id, b""),
    )


def _member_from_record(stored: GroupMemberMetadata, protocol: str) -> ClassicGroupMember:
    return ClassicGroupMember(
        stored.member_id,
        stored.group_instance_id,
        stored.client_id,
        stored.client_host,
        stored.rebalance_timeout,
        stored.session_timeout,
        (MemberProtocol(protocol, stored.subscription),),
        stored.assignment,
    )
