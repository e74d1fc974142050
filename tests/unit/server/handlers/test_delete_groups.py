import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from tests.support.group_world import GROUP
from tests.unit.server.handlers.group_support import GroupHandlers, answer_recorded, run_handlers


@pytest.mark.parametrize("version", range(3))
def test_42_every_version(version: int) -> None:
    async def story(handlers: GroupHandlers) -> None:
        await handlers.world.stable_group()
        await handlers.world.commit(1, group_id="simple")
        answer = await handlers.ask(
            ApiKey.DELETE_GROUPS, version, "DeleteGroupsRequest", groups_names=("simple", GROUP, "absent", "simple")
        )
        assert [(each.group_id, each.error_code) for each in answer.results] == [
            ("simple", ErrorCode.none),
            (GROUP, ErrorCode.non_empty_group),
            ("absent", ErrorCode.group_id_not_found),
        ]

    run_handlers(story)


def test_real_clients_are_answered() -> None:
    answers = answer_recorded(ApiKey.DELETE_GROUPS)
    assert {each.error_code for _, answer in answers for each in answer.results} == {ErrorCode.group_id_not_found}
