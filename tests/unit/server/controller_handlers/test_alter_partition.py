from typing import Any

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.unit.server.controller_handlers.controller_handler_support import controller_client


async def test_an_isr_changes_in_every_version() -> None:
    async with controller_client() as client:
        epochs = await client.start_brokers(1, 2)
        topic_id = await client.create_topic("t", (1, 2))
        for version, isr in ((2, (1,)), (3, (1, 2))):
            schema = RequestSchema.of(ApiKey.ALTER_PARTITION, version)
            partition: Any = schema.PartitionData(
                partition_index=0,
                leader_epoch=0,
                new_isr=isr,
                new_isr_with_epochs=tuple(
                    schema.BrokerState(broker_id=each, broker_epoch=epochs[each]) for each in isr
                ),
                leader_recovery_state=0,
                partition_epoch=version - 2,
            )
            topics = (schema.TopicData(topic_id=topic_id, partitions=(partition,)),)
            answer = await client.ask(
                ApiKey.ALTER_PARTITION, version, broker_id=1, broker_epoch=epochs[1], topics=topics
            )
            assert answer.topics[0].topic_id == topic_id
            (result,) = answer.topics[0].partitions
            assert (result.error_code, result.isr, result.partition_epoch) == (ErrorCode.none, isr, version - 1)
            assert (result.leader_id, result.leader_epoch) == (1, 0)


async def test_32_a_stale_broker_epoch_fails_the_whole_request() -> None:
    async with controller_client() as client:
        epochs = await client.start_brokers(1)
        before = client.controller.log_end_offset
        answer = await client.ask(ApiKey.ALTER_PARTITION, 3, broker_id=1, broker_epoch=epochs[1] - 1, topics=())
        assert answer.error_code is ErrorCode.stale_broker_epoch
        assert client.controller.log_end_offset == before
