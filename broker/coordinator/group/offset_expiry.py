"""OffsetExpiry: when the committed offsets of a group are too old (KIP-211)."""

from dataclasses import dataclass
from typing import Self

from broker.common.identifiers import NO_TIMESTAMP
from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.committed_offset import CommittedOffset
from broker.coordinator.group.group_state import GroupState


@dataclass(frozen=True, slots=True)
class OffsetExpiry:
    """`empty_since_ms` is when the last member left; without it the age of each commit counts."""

    retention_ms: int
    empty_since_ms: int | None
    kept_topics: frozenset[str]

    @classmethod
    def of(cls, group: ClassicGroup, retention_ms: int) -> Self | None:
        """The rule for a group as it is now; None: nothing expires (ClassicGroup.offsetExpirationCondition)."""
        if group.protocol_type is None:
            return cls(retention_ms, None, frozenset())
        if group.state is GroupState.EMPTY:
            return cls(retention_ms, group.state_timestamp_ms, frozenset())
        if group.state is GroupState.STABLE and group.uses_consumer_protocol and group.subscribed_topics is not None:
            return cls(retention_ms, None, group.subscribed_topics)
        return None

    def is_expired(self, topic: str, offset: CommittedOffset, now_ms: int) -> bool:
        if topic in self.kept_topics:
            return False
        if offset.expire_timestamp_ms != NO_TIMESTAMP:
            return now_ms >= offset.expire_timestamp_ms
        base_ms = offset.commit_timestamp_ms if self.empty_since_ms is None else self.empty_since_ms
        return now_ms - base_ms >= self.retention_ms
