"""OffsetForLeaderEpoch: where an epoch ended, so that a reader sees whether its log diverged."""

from typing import Any

from broker.common.errors import ErrorCode, KafkaError
from broker.common.identifiers import TopicPartition
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.replication.fetch_params import CONSUMER_REPLICA_ID
from broker.replication.offset_lookup import EpochEnd
from broker.replication.replica_manager import ReplicaManager
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=range(2, 5))
def offset_for_leader_epoch(request: Request, context: RequestContext, replicas: ReplicaManager) -> Any:
    """OffsetForLeaderEpoch: where an epoch ended, so that a reader sees whether its log diverged.

    Behaviour: answers the largest epoch that is not above the one asked for, and its end offset; for the current
      epoch the log end offset; -1 and -1 for an epoch nothing is known of.  Leaders only.  A current leader epoch
      that is not ours is fenced before anything else (KIP-320).  An epoch older than all that are known is answered
      with the start of the oldest to consumers, as Kafka does, and with -1 and -1 to replicas: it need not be an epoch
      of this log.
    Versions:  3 replica id · 4 flexible.
    Left out:  —
    """
    schema = request.schema
    replica_id = getattr(request.body, "replica_id", CONSUMER_REPLICA_ID)

    def answer(topic: str, each: Any) -> Any:
        error, end = ErrorCode.none, EpochEnd()
        try:
            end = replicas.last_offset_for_leader_epoch(
                TopicPartition(topic, each.partition),
                each.leader_epoch,
                current_leader_epoch=each.current_leader_epoch,
                replica_id=replica_id,
            )
        except KafkaError as failure:
            error = failure.code
        return schema.EpochEndOffset(
            error_code=error, partition=each.partition, leader_epoch=end.leader_epoch, end_offset=end.end_offset
        )

    return schema.OffsetForLeaderEpochResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            schema.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=tuple(answer(topic.topic, each) for each in topic.partitions)
            )
            for topic in request.body.topics
        ),
    )
