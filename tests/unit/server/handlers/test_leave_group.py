import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.support.group_world import GROUP
from tests.unit.server.handlers.group_support import GroupHandlers, answer_recorded, run_handlers


@pytest.mark.parametrize("version", range(3))
def test_31_old_versions_name_one_member_and_hear_its_error(version: int) -> None:
    async def story(handlers: GroupHandlers) -> None:
        (joined,) = await handlers.world.stable_group()
        for expected in (ErrorCode.none, ErrorCode.unknown_member_id):
            answer = await handlers.ask(
                ApiKey.LEAVE_GROUP, version, "LeaveGroupRequest", group_id=GROUP, member_id=joined.member_id
            )
            assert answer.error_code is expected
        answer = await handlers.ask(ApiKey.LEAVE_GROUP, version, "LeaveGroupRequest", group_id="", member_id="m")
        assert answer.error_code is ErrorCode.invalid_group_id

    run_handlers(story)


@pytest.mark.parametrize("version", range(3, 6))
def test_31_new_versions_name_several(version: int) -> None:
    async def story(handlers: GroupHandlers) -> None:
        await handlers.world.static_group("i")
        identity = RequestSchema.of(ApiKey.LEAVE_GROUP, version).MemberIdentity
        members = (
            identity(member_id="", group_instance_id="i", reason="upgrade"),
            identity(member_id="m", group_instance_id=None, reason=None),
        )
        answer = await handlers.ask(ApiKey.LEAVE_GROUP, version, "LeaveGroupRequest", group_id=GROUP, members=members)
        assert answer.error_code is ErrorCode.none
        assert [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members] == [
            ("", "i", ErrorCode.none),
            ("m", None, ErrorCode.unknown_member_id),
        ]
        answer = await handlers.ask(ApiKey.LEAVE_GROUP, version, "LeaveGroupRequest", group_id="", members=members)
        assert (answer.error_code, answer.members) == (ErrorCode.invalid_group_id, ())

    run_handlers(story)


def test_real_clients_are_answered() -> None:
    for version, answer in answer_recorded(ApiKey.LEAVE_GROUP):
        code = answer.error_code if version < 3 else answer.members[0].error_code
        assert code is ErrorCode.unknown_member_id
