import asyncio

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.server.handlers.join_group import join_group
from tests.support.group_world import GROUP, RANGE, settle
from tests.support.requests_corpus import recorded_requests
from tests.unit.server.handlers.group_support import GroupHandlers, run_handlers


@pytest.mark.parametrize("version", range(10))
def test_every_version_becomes_a_member(version: int) -> None:
    async def story(handlers: GroupHandlers) -> None:
        answer = await handlers.join(version)
        if version >= 4:
            assert answer.error_code is ErrorCode.member_id_required
            assert answer.protocol_name == ("" if version < 7 else None)
            answer = await handlers.join(version, answer.member_id)
        assert (answer.error_code, answer.generation_id) == (ErrorCode.none, 1)
        assert answer.member_id == answer.leader and answer.member_id.startswith("client-")
        assert answer.protocol_name == "range"
        assert [(each.member_id, each.metadata) for each in answer.members] == [(answer.member_id, RANGE[0].metadata)]
        if version >= 7:
            assert answer.protocol_type == "consumer"
        if version >= 9:
            assert answer.skip_assignment is False
        group = handlers.world.shard.groups.find(GROUP)
        assert group is not None
        member = group.members[answer.member_id]
        assert (member.client_id, member.client_host) == ("client", "/10.0.0.7")
        assert member.session_timeout_ms == 10_000
        assert member.rebalance_timeout_ms == (10_000 if version == 0 else 60_000)

    run_handlers(story)


@pytest.mark.parametrize("version", range(5, 10))
def test_static_members(version: int) -> None:
    async def story(handlers: GroupHandlers) -> None:
        answer = await handlers.join(version, group_instance_id="i")
        assert answer.error_code is ErrorCode.none and answer.member_id.startswith("i-")
        assert answer.members[0].group_instance_id == "i"

    run_handlers(story)


def test_30_a_leader_that_returns_with_version_9_skips_the_assignment() -> None:
    async def story(handlers: GroupHandlers) -> None:
        await handlers.world.static_group("i")
        answer = await handlers.join(9, group_instance_id="i")
        assert (answer.skip_assignment, answer.leader) == (True, answer.member_id)
        older = await handlers.join(8, group_instance_id="i")
        assert older.leader == answer.member_id != older.member_id

    run_handlers(story)


@pytest.mark.parametrize("version", range(10))
def test_08_errors_are_written_in_every_version(version: int) -> None:
    async def story(handlers: GroupHandlers) -> None:
        answer = await handlers.join(version, "m", group_id="")
        assert (answer.error_code, answer.generation_id, answer.leader, answer.member_id, answer.members) == (
            ErrorCode.invalid_group_id,
            -1,
            "",
            "m",
            (),
        )
        assert answer.protocol_name == ("" if version < 7 else None)

    run_handlers(story)


def test_real_clients_are_answered() -> None:
    async def story(handlers: GroupHandlers) -> None:
        for recorded in recorded_requests(ApiKey.JOIN_GROUP):
            task = asyncio.create_task(handlers.answer(recorded.frame))
            await settle()
            if task.done():
                assert (await task).error_code in (
                    ErrorCode.member_id_required,
                    ErrorCode.unknown_member_id,
                    ErrorCode.inconsistent_group_protocol,
                )

    run_handlers(story)


def test_the_documentation_has_its_headings() -> None:
    for heading in ("Behaviour:", "Versions:", "Left out:"):
        assert heading in (join_group.__doc__ or "")
