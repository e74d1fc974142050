"""ClassicGroupMember: one consumer in a classic group."""

from collections.abc import Callable

from broker.coordinator.group.group_messages import JoinGroupResult, MemberProtocol, SyncGroupResult

JoinReply = Callable[[JoinGroupResult], None]
SyncReply = Callable[[SyncGroupResult], None]


class ClassicGroupMember:
    """`join_reply` and `sync_reply` are set while the member's request is parked.

    `is_new`: its first JoinGroup is still parked, so the client cannot heartbeat and does not know its member id.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_reply",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_reply",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: tuple[MemberProtocol, ...],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        self.join_reply: JoinReply | None = None
        self.sync_reply: SyncReply | None = None

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        return self.join_reply is not None

    @property
    def is_awaiting_sync(self) -> bool:
        return self.sync_reply is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether the member counts as alive when its session timer fires: it waits for us, not we for it.

        A new member does not get this: its client may have gone, since nothing is read from it while it is parked.
        """
        return not self.is_new and (self.is_awaiting_join or self.is_awaiting_sync)

    def metadata(self, protocol_name: str) -> bytes:
        """What the member said for a protocol it offered."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        raise AssertionError(f"member {self.member_id} does not offer {protocol_name}")

    def vote(self, candidates: set[str]) -> str:
        """The first protocol on the member's list that every member offers."""
        for protocol in self.protocols:
            if protocol.name in candidates:
                return protocol.name
        raise AssertionError(f"member {self.member_id} offers none of {sorted(candidates)}")
