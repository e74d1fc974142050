from uuid import UUID

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.unit.controller.controller_support import directory_of
from tests.unit.server.controller_handlers.controller_handler_support import controller_client


async def test_each_partition_has_its_answer() -> None:
    async with controller_client() as client:
        epochs = await client.start_brokers(1)
        topic_id = await client.create_topic("t", (1,))
        schema = RequestSchema.of(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0)
        partitions = tuple(schema.PartitionData(partition_index=index) for index in (0, 5))
        topics = (
            schema.TopicData(topic_id=topic_id, partitions=partitions),
            schema.TopicData(topic_id=UUID(int=0x999), partitions=partitions[:1]),
        )
        directories = (schema.DirectoryData(id_=directory_of(1), topics=topics),)
        answer = await client.ask(
            ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, broker_id=1, broker_epoch=epochs[1], directories=directories
        )
        (directory,) = answer.directories
        assert directory.id_ == directory_of(1)
        assert [[each.error_code for each in topic.partitions] for topic in directory.topics] == [
            [ErrorCode.none, ErrorCode.unknown_topic_or_partition],
            [ErrorCode.unknown_topic_id],
        ]
        stale = await client.ask(
            ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, broker_id=1, broker_epoch=0, directories=directories
        )
        assert stale.error_code is ErrorCode.stale_broker_epoch
