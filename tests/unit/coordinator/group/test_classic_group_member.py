import pytest

from broker.coordinator.group.classic_group_member import ClassicGroupMember
from broker.coordinator.group.group_messages import MemberProtocol


def member(group_instance_id: str | None = None) -> ClassicGroupMember:
    protocols = (MemberProtocol("x", b"1"), MemberProtocol("y", b"2"))
    return ClassicGroupMember("m", group_instance_id, "c", "/h", 1, 2, protocols)


def test_protocols_and_votes() -> None:
    assert member().metadata("y") == b"2"
    assert (member().vote({"y"}), member().vote({"y", "x"})) == ("y", "x")
    with pytest.raises(AssertionError, match="does not offer z"):
        member().metadata("z")
    with pytest.raises(AssertionError, match="offers none"):
        member().vote({"z"})


def test_22_who_is_parked_counts_as_alive_unless_new() -> None:
    each = member("i")
    assert each.is_static and not member().is_static
    assert not each.has_satisfied_heartbeat
    each.join_reply = lambda _: None
    assert each.is_awaiting_join and each.has_satisfied_heartbeat
    each.is_new = True
    assert not each.has_satisfied_heartbeat
    each.is_new, each.join_reply, each.sync_reply = False, None, lambda _: None
    assert each.is_awaiting_sync and each.has_satisfied_heartbeat
