import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from tests.support.group_world import GROUP, RANGE
from tests.unit.server.handlers.group_support import GroupHandlers, answer_recorded, run_handlers

READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 3, 6, 8, 10, 11


@pytest.mark.parametrize("version", range(7))
def test_43_every_version(version: int) -> None:
    async def story(handlers: GroupHandlers) -> None:
        (joined,) = await handlers.world.static_group("i")
        answer = await handlers.ask(
            ApiKey.DESCRIBE_GROUPS,
            version,
            "DescribeGroupsRequest",
            groups=(GROUP, "absent"),
            include_authorized_operations=True,
        )
        group, absent = answer.groups
        assert (group.error_code, group.group_id, group.group_state, group.protocol_type, group.protocol_data) == (
            ErrorCode.none,
            GROUP,
            "Stable",
            "consumer",
            "range",
        )
        (member,) = group.members
        assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "c", "/127.0.0.1")
        assert (member.member_metadata, member.member_assignment) == (RANGE[0].metadata, b"i")
        assert (absent.group_state, absent.members, absent.protocol_type) == ("Dead", (), "")
        expected = ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none
        assert absent.error_code is expected
        if version >= 3:
            bits = sum(1 << bit for bit in (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS))
            assert group.authorized_operations == bits
            assert absent.authorized_operations == (bits if version < 6 else -(1 << 31))
        if version >= 4:
            assert member.group_instance_id == "i"
        if version >= 6:
            assert (group.error_message, absent.error_message) == (None, "Group absent not found.")

    run_handlers(story)


def test_operations_are_told_only_when_asked() -> None:
    async def story(handlers: GroupHandlers) -> None:
        await handlers.world.stable_group()
        answer = await handlers.ask(
            ApiKey.DESCRIBE_GROUPS,
            5,
            "DescribeGroupsRequest",
            groups=(GROUP,),
            include_authorized_operations=False,
        )
        assert answer.groups[0].authorized_operations == -(1 << 31)

    run_handlers(story)


def test_real_clients_are_answered() -> None:
    answers = answer_recorded(ApiKey.DESCRIBE_GROUPS)
    assert {group.group_state for _, answer in answers for group in answer.groups} == {"Dead"}
