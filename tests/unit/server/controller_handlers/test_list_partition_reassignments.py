from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.unit.server.controller_handlers.controller_handler_support import TIMEOUT, controller_client


async def test_what_moves_is_listed() -> None:
    async with controller_client() as client:
        await client.start_brokers(1, 2)
        await client.create_topic("t", (1,), (1,))
        await client.controller.alter_partition_reassignments({TopicPartition("t", 1): (2,)})
        schema = RequestSchema.of(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0)
        named = (schema.ListPartitionReassignmentsTopics(name="t", partition_indexes=(0, 1)),)
        for topics in (None, named):
            answer = await client.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout=TIMEOUT, topics=topics)
            assert answer.error_code is ErrorCode.none
            (topic,) = answer.topics
            (partition,) = topic.partitions
            assert (topic.name, partition.partition_index, partition.replicas) == ("t", 1, (2, 1))
            assert (partition.adding_replicas, partition.removing_replicas) == ((2,), (1,))
        other = (schema.ListPartitionReassignmentsTopics(name="t", partition_indexes=(0,)),)
        answer = await client.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout=TIMEOUT, topics=other)
        assert answer.topics == ()
