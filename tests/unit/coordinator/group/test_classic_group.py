import pytest

from broker.common.errors import FencedInstanceIdError, UnknownMemberIdError
from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.classic_group_member import ClassicGroupMember
from broker.coordinator.group.group_messages import JoinGroupResult, MemberProtocol
from broker.coordinator.group.group_state import GroupState
from tests.support.group_world import protocols, subscription


def add(
    group: ClassicGroup, member_id: str, *names: str, group_instance_id: str | None = None, metadata: bytes = b""
) -> ClassicGroupMember:
    offered = protocols(*(names or ("range",)), metadata=metadata)
    member = ClassicGroupMember(member_id, group_instance_id, "c", "/h", 1000 * len(group.members), 5, offered)
    group.add_member(member, "consumer", lambda _: None)
    return member


def new_group() -> ClassicGroup:
    return ClassicGroup("g", 100)


def test_transitions_are_stamped_and_checked() -> None:
    group = new_group()
    group.transition_to(GroupState.PREPARING_REBALANCE, 200)
    assert (group.previous_state, group.state_timestamp_ms) == (GroupState.EMPTY, 200)
    assert not group.can_rebalance
    with pytest.raises(AssertionError, match="cannot become"):
        group.transition_to(GroupState.STABLE, 300)
    assert group.is_in(GroupState.PREPARING_REBALANCE, GroupState.DEAD)


def test_the_first_member_leads_and_the_next_follows_it() -> None:
    group = new_group()
    for member_id in ("a", "b", "c"):
        add(group, member_id)
    assert group.leader_id == "a" and group.protocol_type == "consumer" and group.rebalance_timeout_ms == 2000
    assert group.has_all_members_joined
    for member_id in ("a", "b"):
        group.answer_join(group.members[member_id], JoinGroupResult())
    assert not group.has_all_members_joined
    group.remove_member("a")
    assert group.leader_id == "b"
    assert group.elect_joined_leader() and group.leader_id == "c"
    group.remove_member("b")
    assert group.has_all_members_joined
    group.pending_join_members["p"] = None
    assert not group.has_all_members_joined
    assert group.remove_member("p") is None and group.has_all_members_joined


def test_a_member_with_an_open_join_is_not_removed() -> None:
    group = new_group()
    add(group, "a")
    with pytest.raises(AssertionError, match="open JoinGroup"):
        group.remove_member("a")
    with pytest.raises(AssertionError, match="second JoinGroup"):
        group.park_join(group.members["a"], lambda _: None)
    with pytest.raises(AssertionError, match="twice"):
        add(group, "a")


def test_29_who_is_who() -> None:
    group = new_group()
    static, dynamic = add(group, "s", group_instance_id="i"), add(group, "d")
    assert group.validate_member("s", "i") is static and group.validate_member("s", None) is static
    assert group.validate_member("d", None) is dynamic
    for member_id, instance_id in (("x", None), ("x", "j"), ("d", "j")):
        with pytest.raises(UnknownMemberIdError):
            group.validate_member(member_id, instance_id)
    for member_id in ("x", "d"):
        with pytest.raises(FencedInstanceIdError):
            group.validate_member(member_id, "i")


def test_28_a_static_member_goes_on_in_its_place() -> None:
    group = new_group()
    static = add(group, "s", group_instance_id="i")
    add(group, "d")
    group.answer_join(static, JoinGroupResult())
    group.pending_sync_members["s"] = None
    assert group.replace_static_member("i", "s2") is static
    assert (list(group.members), group.leader_id, group.static_members) == (["s2", "d"], "s2", {"i": "s2"})
    assert list(group.pending_sync_members) == ["s2"]
    group.remove_member("s2")
    assert group.static_members == {} and group.leader_id == "d"


def test_10_and_12_protocols_in_common() -> None:
    group = new_group()
    assert group.supports_protocols("consumer", protocols("x"))
    assert not group.supports_protocols("", protocols("x")) and not group.supports_protocols("consumer", ())
    add(group, "a", "x", "y")
    add(group, "b", "y", "x", "y")
    group.transition_to(GroupState.PREPARING_REBALANCE, 1)
    assert group.supports_protocols("consumer", protocols("z", "y"))
    assert not group.supports_protocols("connect", protocols("y"))
    group.update_member(group.members["b"], protocols("y"), 7, 8)
    assert not group.supports_protocols("consumer", protocols("x"))
    assert (group.members["b"].rebalance_timeout_ms, group.members["b"].session_timeout_ms) == (7, 8)


def test_11_votes() -> None:
    group = new_group()
    add(group, "a", "x", "y")
    add(group, "b", "y", "x")
    assert group.select_protocol() == "x"
    add(group, "c", "y", "x")
    assert group.select_protocol() == "y"


def test_generations_and_subscriptions() -> None:
    group = new_group()
    add(group, "a", metadata=subscription("t", "u"))
    add(group, "b", metadata=subscription("v"))
    assert not group.is_subscribed_to("other") or group.subscribed_topics is None
    group.transition_to(GroupState.PREPARING_REBALANCE, 1)
    group.begin_next_generation(2)
    assert (group.generation, group.state, group.protocol_name) == (1, GroupState.COMPLETING_REBALANCE, "range")
    assert group.subscribed_topics == {"t", "u", "v"}
    assert group.is_subscribed_to("v") and not group.is_subscribed_to("w")
    assert [(each.member_id, each.metadata) for each in group.joined_members()] == [
        ("a", subscription("t", "u")),
        ("b", subscription("v")),
    ]
    group.transition_to(GroupState.PREPARING_REBALANCE, 3)
    for member in list(group.members.values()):
        group.answer_join(member, JoinGroupResult())
        group.remove_member(member.member_id)
    group.begin_next_generation(4)
    assert (group.generation, group.state, group.protocol_name) == (2, GroupState.EMPTY, None)
    assert group.subscribed_topics == frozenset() and not group.is_subscribed_to("t")


def test_unknown_subscriptions() -> None:
    group = new_group()
    add(group, "a", metadata=b"?")
    group.transition_to(GroupState.PREPARING_REBALANCE, 1)
    group.begin_next_generation(2)
    assert group.subscribed_topics is None and group.is_subscribed_to("any")
    group.protocol_type = "connect"
    assert not group.is_subscribed_to("any") and group.compute_subscribed_topics() is None


def test_a_member_restored_from_a_record_is_counted() -> None:
    group = new_group()
    offered = (MemberProtocol("range", b""),)
    group.restore_member(ClassicGroupMember("m", "i", "c", "/h", 1, 2, offered))
    assert group.select_protocol() == "range" and group.static_members == {"i": "m"}
    assert not group.has_all_members_joined
