import pytest

from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.committed_offset import CommittedOffset
from broker.coordinator.group.group_state import GroupState
from broker.coordinator.group.offset_expiry import OffsetExpiry


def group(protocol_type: str | None, state: GroupState, topics: frozenset[str] | None = None) -> ClassicGroup:
    made = ClassicGroup("g", 1000)
    made.protocol_type, made.state, made.subscribed_topics = protocol_type, state, topics
    return made


def test_40_the_rules() -> None:
    none = frozenset[str]()
    assert OffsetExpiry.of(group(None, GroupState.EMPTY), 10) == OffsetExpiry(10, None, none)
    assert OffsetExpiry.of(group("consumer", GroupState.EMPTY), 10) == OffsetExpiry(10, 1000, none)
    old = group("consumer", GroupState.EMPTY)
    old.state_timestamp_ms = None  # stored before the time of a state was
    assert OffsetExpiry.of(old, 10) == OffsetExpiry(10, None, none)
    topics = frozenset({"t"})
    assert OffsetExpiry.of(group("consumer", GroupState.STABLE, topics), 10) == OffsetExpiry(10, None, topics)
    assert OffsetExpiry.of(group("consumer", GroupState.STABLE, None), 10) is None
    assert OffsetExpiry.of(group("connect", GroupState.STABLE, topics), 10) is None
    assert OffsetExpiry.of(group("consumer", GroupState.PREPARING_REBALANCE, topics), 10) is None
    assert OffsetExpiry.of(group("consumer", GroupState.COMPLETING_REBALANCE, topics), 10) is None


@pytest.mark.parametrize(
    ("empty_since_ms", "expire_timestamp_ms", "now_ms", "expired"),
    [
        (None, -1, 509, False),  # committed at 500, kept for 10
        (None, -1, 510, True),
        (600, -1, 609, False),
        (600, -1, 610, True),
        (600, 530, 529, False),
        (600, 530, 530, True),
        (None, 0, 0, True),
    ],
)
def test_40_the_clock(empty_since_ms: int | None, expire_timestamp_ms: int, now_ms: int, expired: bool) -> None:
    expiry = OffsetExpiry(10, empty_since_ms, frozenset({"kept"}))
    offset = CommittedOffset(1, -1, "", 500, expire_timestamp_ms)
    assert expiry.is_expired("t", offset, now_ms) is expired
    assert expiry.is_expired("kept", offset, now_ms) is False
