"""Rebalance: from the first reason to rebalance a group to the next generation and its assignment."""

from collections.abc import Hashable, Mapping
from typing import Final, Protocol

import structlog

from broker.common.clock import Clock
from broker.common.errors import ErrorCode, KafkaError
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.coordinator.coordinator_timer import CoordinatorTimer
from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.classic_group_member import ClassicGroupMember
from broker.coordinator.group.group_messages import JoinGroupResult, SyncGroupResult
from broker.coordinator.group.group_state import GroupState

log = structlog.get_logger(__name__)

# A member whose first JoinGroup is parked cannot heartbeat and nothing shows that its client has gone; Kafka's
# GroupCoordinator.NewMemberJoinTimeoutMs expects it to have asked again after this long.
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000


class GroupWriter(Protocol):
    """Where groups are kept and stored."""

    def find(self, group_id: str) -> ClassicGroup | None: ...

    def store(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> int:
        """Append the group's record; the offset after it, or KafkaError and nothing has changed."""


class RebalanceMetrics(Protocol):
    """What a rebalance reports."""

    def rebalance_completed(self) -> None: ...


class Rebalance:
    """The timers and transitions of a group's membership (the ClassicGroup half of Kafka's GroupMetadataManager).

    Groups are looked up again when a timer fires: a deleted group is simply not there.
    """

    def __init__(
        self,
        groups: GroupWriter,
        timer: CoordinatorTimer,
        clock: Clock,
        config: ConfigHolder[BrokerConfig],
        metrics: RebalanceMetrics,
    ) -> None:
        self._groups = groups
        self._timer = timer
        self._clock = clock
        self._config = config
        self._metrics = metrics

    # -- sessions ---------------------------------------------------------------------------------------------------

    def restart_session(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        self.expect_heartbeat(group, member.member_id, member.session_timeout_ms)

    def expect_heartbeat(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Remove the member, or the pending member id, unless the timer is set again before."""
        group_id = group.group_id
        self._timer.schedule(
            _session_key(group_id, member_id), timeout_ms, lambda: self._expire_session(group_id, member_id)
        )

    def cancel_session(self, group: ClassicGroup, member_id: str) -> None:
        self._timer.cancel(_session_key(group.group_id, member_id))

    def forget_timers(self, group: ClassicGroup) -> None:
        """The group is gone."""
        self._timer.cancel(_join_key(group.group_id))
        self._timer.cancel(_sync_key(group.group_id))
        for member_id in (*group.members, *group.pending_join_members):
            self.cancel_session(group, member_id)

    def _expire_session(self, group_id: str, member_id: str) -> None:
        group = self._groups.find(group_id)
        if group is None:
            return
        if member_id in group.pending_join_members:
            self.remove_pending_member(group, member_id)
            if group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined:
                self.complete_join(group)
            return
        member = group.members.get(member_id)
        if member is None or member.has_satisfied_heartbeat:
            return
        log.info("group_member_expired", group=group_id, member=member_id, generation=group.generation)
        self.remove_member(group, member)
        if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.maybe_prepare(group)
        elif group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined:
            self.complete_join(group)

    # -- members ----------------------------------------------------------------------------------------------------

    def remove_member(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """Take a member out and tell its parked requests; what follows for the group is the caller's."""
        self.cancel_session(group, member.member_id)
        group.answer_join(member, JoinGroupResult(ErrorCode.unknown_member_id))
        group.answer_sync(member, SyncGroupResult(ErrorCode.unknown_member_id))
        group.remove_member(member.member_id)
        self._cancel_sync_timer_if_done(group)

    def remove_pending_member(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_join_members.pop(member_id, None)
        self.cancel_session(group, member_id)

    # -- joining ----------------------------------------------------------------------------------------------------

    def maybe_prepare(self, group: ClassicGroup) -> None:
        """Start a rebalance where the state allows one, else see whether the running one is complete."""
        if group.can_rebalance:
            self._prepare(group)
        else:
            self.maybe_complete_join(group)

    def maybe_complete_join(self, group: ClassicGroup) -> None:
        """Finish the join phase when everybody is there.  A new group waits for its initial delay in any case."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is not GroupState.EMPTY
            and group.has_all_members_joined
        ):
            self.complete_join(group)

    def _prepare(self, group: ClassicGroup) -> None:
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.fail_assignment(group, ErrorCode.rebalance_in_progress)
        self._timer.cancel(_sync_key(group.group_id))
        group.pending_sync_members.clear()
        is_initial = group.state is GroupState.EMPTY
        group.transition_to(GroupState.PREPARING_REBALANCE, self._clock.now_ms())
        log.info("group_rebalance_started", group=group.group_id, generation=group.generation)
        if is_initial:
            delay_ms = self._config.current.group_initial_rebalance_delay_ms
            self._wait_for_more_members(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        elif group.has_all_members_joined:
            self.complete_join(group)
        else:
            self._wait_for_join(group)

    def _wait_for_more_members(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        group_id = group.group_id
        self._timer.schedule(
            _join_key(group_id), delay_ms, lambda: self._end_initial_delay(group_id, delay_ms, remaining_ms)
        )

    def _end_initial_delay(self, group_id: str, delay_ms: int, remaining_ms: int) -> None:
        group = self._groups.find(group_id)
        if group is None or group.state is not GroupState.PREPARING_REBALANCE:
            return
        if group.new_member_added and remaining_ms > 0:
            group.new_member_added = False
            next_delay_ms = min(self._config.current.group_initial_rebalance_delay_ms, remaining_ms)
            self._wait_for_more_members(group, next_delay_ms, max(remaining_ms - delay_ms, 0))
        else:
            group.new_member_added = False
            self.complete_join(group)

    def _wait_for_join(self, group: ClassicGroup) -> None:
        group_id = group.group_id
        self._timer.schedule(_join_key(group_id), group.rebalance_timeout_ms, lambda: self._end_join(group_id))

    def _end_join(self, group_id: str) -> None:
        group = self._groups.find(group_id)
        if group is not None and group.state is GroupState.PREPARING_REBALANCE:
            self.complete_join(group)

    def complete_join(self, group: ClassicGroup) -> None:
        """End the join phase with those who have joined; static members may be late, dynamic ones are out."""
        self._timer.cancel(_join_key(group.group_id))
        for member in [each for each in group.members.values() if not each.is_awaiting_join and not each.is_static]:
            self.remove_member(group, member)
        if not group.elect_joined_leader() and group.members:
            self._wait_for_join(group)  # only static members, and none is back yet
            return
        group.begin_next_generation(self._clock.now_ms())
        if group.members:
            self._announce_generation(group)
        else:
            self._store_empty(group)

    def _announce_generation(self, group: ClassicGroup) -> None:
        log.info(
            "group_generation_started",
            group=group.group_id,
            generation=group.generation,
            protocol=group.protocol_name,
            member_count=len(group.members),
        )
        for member in list(group.members.values()):
            is_leader = group.is_leader(member.member_id)
            group.pending_sync_members[member.member_id] = None
            member.is_new = False
            self.restart_session(group, member)
            group.answer_join(member, self.joined(group, member.member_id, with_members=is_leader))
        group_id, generation = group.group_id, group.generation
        self._timer.schedule(
            _sync_key(group_id), group.rebalance_timeout_ms, lambda: self._expire_syncs(group_id, generation)
        )

    def _store_empty(self, group: ClassicGroup) -> None:
        log.info("group_emptied", group=group.group_id, generation=group.generation)
        try:
            self._groups.store(group, {})
        except KafkaError as error:  # after a failover the group comes back as it was before, and its members expire
            log.warning("group_not_stored", group=group.group_id, generation=group.generation, error=str(error))

    def joined(
        self,
        group: ClassicGroup,
        member_id: str,
        *,
        with_members: bool,
        leader_id: str | None = None,
        skip_assignment: bool = False,
    ) -> JoinGroupResult:
        """The answer to a JoinGroup in the current generation."""
        return JoinGroupResult(
            member_id=member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader_id=(group.leader_id if leader_id is None else leader_id) or "",
            skip_assignment=skip_assignment,
            members=group.joined_members() if with_members else (),
        )

    # -- syncing ----------------------------------------------------------------------------------------------------

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        """The member has asked for its assignment."""
        group.pending_sync_members.pop(member_id, None)
        self._cancel_sync_timer_if_done(group)

    def _cancel_sync_timer_if_done(self, group: ClassicGroup) -> None:
        if not group.pending_sync_members:
            self._timer.cancel(_sync_key(group.group_id))

    def _expire_syncs(self, group_id: str, generation: int) -> None:
        group = self._groups.find(group_id)
        if group is None or group.generation != generation:
            return
        if not group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.pending_sync_members:
            return
        log.info("group_members_did_not_sync", group=group_id, members=list(group.pending_sync_members))
        for member_id in list(group.pending_sync_members):
            self.remove_member(group, group.members[member_id])
        self._prepare(group)

    def assign(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        """The leader's assignment is committed: everybody may have it."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        group.transition_to(GroupState.STABLE, self._clock.now_ms())
        self._metrics.rebalance_completed()
        log.info("group_stabilized", group=group.group_id, generation=group.generation)
        for member in list(group.members.values()):
            result = SyncGroupResult(ErrorCode.none, group.protocol_type, group.protocol_name, member.assignment)
            if group.answer_sync(member, result):
                self.restart_session(group, member)

    def fail_assignment(self, group: ClassicGroup, error: ErrorCode) -> None:
        """No assignment in this generation: parked SyncGroups are told why."""
        for member in list(group.members.values()):
            member.assignment = b""
            if group.answer_sync(member, SyncGroupResult(error)):
                self.restart_session(group, member)


def _session_key(group_id: str, member_id: str) -> Hashable:
    return ("session", group_id, member_id)


def _join_key(group_id: str) -> Hashable:
    return ("join", group_id)


def _sync_key(group_id: str) -> Hashable:
    return ("sync", group_id)
