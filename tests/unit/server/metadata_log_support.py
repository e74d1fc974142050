"""Batches of a metadata log as a controller writes them, and a controller that serves them."""

from collections.abc import Sequence
from typing import Any

from broker.common.errors import ErrorCode
from broker.common.identifiers import METADATA_TOPIC_ID
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.response_schema import ResponseSchema
from broker.records.memory_records_builder import MemoryRecordsBuilder
from broker.schemas import cluster_metadata as records
from broker.server.controller_finder import Endpoint
from tests.unit.server.link_support import FakeController

FETCH_VERSION = 18


def batch(base_offset: int, *values: Any, epoch: int = 1) -> bytes:
    """One batch of records, or of raw values."""
    builder = MemoryRecordsBuilder(base_offset, partition_leader_epoch=epoch)
    for value in values:
        builder.append(0, None, value if isinstance(value, bytes) else records.encode(value))
    return bytes(builder.build())


def control_batch(base_offset: int, epoch: int = 1) -> bytes:
    builder = MemoryRecordsBuilder(base_offset, partition_leader_epoch=epoch, is_control=True)
    builder.append(0, b"\x00\x00\x00\x02", b"\x00\x00")
    return bytes(builder.build())


def topic(number: int) -> Any:
    from uuid import UUID

    return records.TopicRecord(name=f"t{number}", topic_id=UUID(int=0x1000 + number))


def fetch_answer(
    *,
    leader: tuple[int, int] = (1, 1),
    data: bytes = b"",
    high_watermark: int = -1,
    error: ErrorCode = ErrorCode.none,
    top_error: ErrorCode = ErrorCode.none,
    diverging: tuple[int, int] | None = None,
    snapshot: tuple[int, int] | None = None,
    endpoints: dict[int, Endpoint] | None = None,
) -> Any:
    schema = ResponseSchema.of(ApiKey.FETCH, FETCH_VERSION)
    tags: dict[str, Any] = {}
    if diverging is not None:
        tags["diverging_epoch"] = schema.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
    if snapshot is not None:
        tags["snapshot_id"] = schema.SnapshotId(end_offset=snapshot[0], epoch=snapshot[1])
    partition = schema.PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=high_watermark,
        current_leader=schema.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
        aborted_transactions=None,
        records=data,
        **tags,
    )
    return schema.FetchResponse(
        throttle_time=NO_THROTTLE,
        error_code=top_error,
        session_id=0,
        responses=(schema.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(partition,)),),
        node_endpoints=tuple(
            schema.NodeEndpoint(node_id=node, host=endpoint.host, port=endpoint.port, rack=None)
            for node, endpoint in (endpoints or {}).items()
        ),
    )


def snapshot_answer(
    content: bytes,
    position: int,
    size: int | None = None,
    error: ErrorCode = ErrorCode.none,
    end: tuple[int, int] = (0, 0),
) -> Any:
    schema = ResponseSchema.of(ApiKey.FETCH_SNAPSHOT, 1)
    partition = schema.PartitionSnapshot(
        index=0,
        error_code=error,
        snapshot_id=schema.SnapshotId(end_offset=end[0], epoch=end[1]),
        current_leader=schema.LeaderIdAndEpoch(leader_id=1, leader_epoch=1),
        size=len(content) if size is None else size,
        position=position,
        unaligned_records=content,
    )
    return schema.FetchSnapshotResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        topics=(schema.TopicSnapshot(name="__cluster_metadata", partitions=(partition,)),),
    )


def script(controller: FakeController, answers: Sequence[Any]) -> None:
    """Answer fetches with these, in order."""
    left = list(answers)
    controller.answers[ApiKey.FETCH] = lambda request: left.pop(0)
