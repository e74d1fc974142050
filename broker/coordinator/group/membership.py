"""Membership: SyncGroup, Heartbeat and LeaveGroup of the members a group has."""

from collections.abc import Iterable

from broker.common.errors import (
    CoordinatorNotAvailableError,
    ErrorCode,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from broker.coordinator.coordinator_errors import coordinator_error
from broker.coordinator.coordinator_shard import ShardLog
from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.classic_group_member import ClassicGroupMember, SyncReply
from broker.coordinator.group.group_messages import (
    UNKNOWN_MEMBER_ID,
    HeartbeatRequest,
    LeaveGroupResult,
    MemberIdentity,
    MemberResult,
    SyncGroupRequest,
    SyncGroupResult,
)
from broker.coordinator.group.group_metadata_manager import GroupMetadataManager
from broker.coordinator.group.group_state import GroupState
from broker.coordinator.group.rebalance import Rebalance
from broker.schemas.group_metadata import GroupRecord


class Membership:
    """What members do between two JoinGroups."""

    def __init__(self, groups: GroupMetadataManager, rebalance: Rebalance, shard_log: ShardLog[GroupRecord]) -> None:
        self._groups = groups
        self._rebalance = rebalance
        self._log = shard_log

    def member(
        self, group_id: str, member_id: str, group_instance_id: str | None
    ) -> tuple[ClassicGroup, ClassicGroupMember]:
        """A group and its member, or the error for who does not belong."""
        group = self._groups.find(group_id)
        if group is None:
            raise UnknownMemberIdError(f"group {group_id} does not exist")
        if group.state is GroupState.DEAD:
            raise CoordinatorNotAvailableError(f"group {group_id} is being unloaded")
        return group, group.validate_member(member_id, group_instance_id)

    # -- SyncGroup ----------------------------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, reply: SyncReply) -> None:
        """Answers through `reply`, at once or when the leader's assignment is committed."""
        try:
            self._sync(request, reply)
        except KafkaError as error:
            reply(SyncGroupResult(error.code))

    def _sync(self, request: SyncGroupRequest, reply: SyncReply) -> None:
        group, member = self.member(request.group_id, request.member_id, request.group_instance_id)
        _check_generation(group, request.generation)
        _check_protocol(group, request)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgressError(f"group {group.group_id} is rebalancing")
        if group.state is GroupState.EMPTY:
            raise UnknownMemberIdError(f"group {group.group_id} has no members")
        self._rebalance.synced(group, member.member_id)
        if group.state is GroupState.STABLE:
            reply(SyncGroupResult(ErrorCode.none, group.protocol_type, group.protocol_name, member.assignment))
            return
        group.answer_sync(member, SyncGroupResult(ErrorCode.rebalance_in_progress))  # of another connection
        member.sync_reply = reply
        if group.is_leader(member.member_id):
            self._store_assignment(group, request)

    def _store_assignment(self, group: ClassicGroup, request: SyncGroupRequest) -> None:
        assignments = {
            member_id: request.assignments.get(member_id, b"") for member_id in group.members
        }  # members the leader forgot get nothing, and names it made up are dropped
        generation = group.generation

        def on_stored(error: KafkaError | None) -> None:
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != generation:
                return  # another rebalance has begun and has answered everybody
            if error is None:
                self._rebalance.assign(group, assignments)
            else:
                self._rebalance.fail_assignment(group, coordinator_error(error).code)
                self._rebalance.maybe_prepare(group)

        try:
            end_offset = self._groups.store(group, assignments)
        except KafkaError as error:
            on_stored(error)
        else:
            self._log.when_committed(end_offset, on_stored)

    # -- Heartbeat ----------------------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest) -> None:
        """Returns, or raises what the member has to hear.

        While the leader assigns the answer is NONE: clients heartbeat from the moment they have joined.
        """
        group, member = self.member(request.group_id, request.member_id, request.group_instance_id)
        _check_generation(group, request.generation)
        if group.state is GroupState.EMPTY:
            raise UnknownMemberIdError(f"group {group.group_id} has no members")
        self._rebalance.restart_session(group, member)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgressError(f"group {group.group_id} is rebalancing")

    # -- LeaveGroup ---------------------------------------------------------------------------------------------------

    def leave(self, group_id: str, members: Iterable[MemberIdentity]) -> LeaveGroupResult:
        """Each member on its own, then one rebalance for all who have left."""
        group = self._groups.find(group_id)
        if group is None:
            return LeaveGroupResult(
                members=tuple(MemberResult(*member, ErrorCode.unknown_member_id) for member in members)
            )
        if group.state is GroupState.DEAD:
            raise CoordinatorNotAvailableError(f"group {group_id} is being unloaded")
        results = tuple(MemberResult(*member, self._leave(group, member)) for member in members)
        if any(result.error is ErrorCode.none for result in results):
            if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                self._rebalance.maybe_prepare(group)
            else:
                self._rebalance.maybe_complete_join(group)
        return LeaveGroupResult(members=results)

    def _leave(self, group: ClassicGroup, identity: MemberIdentity) -> ErrorCode:
        member_id, instance_id = identity
        if member_id == UNKNOWN_MEMBER_ID:  # an administrator removes a static member
            static_id = None if instance_id is None else group.static_members.get(instance_id)
            if static_id is None:
                return ErrorCode.unknown_member_id
            self._rebalance.remove_member(group, group.members[static_id])
            return ErrorCode.none
        if member_id in group.pending_join_members:
            self._rebalance.remove_pending_member(group, member_id)
            return ErrorCode.none
        try:
            member = group.validate_member(member_id, instance_id)
        except KafkaError as error:
            return error.code
        self._rebalance.remove_member(group, member)
        return ErrorCode.none


def _check_generation(group: ClassicGroup, generation: int) -> None:
    if generation != group.generation:
        raise IllegalGenerationError(f"group {group.group_id} is in generation {group.generation}, not {generation}")


def _check_protocol(group: ClassicGroup, request: SyncGroupRequest) -> None:
    """KIP-559: a client that names type and protocol must mean the group's."""
    for given, own in ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol_name)):
        if given is not None and own is not None and given != own:
            raise InconsistentGroupProtocolError(f"group {group.group_id} uses {own}, not {given}")
