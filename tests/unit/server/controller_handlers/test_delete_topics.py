from uuid import UUID

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.unit.server.controller_handlers.controller_handler_support import TIMEOUT, controller_client


async def test_by_name_in_every_version() -> None:
    async with controller_client() as client:
        await client.start_brokers(1)
        for version in range(1, 6):
            await client.create_topic("t", (1,))
            answer = await client.ask(ApiKey.DELETE_TOPICS, version, topic_names=("t", "x"), timeout=TIMEOUT)
            assert [(each.name, each.error_code) for each in answer.responses] == [
                ("t", ErrorCode.none),
                ("x", ErrorCode.unknown_topic_or_partition),
            ]
            assert len(client.controller.image.topics) == 0


async def test_by_id_since_version_6() -> None:
    async with controller_client() as client:
        await client.start_brokers(1)
        topic_id = await client.create_topic("t", (1,))
        await client.create_topic("u", (1,))
        schema = RequestSchema.of(ApiKey.DELETE_TOPICS, 6)
        wanted = (
            schema.DeleteTopicState(name=None, topic_id=topic_id),
            schema.DeleteTopicState(name="u", topic_id=None),
            schema.DeleteTopicState(name=None, topic_id=UUID(int=0x999)),
        )
        answer = await client.ask(ApiKey.DELETE_TOPICS, 6, topics=wanted, timeout=TIMEOUT)
        assert {each.name: each.error_code for each in answer.responses} == {
            "t": ErrorCode.none,
            "u": ErrorCode.none,
            None: ErrorCode.unknown_topic_id,
        }
        assert topic_id in {each.topic_id for each in answer.responses}


async def test_disabled_deletion_answers_every_topic() -> None:
    async with controller_client(delete__topic__enable="false") as client:
        answer = await client.ask(ApiKey.DELETE_TOPICS, 5, topic_names=("t", "u"), timeout=TIMEOUT)
        assert [each.error_code for each in answer.responses] == [ErrorCode.topic_deletion_disabled] * 2
