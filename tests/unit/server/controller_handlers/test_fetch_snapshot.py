from typing import Any

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from broker.records.record_batch import batches
from tests.unit.controller.controller_support import CLUSTER_ID
from tests.unit.server.controller_handlers.controller_handler_support import ControllerClient, controller_client


async def fetch_snapshot(
    client: ControllerClient,
    version: int,
    snapshot: tuple[int, int],
    position: int,
    *,
    epoch: int = 1,
    cluster_id: str | None = CLUSTER_ID,
    topic: str = "__cluster_metadata",
) -> Any:
    schema = RequestSchema.of(ApiKey.FETCH_SNAPSHOT, version)
    partition = schema.PartitionSnapshot(
        partition=0,
        current_leader_epoch=epoch,
        snapshot_id=schema.SnapshotId(end_offset=snapshot[0], epoch=snapshot[1]),
        position=position,
        replica_directory_id=None,
    )
    topics = (schema.TopicSnapshot(name=topic, partitions=(partition,)),)
    return await client.ask(
        ApiKey.FETCH_SNAPSHOT, version, cluster_id=cluster_id, replica_id=2, max_bytes=17, topics=topics
    )


async def test_11_pieces_cut_anywhere_make_the_whole_in_every_version() -> None:
    async with controller_client() as client:
        snapshot = await client.controller.maintenance.take_snapshot()
        assert snapshot is not None
        for version in range(2):
            content, size = b"", -1
            while len(content) != size:
                answer = await fetch_snapshot(client, version, snapshot, len(content))
                (partition,) = answer.topics[0].partitions
                assert (partition.error_code, partition.position) == (ErrorCode.none, len(content))
                assert 0 < len(partition.unaligned_records) <= 17
                content, size = content + partition.unaligned_records, partition.size
            assert [batch.is_control for batch in batches(content)] == [True, False, True]
            if version:
                assert answer.node_endpoints[0].port == 9190


async def test_12_errors_have_no_bytes_and_name_the_leader() -> None:
    async with controller_client() as client:
        snapshot = await client.controller.maintenance.take_snapshot()
        assert snapshot is not None
        for wanted, position, epoch, error in (
            ((1, 1), 0, 1, ErrorCode.snapshot_not_found),
            (snapshot, 1 << 40, 1, ErrorCode.position_out_of_range),
            (snapshot, 0, 0, ErrorCode.fenced_leader_epoch),
            (snapshot, 0, 2, ErrorCode.unknown_leader_epoch),
        ):
            answer = await fetch_snapshot(client, 1, wanted, position, epoch=epoch)
            (partition,) = answer.topics[0].partitions
            assert (partition.error_code, partition.unaligned_records) == (error, b"")
            assert partition.current_leader.leader_id == 1


async def test_whole_requests_that_are_refused() -> None:
    async with controller_client() as client:
        other = await fetch_snapshot(client, 1, (1, 1), 0, cluster_id="other")
        assert other.error_code is ErrorCode.inconsistent_cluster_id
        assert (await fetch_snapshot(client, 1, (1, 1), 0, topic="t")).error_code is ErrorCode.invalid_request
