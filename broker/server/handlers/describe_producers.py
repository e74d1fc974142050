"""DescribeProducers: who writes idempotently or in transactions to a partition."""

from typing import Any

from broker.common.errors import ErrorCode, KafkaError
from broker.common.identifiers import TopicPartition
from broker.log.log_append import ActiveProducer
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.replication.replica_manager import ReplicaManager
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext
from broker.server.topic_names import is_valid_topic_name


@handles(ApiKey.DESCRIBE_PRODUCERS, versions=range(1))
def describe_producers(request: Request, context: RequestContext, replicas: ReplicaManager) -> Any:
    """DescribeProducers: who writes idempotently or in transactions to a partition.

    Behaviour: the producers whose state the leader keeps, with their last sequence and timestamp and the first
      offset of an open transaction (KIP-664).  Leaders only.
    Versions:  —
    Left out:  —
    """
    schema = request.schema

    def answer(topic: str, partition: int) -> Any:
        error = ErrorCode.none
        producers: tuple[ActiveProducer, ...] = ()
        if not is_valid_topic_name(topic):
            error = ErrorCode.invalid_topic_exception
        else:
            try:
                producers = tuple(replicas.active_producers(TopicPartition(topic, partition)))
            except KafkaError as failure:
                error = failure.code
        return schema.PartitionResponse(
            partition_index=partition,
            error_code=error,
            error_message=None,
            active_producers=tuple(
                schema.ProducerState(
                    producer_id=each.producer_id,
                    producer_epoch=each.producer_epoch,
                    last_sequence=each.last_sequence,
                    last_timestamp=each.last_timestamp,
                    coordinator_epoch=each.coordinator_epoch,
                    current_txn_start_offset=each.current_txn_start_offset,
                )
                for each in producers
            ),
        )

    return schema.DescribeProducersResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            schema.TopicResponse(
                name=topic.name, partitions=tuple(answer(topic.name, each) for each in topic.partition_indexes)
            )
            for topic in request.body.topics
        ),
    )
