"""What a group coordinator is asked and what it answers: the wire's requests without their versions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.common.errors import ErrorCode
from broker.common.identifiers import NO_EPOCH, NO_OFFSET

UNKNOWN_MEMBER_ID = ""  # "I have no member id yet"
UNKNOWN_GENERATION = -1  # "I am not a member"
NO_RETENTION_TIME = -1


class MemberProtocol(NamedTuple):
    """One way to assign, with what the assignor of the leader must know of the member."""

    name: str
    metadata: bytes


class JoinedMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupRequest:
    """`requires_known_member_id`: KIP-394, from version 4.  `supports_skipping_assignment`: KIP-814, from version 9."""

    group_id: str
    member_id: str
    group_instance_id: str | None = None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    client_id: str
    client_host: str
    requires_known_member_id: bool
    supports_skipping_assignment: bool


@dataclass(frozen=True, slots=True)
class JoinGroupResult:
    error: ErrorCode = ErrorCode.none
    member_id: str = UNKNOWN_MEMBER_ID
    generation: int = UNKNOWN_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = UNKNOWN_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupRequest:
    """`requires_protocol`: protocol type and name must be given (KIP-559, from version 5)."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)
    requires_protocol: bool = False


@dataclass(frozen=True, slots=True)
class SyncGroupResult:
    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None


class MemberIdentity(NamedTuple):
    member_id: str
    group_instance_id: str | None = None


class MemberResult(NamedTuple):
    member_id: str
    group_instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveGroupResult:
    error: ErrorCode = ErrorCode.none
    members: tuple[MemberResult, ...] = ()


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None
    commit_timestamp_ms: int | None = None  # only version 1 had it


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequest:
    """`knows_group_id_not_found`: an unknown group is GROUP_ID_NOT_FOUND rather than ILLEGAL_GENERATION (version 9)."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None
    retention_time_ms: int = NO_RETENTION_TIME
    offsets: tuple[OffsetToCommit, ...]
    knows_group_id_not_found: bool = False


class TopicPartitionError(NamedTuple):
    topic: str
    partition: int
    error: ErrorCode


class FetchedOffset(NamedTuple):
    """Offset -1 with no error: nothing was committed."""

    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.none


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequest:
    """`topics` None: everything the group has committed."""

    group_id: str
    topics: Mapping[str, tuple[int, ...]] | None
    require_stable: bool = False


@dataclass(frozen=True, slots=True)
class OffsetFetchResult:
    error: ErrorCode = ErrorCode.none
    topics: Mapping[str, tuple[FetchedOffset, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OffsetDeleteResult:
    error: ErrorCode = ErrorCode.none
    partitions: tuple[TopicPartitionError, ...] = ()


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    group_id: str
    error: ErrorCode = ErrorCode.none
    error_message: str | None = None
    state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedMember, ...] = ()


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    group_type: str
