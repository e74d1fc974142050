"""GroupMetadataManager: the groups of a shard, how they are stored, shown and deleted."""

from collections.abc import Callable, Collection, Iterator, Mapping

from broker.common.clock import Clock
from broker.common.errors import ErrorCode, GroupIdNotFoundError, NonEmptyGroupError
from broker.coordinator.coordinator_shard import ShardLog
from broker.coordinator.group.classic_group import GROUP_TYPE, ClassicGroup
from broker.coordinator.group.classic_group_member import ClassicGroupMember
from broker.coordinator.group.group_messages import (
    DescribedGroup,
    DescribedMember,
    JoinGroupResult,
    ListedGroup,
    SyncGroupResult,
)
from broker.coordinator.group.group_records import empty_group_record, group_from_record, group_record
from broker.coordinator.group.group_state import GroupState
from broker.schemas.group_metadata import GroupMetadataKey, GroupMetadataValue, GroupRecord

DESCRIBE_GROUPS_VERSION_WITH_NOT_FOUND = 6  # KIP-1043


class GroupMetadataManager:
    """Owns the groups.  A group's records are written but not replayed: whoever writes one changes the group."""

    def __init__(self, shard_log: ShardLog[GroupRecord], clock: Clock) -> None:
        self._log = shard_log
        self._clock = clock
        self._groups: dict[str, ClassicGroup] = {}

    def find(self, group_id: str) -> ClassicGroup | None:
        return self._groups.get(group_id)

    def groups(self) -> Iterator[ClassicGroup]:
        return iter(list(self._groups.values()))

    def create(self, group_id: str) -> ClassicGroup:
        """A new group, stored before anybody joins it."""
        now_ms = self._clock.now_ms()
        record = empty_group_record(group_id, now_ms)
        self._log.append([record], is_replayed=False)
        group = self._groups[group_id] = ClassicGroup(group_id, now_ms)
        group.stored = _group_value(record)
        return group

    def ensure_simple_group(self, group_id: str) -> None:
        """Offsets without members belong to a group that exists in memory only and has no protocol type."""
        if group_id not in self._groups:
            self._groups[group_id] = ClassicGroup(group_id, self._clock.now_ms())

    def store(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> int:
        """Append the group's record; the offset after it, or KafkaError and nothing has changed."""
        record = group_record(group, assignments)
        end_offset = self._log.append([record], is_replayed=False)
        group.stored = _group_value(record)
        return end_offset

    def replay(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        if value is None:
            self._groups.pop(key.group, None)
        else:
            self._groups[key.group] = group_from_record(key.group, value)

    def validate_delete(self, group_id: str) -> None:
        """GroupIdNotFoundError, NonEmptyGroupError."""
        group = self._groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        if group.state is not GroupState.EMPTY:
            raise NonEmptyGroupError(f"group {group_id} is {group.state.value}")

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        """One group as DescribeGroups shows it; before version 6 an absent one is Dead."""
        group = self._groups.get(group_id)
        if group is None:
            if version >= DESCRIBE_GROUPS_VERSION_WITH_NOT_FOUND:
                message = f"Group {group_id} not found."
                return DescribedGroup(group_id, ErrorCode.group_id_not_found, message, GroupState.DEAD.value)
            return DescribedGroup(group_id, state=GroupState.DEAD.value)
        protocol = group.protocol_name if group.state is GroupState.STABLE else None
        return DescribedGroup(
            group_id,
            state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol or "",
            members=tuple(_described(member, protocol) for member in group.members.values()),
        )

    def list(self, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
        """Groups in one of the states and of one of the types, both in lower case; empty means any."""
        if types and GROUP_TYPE not in types:
            return []
        return [
            ListedGroup(group.group_id, group.protocol_type or "", group.state.value, GROUP_TYPE)
            for group in self._groups.values()
            if not states or group.state.value.lower() in states
        ]

    def on_loaded(self, restart_session: Callable[[ClassicGroup, ClassicGroupMember], None]) -> None:
        """Every member gets a whole session: its client may have been heartbeating somewhere else."""
        for group in self._groups.values():
            for member in group.members.values():
                restart_session(group, member)

    def on_unloaded(self) -> None:
        """All groups die here; clients are told to find their coordinator again."""
        now_ms = self._clock.now_ms()
        for group in self._groups.values():
            group.transition_to(GroupState.DEAD, now_ms)
            for member in list(group.members.values()):
                group.answer_join(member, JoinGroupResult(ErrorCode.not_coordinator, member.member_id))
                group.answer_sync(member, SyncGroupResult(ErrorCode.not_coordinator))
        self._groups.clear()


def _described(member: ClassicGroupMember, protocol: str | None) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        b"" if protocol is None else member.metadata(protocol),
        b"" if protocol is None else member.assignment,
    )


def _group_value(record: GroupRecord) -> GroupMetadataValue:
    value = record[1]
    assert isinstance(value, GroupMetadataValue), f"{record} is not a group"
    return value
