"""ClassicGroup: the members of one group and the state of their rebalance."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from broker.common.errors import FencedInstanceIdError, UnknownMemberIdError
from broker.coordinator.group.classic_group_member import ClassicGroupMember, JoinReply
from broker.coordinator.group.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerProtocolError,
    subscribed_topics,
)
from broker.coordinator.group.group_messages import JoinedMember, JoinGroupResult, MemberProtocol, SyncGroupResult
from broker.coordinator.group.group_state import VALID_PREVIOUS, GroupState
from broker.schemas.group_metadata import GroupMetadataValue

GROUP_TYPE: Final = "classic"


class ClassicGroup:
    """Facts and small steps, without timers and without the log (Kafka's ClassicGroup).

    Invariants: the leader is a member or None; `static_members` maps exactly the static members' instance ids;
    `awaiting_join_count` counts the members with a parked JoinGroup; pending members are not members.
    """

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state: GroupState | None = None
        self.state_timestamp_ms: int | None = now_ms
        self.generation = 0
        self.protocol_type: str | None = None  # None: the group only keeps offsets ("simple group")
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}  # in the order of joining: the first is the next leader
        self.static_members: dict[str, str] = {}
        self.pending_join_members: dict[str, None] = {}
        self.pending_sync_members: dict[str, None] = {}
        self.awaiting_join_count = 0
        self.new_member_added = False
        self.subscribed_topics: frozenset[str] | None = None  # None: not known
        self.stored: GroupMetadataValue | None = None  # the last record of this group in the log
        self._protocol_counts: Counter[str] = Counter()

    def is_in(self, *states: GroupState) -> bool:
        return self.state in states

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        assert self.state in VALID_PREVIOUS[state], f"group {self.group_id}: {self.state} cannot become {state}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS[GroupState.PREPARING_REBALANCE]

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance waits for everybody: the slowest member decides."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_members_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending_join_members

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def validate_member(self, member_id: str, group_instance_id: str | None) -> ClassicGroupMember:
        """The member, when it is who it says: an instance id may have passed to a newer member."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                raise UnknownMemberIdError(f"{group_instance_id} is no static member of {self.group_id}")
            if current != member_id:
                raise FencedInstanceIdError(f"{group_instance_id} is {current} now, not {member_id}")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberIdError(f"{member_id} is no member of {self.group_id}")
        return member

    def add_member(self, member: ClassicGroupMember, protocol_type: str, reply: JoinReply) -> None:
        """The first member fixes the protocol type and leads."""
        assert member.member_id not in self.members, f"{member.member_id} joins {self.group_id} twice"
        if not self.members:
            self.protocol_type = protocol_type
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members, f"{member.group_instance_id} is there already"
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        self.pending_join_members.pop(member.member_id, None)
        self.park_join(member, reply)

    def restore_member(self, member: ClassicGroupMember) -> None:
        """Add a member that a record of the group names."""
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)

    def remove_member(self, member_id: str) -> ClassicGroupMember | None:
        """Forget a member or a pending member id; whoever waits for an answer must have it before."""
        self.pending_join_members.pop(member_id, None)
        self.pending_sync_members.pop(member_id, None)
        member = self.members.get(member_id)
        if member is None:
            return None
        assert not member.is_awaiting_join, f"{member_id} is removed with an open JoinGroup"
        del self.members[member_id]
        self._count_protocols(member, -1)
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace_static_member(self, group_instance_id: str, new_member_id: str) -> ClassicGroupMember:
        """The member goes on under another id, in the same place; parked requests of the old id must be answered."""
        old_member_id = self.static_members[group_instance_id]
        member = self.members[old_member_id]
        assert not member.is_awaiting_join and not member.is_awaiting_sync, f"{old_member_id} still waits"
        member.member_id = new_member_id
        self.members = {each.member_id: each for each in self.members.values()}
        self.static_members[group_instance_id] = new_member_id
        if old_member_id in self.pending_sync_members:
            del self.pending_sync_members[old_member_id]
            self.pending_sync_members[new_member_id] = None
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        return member

    def update_member(
        self,
        member: ClassicGroupMember,
        protocols: tuple[MemberProtocol, ...],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self._count_protocols(member, 1)

    def park_join(self, member: ClassicGroupMember, reply: JoinReply) -> None:
        assert member.join_reply is None, f"{member.member_id} parks a second JoinGroup"
        member.join_reply = reply
        self.awaiting_join_count += 1

    def answer_join(self, member: ClassicGroupMember, result: JoinGroupResult) -> bool:
        """Answer a parked JoinGroup; returns whether there was one."""
        reply = member.join_reply
        if reply is None:
            return False
        member.join_reply = None
        self.awaiting_join_count -= 1
        reply(result)
        return True

    def answer_sync(self, member: ClassicGroupMember, result: SyncGroupResult) -> bool:
        """Answer a parked SyncGroup; returns whether there was one."""
        reply = member.sync_reply
        if reply is None:
            return False
        member.sync_reply = None
        reply(result)
        return True

    def supports_protocols(self, protocol_type: str, protocols: Iterable[MemberProtocol]) -> bool:
        """Whether a member with these could join without leaving the group nothing in common."""
        names = [protocol.name for protocol in protocols]
        if self.state is GroupState.EMPTY or not self.members:
            return bool(protocol_type) and bool(names)
        count = len(self.members)
        return protocol_type == self.protocol_type and any(self._protocol_counts[name] == count for name in names)

    def select_protocol(self) -> str:
        """The protocol most members prefer among those all offer; of equals the one the first voter listed first.

        Kafka leaves a tie to the order of a hash map.
        """
        count = len(self.members)
        candidates = {name for name, offered in self._protocol_counts.items() if offered == count}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)  # the first of the greatest, in the order of members

    def elect_joined_leader(self) -> bool:
        """Keep a leader that has rejoined, else take the first that has; False when nobody has rejoined."""
        leader = self.members.get(self.leader_id) if self.leader_id is not None else None
        if leader is not None and leader.is_awaiting_join:
            return True
        for member in self.members.values():
            if member.is_awaiting_join:
                self.leader_id = member.member_id
                return True
        return False

    def begin_next_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.pending_sync_members.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition_to(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.transition_to(GroupState.EMPTY, now_ms)
        self.subscribed_topics = self.compute_subscribed_topics()

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: dict[str, None] = {}
        try:
            for member in self.members.values():
                topics |= dict.fromkeys(subscribed_topics(member.metadata(self.protocol_name)))
        except ConsumerProtocolError:
            return None
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """An unknown subscription of consumers is one to everything."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """What the leader's assignor works with."""
        assert self.protocol_name is not None, f"group {self.group_id} has no protocol"
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    def _count_protocols(self, member: ClassicGroupMember, by: int) -> None:
        for name in dict.fromkeys(protocol.name for protocol in member.protocols):
            self._protocol_counts[name] += by
            if not self._protocol_counts[name]:
                del self._protocol_counts[name]
