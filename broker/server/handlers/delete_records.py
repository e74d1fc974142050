"""DeleteRecords: drop the records below an offset."""

import asyncio
from typing import Any

from broker.common.identifiers import TopicPartition
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE, to_milliseconds
from broker.protocol.requests import Request
from broker.replication.delayed_delete_records import DeleteRecordsResult
from broker.replication.replica_manager import ReplicaManager
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.DELETE_RECORDS, versions=range(3))
async def delete_records(request: Request, context: RequestContext, replicas: ReplicaManager) -> Any:
    """DeleteRecords: drop the records below an offset.

    Behaviour: the log start offset moves up at once (-1 means the high watermark), the answer waits until every alive
      replica has followed and tells their low watermark.  Internal topics answer INVALID_TOPIC, topics that are only
      compacted POLICY_VIOLATION, an offset above the high watermark OFFSET_OUT_OF_RANGE.  After timeout_ms
      REQUEST_TIMED_OUT; the log start offset stays moved.
    Versions:  2 flexible.
    Left out:  —
    """
    body, schema = request.body, request.schema
    offsets = {
        TopicPartition(topic.name, each.partition_index): each.offset
        for topic in body.topics
        for each in topic.partitions
    }
    answered: asyncio.Future[list[DeleteRecordsResult]] = asyncio.get_running_loop().create_future()

    def on_complete(results: list[DeleteRecordsResult]) -> None:
        if not answered.done():  # the connection may have gone
            answered.set_result(results)

    replicas.delete_records(offsets, timeout_ms=to_milliseconds(body.timeout), on_complete=on_complete)
    topics: dict[str, list[Any]] = {}
    for result in await answered:
        topic, partition = result.topic_partition
        topics.setdefault(topic, []).append(
            schema.DeleteRecordsPartitionResult(
                partition_index=partition, low_watermark=result.low_watermark, error_code=result.error
            )
        )
    return schema.DeleteRecordsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            schema.DeleteRecordsTopicResult(name=topic, partitions=tuple(partitions))
            for topic, partitions in topics.items()
        ),
    )
