from uuid import UUID

from broker.common.errors import ErrorCode
from broker.common.identifiers import ZERO_UUID
from broker.controller.quorum_endpoint import MetadataFetchRequest
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.unit.server.controller_handlers.controller_handler_support import controller_client


async def test_voter_and_observers_in_every_version() -> None:
    async with controller_client() as client:
        await client.controller.quorum.fetch(
            MetadataFetchRequest(
                replica_id=2,
                replica_directory_id=UUID(int=0x800),
                current_leader_epoch=1,
                fetch_offset=2,
                last_fetched_epoch=1,
                bytes_max=100,
                wait_max_ms=0,
            )
        )
        for version in range(3):
            schema = RequestSchema.of(ApiKey.DESCRIBE_QUORUM, version)
            indexes = tuple(schema.PartitionData(partition_index=index) for index in (0, 1))
            topics = (schema.TopicData(topic_name="__cluster_metadata", partitions=indexes),)
            answer = await client.ask(ApiKey.DESCRIBE_QUORUM, version, topics=topics)
            assert answer.error_code is ErrorCode.none
            known, unknown = answer.topics[0].partitions
            assert (known.leader_id, known.leader_epoch, known.high_watermark) == (1, 1, 4)
            assert [(each.replica_id, each.log_end_offset) for each in known.current_voters] == [(1, 4)]
            assert [(each.replica_id, each.log_end_offset) for each in known.observers] == [(2, 2)]
            assert unknown.error_code is ErrorCode.unknown_topic_or_partition
            if version >= 1:
                assert known.observers[0].last_caught_up_timestamp == -1
                assert known.observers[0].last_fetch_timestamp > 0
            if version >= 2:
                assert known.observers[0].replica_directory_id == UUID(int=0x800)
                assert known.current_voters[0].replica_directory_id in (None, ZERO_UUID)
                (node,) = answer.nodes
                (listener,) = node.listeners
                assert (node.node_id, listener.name, listener.host, listener.port) == (
                    1,
                    "CONTROLLER",
                    "127.0.0.1",
                    9190,
                )
