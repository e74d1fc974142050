import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from tests.support.group_world import GROUP
from tests.unit.server.handlers.group_support import GroupHandlers, answer_recorded, run_handlers


@pytest.mark.parametrize("version", range(5))
def test_every_version(version: int) -> None:
    async def story(handlers: GroupHandlers) -> None:
        (joined,) = await handlers.world.static_group("i")

        async def beat(generation: int, member_id: str, instance_id: str | None) -> ErrorCode:
            answer = await handlers.ask(
                ApiKey.HEARTBEAT,
                version,
                "HeartbeatRequest",
                group_id=GROUP,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance_id,
            )
            return ErrorCode(answer.error_code)

        assert await beat(1, joined.member_id, None) is ErrorCode.none
        assert await beat(2, joined.member_id, None) is ErrorCode.illegal_generation
        expected = ErrorCode.fenced_instance_id if version >= 3 else ErrorCode.unknown_member_id
        assert await beat(1, "m", "i") is expected

    run_handlers(story)


def test_real_clients_are_answered() -> None:
    answers = answer_recorded(ApiKey.HEARTBEAT)
    assert {answer.error_code for _, answer in answers} == {ErrorCode.unknown_member_id}
