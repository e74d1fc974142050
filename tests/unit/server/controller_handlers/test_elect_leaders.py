from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.unit.controller.controller_support import beat
from tests.unit.server.controller_handlers.controller_handler_support import TIMEOUT, controller_client


async def test_every_version_answers_by_topic() -> None:
    async with controller_client() as client:
        await client.start_brokers(1)
        await client.create_topic("t", (1,))
        for version in range(3):
            schema = RequestSchema.of(ApiKey.ELECT_LEADERS, version)
            partitions = (schema.TopicPartitions(topic="t", partitions=(0, 5)),)
            answer = await client.ask(
                ApiKey.ELECT_LEADERS, version, topic_partitions=partitions, timeout=TIMEOUT, election_type=0
            )
            (topic,) = answer.replica_election_results
            assert topic.topic == "t"
            assert [(each.partition_id, each.error_code) for each in topic.partition_result] == [
                (0, ErrorCode.election_not_needed),
                (5, ErrorCode.unknown_topic_or_partition),
            ]


async def test_all_partitions_and_a_type_there_is_not() -> None:
    async with controller_client() as client:
        epochs = await client.start_brokers(1, 2)
        await client.create_topic("t", (1, 2))
        await beat(client.controller, 2, epochs[2], want_fence=True)
        await beat(client.controller, 1, epochs[1], want_fence=True)
        await beat(client.controller, 2, epochs[2])
        answer = await client.ask(ApiKey.ELECT_LEADERS, 2, topic_partitions=None, timeout=TIMEOUT, election_type=1)
        assert answer.replica_election_results[0].partition_result[0].error_code is ErrorCode.none
        assert client.controller.image.topics.by_name["t"].partitions[0].leader == 2
        answer = await client.ask(ApiKey.ELECT_LEADERS, 2, topic_partitions=None, timeout=TIMEOUT, election_type=9)
        assert answer.error_code is ErrorCode.invalid_request
