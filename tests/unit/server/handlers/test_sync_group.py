import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.support.group_world import GROUP
from tests.unit.server.handlers.group_support import GroupHandlers, answer_recorded, run_handlers


@pytest.mark.parametrize("version", range(6))
def test_every_version_gets_its_assignment(version: int) -> None:
    async def story(handlers: GroupHandlers) -> None:
        joined = await handlers.join(3)
        assignment = RequestSchema.of(ApiKey.SYNC_GROUP, version).SyncGroupRequestAssignment
        answer = await handlers.ask(
            ApiKey.SYNC_GROUP,
            version,
            "SyncGroupRequest",
            group_id=GROUP,
            generation_id=1,
            member_id=joined.member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=(assignment(member_id=joined.member_id, assignment=b"mine"),),
        )
        assert (answer.error_code, answer.assignment) == (ErrorCode.none, b"mine")
        if version >= 5:
            assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
        assert handlers.world.describe() == ("Stable", 1)

    run_handlers(story)


@pytest.mark.parametrize(("version", "error"), [(4, ErrorCode.none), (5, ErrorCode.inconsistent_group_protocol)])
def test_17_version_5_must_name_the_protocol(version: int, error: ErrorCode) -> None:
    async def story(handlers: GroupHandlers) -> None:
        joined = await handlers.join(3)
        answer = await handlers.ask(
            ApiKey.SYNC_GROUP,
            version,
            "SyncGroupRequest",
            group_id=GROUP,
            generation_id=1,
            member_id=joined.member_id,
            group_instance_id=None,
            protocol_type=None,
            protocol_name=None,
            assignments=(),
        )
        assert answer.error_code is error

    run_handlers(story)


def test_real_clients_are_answered() -> None:
    answers = answer_recorded(ApiKey.SYNC_GROUP)
    assert answers
    assert {answer.error_code for _, answer in answers} == {ErrorCode.unknown_member_id}
