from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.unit.server.controller_handlers.controller_handler_support import TIMEOUT, controller_client


async def test_every_version_grows_a_topic() -> None:
    async with controller_client() as client:
        await client.start_brokers(1, 2)
        await client.create_topic("t", (1, 2))
        for version in range(4):
            schema = RequestSchema.of(ApiKey.CREATE_PARTITIONS, version)
            by_hand = (schema.CreatePartitionsAssignment(broker_ids=(2, 1)),)
            topics = (
                schema.CreatePartitionsTopic(name="t", count=version + 2, assignments=by_hand if version else None),
                schema.CreatePartitionsTopic(name="x", count=5, assignments=None),
            )
            answer = await client.ask(
                ApiKey.CREATE_PARTITIONS, version, topics=topics, timeout=TIMEOUT, validate_only=False
            )
            assert [(each.name, each.error_code) for each in answer.results] == [
                ("t", ErrorCode.none),
                ("x", ErrorCode.unknown_topic_or_partition),
            ]
        partitions = client.controller.image.topics.by_name["t"].partitions
        assert len(partitions) == 5
        assert partitions[4].replicas == (2, 1)


async def test_what_is_no_increase_is_refused_with_a_sentence() -> None:
    async with controller_client() as client:
        await client.start_brokers(1)
        await client.create_topic("t", (1,))
        schema = RequestSchema.of(ApiKey.CREATE_PARTITIONS, 3)
        topics = (schema.CreatePartitionsTopic(name="t", count=1, assignments=None),)
        answer = await client.ask(ApiKey.CREATE_PARTITIONS, 3, topics=topics, timeout=TIMEOUT, validate_only=False)
        assert answer.results[0].error_code is ErrorCode.invalid_partitions
        assert answer.results[0].error_message == "Topic already has 1 partition(s)."
