from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.unit.server.controller_handlers.controller_handler_support import TIMEOUT, controller_client


async def test_begin_cancel_and_errors_in_every_version() -> None:
    async with controller_client() as client:
        await client.start_brokers(1, 2)
        await client.create_topic("t", (1,), (1,))
        for version in range(2):
            schema = RequestSchema.of(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version)
            partitions = (
                schema.ReassignablePartition(partition_index=0, replicas=(2,)),
                schema.ReassignablePartition(partition_index=1, replicas=None),
                schema.ReassignablePartition(partition_index=9, replicas=(2,)),
            )
            topics = (schema.ReassignableTopic(name="t", partitions=partitions),)
            answer = await client.ask(
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                version,
                timeout=TIMEOUT,
                topics=topics,
                allow_replication_factor_change=True,
            )
            (topic,) = answer.responses
            assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
                (0, ErrorCode.none),
                (1, ErrorCode.no_reassignment_in_progress),
                (9, ErrorCode.unknown_topic_or_partition),
            ]
        partition = client.controller.image.topics.by_name["t"].partitions[0]
        assert (partition.replicas, partition.adding_replicas) == ((2, 1), (2,))


async def test_the_factor_may_be_held() -> None:
    async with controller_client() as client:
        await client.start_brokers(1, 2)
        await client.create_topic("t", (1,))
        schema = RequestSchema.of(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1)
        partition = schema.ReassignablePartition(partition_index=0, replicas=(1, 2))
        answer = await client.ask(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            1,
            timeout=TIMEOUT,
            topics=(schema.ReassignableTopic(name="t", partitions=(partition,)),),
            allow_replication_factor_change=False,
        )
        assert answer.responses[0].partitions[0].error_code is ErrorCode.invalid_replication_factor
        assert answer.allow_replication_factor_change is False
