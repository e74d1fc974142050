from typing import Any

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.unit.server.controller_handlers.controller_handler_support import (
    TIMEOUT,
    ControllerClient,
    controller_client,
)


async def create(client: ControllerClient, version: int, *topics: dict[str, Any], validate_only: bool = False) -> Any:
    schema = RequestSchema.of(ApiKey.CREATE_TOPICS, version)
    wanted = []
    for topic in topics:
        configs = tuple(
            schema.CreatableTopicConfig(name=name, value=value) for name, value in topic.pop("configs", {}).items()
        )
        values = {"num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": configs}
        wanted.append(schema.CreatableTopic(**{**values, **topic}))
    return await client.ask(
        ApiKey.CREATE_TOPICS, version, topics=tuple(wanted), timeout=TIMEOUT, validate_only=validate_only
    )


async def test_every_version_creates() -> None:
    async with controller_client() as client:
        await client.start_brokers(1)
        for version in range(2, 8):
            answer = await create(client, version, {"name": f"t{version}", "configs": {"retention.ms": "5"}})
            (topic,) = answer.topics
            assert (topic.name, topic.error_code) == (f"t{version}", ErrorCode.none)
            if version >= 5:
                assert (topic.num_partitions, topic.replication_factor) == (1, 1)
                configs = {config.name: (config.value, config.config_source) for config in topic.configs}
                assert configs["retention.ms"] == ("5", 1)
                assert configs["cleanup.policy"] == ("delete", 5)
            if version >= 7:
                assert topic.topic_id == client.controller.image.topics.by_name["t7"].id


async def test_errors_have_code_and_sentence_and_others_go_on() -> None:
    async with controller_client() as client:
        await client.start_brokers(1)
        topics = ({"name": "ok"}, {"name": "too-many", "replication_factor": 3}, {"name": "a b"})
        answer = await create(client, 5, *topics)
        assert [topic.error_code for topic in answer.topics] == [
            ErrorCode.none,
            ErrorCode.invalid_replication_factor,
            ErrorCode.invalid_topic_exception,
        ]
        assert "only 1 broker(s) are registered" in answer.topics[1].error_message
        assert list(client.controller.image.topics.by_name) == ["ok"]


async def test_validation_alone_and_a_request_that_is_too_large() -> None:
    async with controller_client() as client:
        await client.start_brokers(1)
        assert (await create(client, 7, {"name": "t"}, validate_only=True)).topics[0].error_code is ErrorCode.none
        large = [{"name": f"t{i}", "num_partitions": 6000} for i in range(2)]
        answer = await create(client, 7, *large)
        assert {topic.error_code for topic in answer.topics} == {ErrorCode.policy_violation}
        assert len(client.controller.image.topics) == 0
