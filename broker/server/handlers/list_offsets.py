"""ListOffsets: offsets by timestamp, earliest, latest."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from broker.common.errors import ErrorCode, KafkaError
from broker.common.identifiers import NO_EPOCH, TopicPartition
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE, to_milliseconds
from broker.protocol.requests import Request
from broker.replication.offset_lookup import ListedOffset, OffsetQuery, RemoteOffsetLookup
from broker.replication.replica_manager import ReplicaManager
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.LIST_OFFSETS, versions=range(1, 11))
def list_offsets(request: Request, context: RequestContext, replicas: ReplicaManager) -> Any:
    """ListOffsets: offsets by timestamp, earliest, latest.

    Behaviour: -1 latest is the high watermark, for read_committed the last stable offset, for replicas the log end;
      -2 earliest, in remote storage if the log begins there; -3 the record with the largest timestamp of the local
      log; -4 the first offset of the local log, for topics that are not tiered as -2; -5 the last offset in remote
      storage, -1 if there is none, with epoch -1 once the log starts after it.  A record at or above what the asking
      side may see is answered with offset -1.  Right after an election, while the high watermark is below the start of
      the leader's epoch, OFFSET_NOT_AVAILABLE (KIP-207).  A special timestamp that the version does not know answers
      UNSUPPORTED_VERSION for its partition.  A partition that is asked for twice answers INVALID_REQUEST.
      A timestamp is looked for in remote storage first if the log begins there; the request then waits for all its
      partitions until timeout_ms, or remote.list.offsets.request.timeout.ms, are over: those without an answer are
      REQUEST_TIMED_OUT.
    Versions:  2 isolation level · 4 leader epochs · 5 OFFSET_NOT_AVAILABLE instead of LEADER_NOT_AVAILABLE ·
      7 max timestamp · 8 earliest local · 9 latest tiered · 10 timeout.
    Left out:  -6 earliest pending upload (version 11).
    """
    body = request.body
    asked = Counter((topic.name, each.partition_index) for topic in body.topics for each in topic.partitions)
    outcomes: list[ListedOffset | RemoteOffsetLookup] = []
    is_listed = True
    for topic in body.topics:
        for each in topic.partitions:
            if asked[topic.name, each.partition_index] > 1:
                outcome: ListedOffset | RemoteOffsetLookup = ListedOffset(error=ErrorCode.invalid_request)
            else:
                outcome = _find(replicas, request, topic.name, each)
                is_listed = is_listed and isinstance(outcome, ListedOffset)
            outcomes.append(outcome)
    if is_listed:
        return _response(request, outcomes)
    return _wait(replicas, request, outcomes)


def _find(replicas: ReplicaManager, request: Request, topic: str, asked: Any) -> ListedOffset | RemoteOffsetLookup:
    body = request.body
    query = OffsetQuery(
        asked.timestamp,
        request.version,
        body.replica_id,
        getattr(body, "isolation_level", 0),
        getattr(asked, "current_leader_epoch", NO_EPOCH),
    )
    try:
        return replicas.list_offset(TopicPartition(topic, asked.partition_index), query)
    except KafkaError as error:
        return ListedOffset(error=error.code)


def _wait(
    replicas: ReplicaManager, request: Request, outcomes: Sequence[ListedOffset | RemoteOffsetLookup]
) -> "asyncio.Future[Any]":
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def on_listed(results: list[ListedOffset]) -> None:
        if not answered.done():  # the connection may have gone
            answered.set_result(_response(request, results))

    timeout_ms = to_milliseconds(getattr(request.body, "timeout", NO_THROTTLE))
    operation = replicas.remote_offset_lookups.wait(outcomes, timeout_ms, on_listed)
    answered.add_done_callback(
        lambda done: replicas.remote_offset_lookups.cancel(operation) if done.cancelled() else None
    )
    return answered


def _response(request: Request, results: Sequence[Any]) -> Any:
    """`results` are ListedOffsets in the order of the request."""
    schema = request.schema
    each_result = iter(results)
    return schema.ListOffsetsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            schema.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(_answer(schema, each.partition_index, next(each_result)) for each in topic.partitions),
            )
            for topic in request.body.topics
        ),
    )


def _answer(schema: Any, partition: int, found: ListedOffset) -> Any:
    return schema.ListOffsetsPartitionResponse(
        partition_index=partition,
        error_code=found.error,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )
