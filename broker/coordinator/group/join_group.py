"""JoinGroup: who may become or stay a member, and whether that means a rebalance."""

from broker.common.chance import Chance
from broker.common.errors import (
    CoordinatorNotAvailableError,
    ErrorCode,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    KafkaError,
    UnknownMemberIdError,
)
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.coordinator.coordinator_errors import coordinator_error
from broker.coordinator.coordinator_shard import ShardLog
from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.classic_group_member import ClassicGroupMember, JoinReply
from broker.coordinator.group.group_messages import (
    UNKNOWN_MEMBER_ID,
    JoinGroupRequest,
    JoinGroupResult,
    SyncGroupResult,
)
from broker.coordinator.group.group_metadata_manager import GroupMetadataManager
from broker.coordinator.group.group_state import GroupState
from broker.coordinator.group.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS, Rebalance
from broker.schemas.group_metadata import GroupRecord


class JoinGroup:
    """Answers through `reply`, at once or when the join phase ends; raises KafkaError for what it refuses."""

    def __init__(
        self,
        groups: GroupMetadataManager,
        rebalance: Rebalance,
        shard_log: ShardLog[GroupRecord],
        chance: Chance,
        config: ConfigHolder[BrokerConfig],
    ) -> None:
        self._groups = groups
        self._rebalance = rebalance
        self._log = shard_log
        self._chance = chance
        self._config = config

    def join(self, request: JoinGroupRequest, reply: JoinReply) -> None:
        try:
            self._join(request, reply)
        except GroupMaxSizeReachedError as error:
            reply(JoinGroupResult(error.code))
        except KafkaError as error:
            reply(JoinGroupResult(error.code, request.member_id))

    def _join(self, request: JoinGroupRequest, reply: JoinReply) -> None:
        group = self._groups.find(request.group_id) or self._create(request)
        if group.state is GroupState.DEAD:
            raise CoordinatorNotAvailableError(f"group {request.group_id} is being unloaded")
        if not self._has_room(group, _current_member(group, request)):
            self._turn_away(group, request.member_id)
            raise GroupMaxSizeReachedError(f"group {request.group_id} is full")
        if not group.supports_protocols(request.protocol_type, request.protocols):
            raise InconsistentGroupProtocolError(f"group {request.group_id} has no protocol in common with the member")
        if request.member_id == UNKNOWN_MEMBER_ID:
            self._join_new(group, request, reply)
        else:
            self._join_existing(group, request, reply)

    def _create(self, request: JoinGroupRequest) -> ClassicGroup:
        if request.member_id != UNKNOWN_MEMBER_ID:
            raise UnknownMemberIdError(f"group {request.group_id} does not exist")
        if not request.protocol_type or not request.protocols:
            raise InconsistentGroupProtocolError(f"group {request.group_id} cannot begin without a protocol")
        return self._groups.create(request.group_id)

    def _has_room(self, group: ClassicGroup, member: ClassicGroupMember | None) -> bool:
        """While members gather those who have joined count: after a lower limit the last to come stay outside."""
        size_max = self._config.current.group_max_size
        if group.state is GroupState.EMPTY:
            return True
        if group.state is GroupState.PREPARING_REBALANCE:
            return (member is not None and member.is_awaiting_join) or group.awaiting_join_count < size_max
        return member is not None or len(group.members) < size_max

    def _turn_away(self, group: ClassicGroup, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self._rebalance.remove_member(group, member)
        else:
            self._rebalance.remove_pending_member(group, member_id)
        self._rebalance.maybe_complete_join(group)

    def _join_new(self, group: ClassicGroup, request: JoinGroupRequest, reply: JoinReply) -> None:
        instance_id = request.group_instance_id
        member_id = f"{request.client_id if instance_id is None else instance_id}-{self._chance.uuid()}"
        if instance_id is not None and instance_id in group.static_members:
            self._replace_static(group, instance_id, member_id, request, reply)
        elif instance_id is None and request.requires_known_member_id:
            group.pending_join_members[member_id] = None
            self._rebalance.expect_heartbeat(group, member_id, request.session_timeout_ms)
            reply(JoinGroupResult(ErrorCode.member_id_required, member_id))
        else:
            self._add(group, member_id, request, reply)

    def _add(self, group: ClassicGroup, member_id: str, request: JoinGroupRequest, reply: JoinReply) -> None:
        member = ClassicGroupMember(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
        )
        member.is_new = True
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.add_member(member, request.protocol_type, reply)
        self._rebalance.expect_heartbeat(group, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance.maybe_prepare(group)

    def _join_existing(self, group: ClassicGroup, request: JoinGroupRequest, reply: JoinReply) -> None:
        if request.member_id in group.pending_join_members:
            if request.group_instance_id is not None:
                raise KafkaError(f"{request.member_id} became a pending member without an instance id")
            self._add(group, request.member_id, request, reply)
            return
        member = group.validate_member(request.member_id, request.group_instance_id)
        is_leader = group.is_leader(member.member_id)
        is_unchanged = member.protocols == request.protocols
        if group.state is GroupState.COMPLETING_REBALANCE and is_unchanged:
            # The answer to the last JoinGroup may have been lost; the leader needs its members again.
            reply(self._rebalance.joined(group, member.member_id, with_members=is_leader))
        elif group.state is GroupState.STABLE and is_unchanged and not is_leader:
            reply(self._rebalance.joined(group, member.member_id, with_members=False))
        elif group.state is GroupState.EMPTY:
            raise UnknownMemberIdError(f"group {group.group_id} has no members")
        else:
            self._update(group, member, request, reply)
            self._rebalance.maybe_prepare(group)

    def _update(
        self, group: ClassicGroup, member: ClassicGroupMember, request: JoinGroupRequest, reply: JoinReply
    ) -> None:
        group.update_member(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        # A second JoinGroup came on another connection: the client of the first may try again if it is still there.
        group.answer_join(member, JoinGroupResult(ErrorCode.rebalance_in_progress, member.member_id))
        group.park_join(member, reply)

    # -- static members come back under a new id (KIP-345) -------------------------------------------------------------

    def _replace_static(
        self, group: ClassicGroup, instance_id: str, member_id: str, request: JoinGroupRequest, reply: JoinReply
    ) -> None:
        old_member_id, old_leader_id = group.static_members[instance_id], group.leader_id
        old = group.members[old_member_id]
        old_facts = (old.protocols, old.rebalance_timeout_ms, old.session_timeout_ms)
        self._rebalance.cancel_session(group, old_member_id)
        group.answer_join(old, JoinGroupResult(ErrorCode.fenced_instance_id, old_member_id))
        group.answer_sync(old, SyncGroupResult(ErrorCode.fenced_instance_id))
        member = group.replace_static_member(instance_id, member_id)
        self._update(group, member, request, reply)
        self._rebalance.restart_session(group, member)
        if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol_name:
            self._rebalance.maybe_prepare(group)
            return

        def put_back(error: KafkaError) -> None:
            """Nobody may see a member that the log does not know."""
            group.answer_join(member, JoinGroupResult(error.code))
            self._rebalance.cancel_session(group, member_id)
            restored = group.replace_static_member(instance_id, old_member_id)
            group.update_member(restored, *old_facts)
            self._rebalance.restart_session(group, restored)

        def on_stored(error: KafkaError | None) -> None:
            if member.join_reply is not reply:
                return  # a rebalance or the next replacement has answered meanwhile
            if error is not None:
                put_back(coordinator_error(error))
            else:
                self._answer_replacement(group, member, old_leader_id, request)

        try:
            assignments = {each.member_id: each.assignment for each in group.members.values()}
            end_offset = self._groups.store(group, assignments)
        except KafkaError as error:
            put_back(error)
        else:
            self._log.when_committed(end_offset, on_stored)

    def _answer_replacement(
        self, group: ClassicGroup, member: ClassicGroupMember, old_leader_id: str | None, request: JoinGroupRequest
    ) -> None:
        """No rebalance: the generation goes on.

        A leader that cannot skip the assignment (before KIP-814) is told the old leader's id, so that it takes itself
        for a follower and does not assign anew.
        """
        if request.supports_skipping_assignment:
            is_leader = group.is_leader(member.member_id)
            result = self._rebalance.joined(group, member.member_id, with_members=is_leader, skip_assignment=is_leader)
        else:
            result = self._rebalance.joined(group, member.member_id, with_members=False, leader_id=old_leader_id)
        group.answer_join(member, result)


def _current_member(group: ClassicGroup, request: JoinGroupRequest) -> ClassicGroupMember | None:
    """Who the request comes from, if it is a member: by its id, or as a static member that lost its id."""
    if request.member_id == UNKNOWN_MEMBER_ID and request.group_instance_id is not None:
        return group.members.get(group.static_members.get(request.group_instance_id, ""))
    return group.members.get(request.member_id)
