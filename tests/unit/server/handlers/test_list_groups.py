import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from tests.support.group_world import GROUP
from tests.unit.server.handlers.group_support import GroupHandlers, answer_recorded, run_handlers


@pytest.mark.parametrize("version", range(6))
def test_43_every_version(version: int) -> None:
    async def story(handlers: GroupHandlers) -> None:
        await handlers.world.stable_group()
        await handlers.world.commit(group_id="simple")
        answer = await handlers.ask(
            ApiKey.LIST_GROUPS, version, "ListGroupsRequest", states_filter=("stable",), types_filter=("CLASSIC",)
        )
        assert answer.error_code is ErrorCode.none
        named = [(each.group_id, each.protocol_type) for each in answer.groups]
        assert named == [(GROUP, "consumer"), ("simple", "")][: 1 if version >= 4 else 2]
        if version >= 4:
            assert answer.groups[0].group_state == "Stable"
        if version >= 5:
            assert answer.groups[0].group_type == "classic"

    run_handlers(story)


def test_20_while_a_shard_loads() -> None:
    async def story(handlers: GroupHandlers) -> None:
        handlers.world.groups.on_resignation(0, None)
        handlers.world.groups.on_election(0, 7)
        answer = await handlers.ask(ApiKey.LIST_GROUPS, 0, "ListGroupsRequest")
        assert (answer.error_code, answer.groups) == (ErrorCode.coordinator_load_in_progress, ())

    run_handlers(story)


def test_real_clients_are_answered() -> None:
    answers = answer_recorded(ApiKey.LIST_GROUPS)
    assert {(answer.error_code, answer.groups) for _, answer in answers} == {(ErrorCode.none, ())}
