"""Fetch of the metadata log over the wire.  The numbers are behaviours of a KRaft controller."""

from typing import Any
from uuid import UUID

from broker.common.errors import ErrorCode
from broker.common.identifiers import METADATA_TOPIC_ID
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.protocol.response_schema import RequestSchema
from broker.records.record_batch import batches
from tests.unit.controller.controller_support import CLUSTER_ID
from tests.unit.server.controller_handlers.controller_handler_support import ControllerClient, controller_client


async def fetch(
    client: ControllerClient,
    version: int,
    *,
    cluster_id: str | None = CLUSTER_ID,
    topic_id: UUID = METADATA_TOPIC_ID,
    topics: int = 1,
    replica_id: int = 2,
    **fields: Any,
) -> Any:
    schema = RequestSchema.of(ApiKey.FETCH, version)
    values: dict[str, Any] = {
        "partition": 0,
        "current_leader_epoch": 1,
        "fetch_offset": 0,
        "last_fetched_epoch": 0,
        "log_start_offset": -1,
        "partition_max_bytes": 0,
        "replica_directory_id": None,
    }
    partition = schema.FetchPartition(**{**values, **fields})
    return await client.ask(
        ApiKey.FETCH,
        version,
        cluster_id=cluster_id,
        replica_id=replica_id,
        max_wait=milliseconds(0),
        min_bytes=0,
        max_bytes=8 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(schema.FetchTopic(topic_id=topic_id, partitions=(partition,)),) * topics,
        forgotten_topics_data=(),
        rack_id="",
        **({"replica_state": schema.ReplicaState(replica_id=replica_id, replica_epoch=-1)} if version >= 15 else {}),
    )


async def test_the_log_in_every_version() -> None:
    async with controller_client() as client:
        for version in range(13, 19):
            answer = await fetch(client, version)
            assert (answer.error_code, answer.session_id) == (ErrorCode.none, 0)
            (topic,) = answer.responses
            (partition,) = topic.partitions
            assert topic.topic_id == METADATA_TOPIC_ID
            assert (partition.error_code, partition.high_watermark, partition.log_start_offset) == (
                ErrorCode.none,
                4,
                0,
            )
            assert [batch.base_offset for batch in batches(partition.records)] == [0, 1]
            assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, 1)
            if version >= 16:
                (node,) = answer.node_endpoints
                assert (node.node_id, node.host, node.port) == (1, "127.0.0.1", 9190)
        assert client.controller.quorum.describe().observers[0].replica_id == 2


async def test_6_epoch_0_is_fenced_and_the_answer_names_the_leader() -> None:
    async with controller_client() as client:
        answer = await fetch(client, 17, current_leader_epoch=0)
        (partition,) = answer.responses[0].partitions
        assert (partition.error_code, partition.high_watermark) == (ErrorCode.fenced_leader_epoch, -1)
        assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, 1)
        assert answer.node_endpoints[0].port == 9190
        newer = await fetch(client, 17, current_leader_epoch=2)
        assert newer.responses[0].partitions[0].error_code is ErrorCode.unknown_leader_epoch


async def test_7_another_cluster_is_refused_as_a_whole() -> None:
    async with controller_client() as client:
        assert (await fetch(client, 17, cluster_id="other")).error_code is ErrorCode.inconsistent_cluster_id
        assert (await fetch(client, 17, cluster_id=None)).error_code is ErrorCode.none


async def test_other_topics_and_partitions_are_invalid() -> None:
    async with controller_client() as client:
        for fields in ({"topic_id": UUID(int=5)}, {"topics": 2}, {"topics": 0}, {"partition": 1}):
            assert (await fetch(client, 17, **fields)).error_code is ErrorCode.invalid_request


async def test_diverging_logs_and_snapshots() -> None:
    async with controller_client() as client:
        answer = await fetch(client, 17, fetch_offset=100, last_fetched_epoch=1)
        diverging = answer.responses[0].partitions[0].diverging_epoch
        assert (diverging.epoch, diverging.end_offset) == (1, 4)
        snapshot = await client.controller.maintenance.take_snapshot()
        assert snapshot is not None
        answer = await fetch(client, 17)
        found = answer.responses[0].partitions[0].snapshot_id
        assert (found.end_offset, found.epoch) == snapshot
