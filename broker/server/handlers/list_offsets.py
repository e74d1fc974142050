"""ListOffsets: offsets by timestamp, earliest, latest."""

from collections import Counter
from typing import Any

from broker.common.errors import ErrorCode, KafkaError
from broker.common.identifiers import TopicPartition
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.replication.offset_lookup import NOT_FOUND, ListedOffset
from broker.replication.replica_manager import ReplicaManager
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.LIST_OFFSETS, versions=range(1, 11))
def list_offsets(request: Request, context: RequestContext, replicas: ReplicaManager) -> Any:
    """ListOffsets: offsets by timestamp, earliest, latest.

    Behaviour: -1 latest is the high watermark, for read_committed the last stable offset, for replicas the log end;
      -2 earliest, -3 the record with the largest timestamp, -4 earliest local, -5 latest tiered (nothing is tiered:
      -1).  A record at or above what the asking side may see is answered with offset -1.  Right after an election,
      while the high watermark is below the start of the leader's epoch, OFFSET_NOT_AVAILABLE (KIP-207).
      A partition that is asked for twice answers INVALID_REQUEST.
    Versions:  2 isolation level · 4 leader epochs · 5 OFFSET_NOT_AVAILABLE instead of LEADER_NOT_AVAILABLE ·
      7 max timestamp · 8 earliest local · 9 latest tiered · 10 timeout (accepted: nothing waits).
    Left out:  searching remote segments.
    """
    body, schema = request.body, request.schema
    asked = Counter((topic.name, each.partition_index) for topic in body.topics for each in topic.partitions)

    def answer(topic: str, each: Any) -> Any:
        error, found = ErrorCode.none, NOT_FOUND
        if asked[topic, each.partition_index] > 1:
            error = ErrorCode.invalid_request
        else:
            try:
                found = _find(TopicPartition(topic, each.partition_index), each)
            except KafkaError as failure:
                error = failure.code
        return schema.ListOffsetsPartitionResponse(
            partition_index=each.partition_index,
            error_code=error,
            timestamp=found.timestamp,
            offset=found.offset,
            leader_epoch=found.leader_epoch,
        )

    def _find(topic_partition: TopicPartition, each: Any) -> ListedOffset:
        return replicas.list_offset(
            topic_partition,
            each.timestamp,
            version=request.version,
            replica_id=body.replica_id,
            isolation_level=getattr(body, "isolation_level", 0),
            current_leader_epoch=getattr(each, "current_leader_epoch", -1),
        )

    return schema.ListOffsetsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            schema.ListOffsetsTopicResponse(
                name=topic.name, partitions=tuple(answer(topic.name, each) for each in topic.partitions)
            )
            for topic in body.topics
        ),
    )
