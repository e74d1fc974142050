"""AlterPartitionReassignments on a controller."""

from typing import Any

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.controller.controller import Controller
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=range(2))
async def alter_partition_reassignments(request: Request, context: RequestContext, controller: Controller) -> Any:
    """AlterPartitionReassignments: moves partitions to other replicas, or cancels a move (KIP-455).

    Behaviour: the new replicas join, and the old ones leave when all new ones are in sync.  Null replicas cancel,
      NO_REASSIGNMENT_IN_PROGRESS when there is nothing to cancel.  Targets that cannot be are
      INVALID_REPLICA_ASSIGNMENT.
    Versions:  1 whether the replication factor may change (KIP-860).
    Left out:  —
    """
    body = request.body
    targets: dict[TopicPartition, tuple[int, ...] | None] = {
        TopicPartition(topic.name, partition.partition_index): (
            None if partition.replicas is None else tuple(partition.replicas)
        )
        for topic in body.topics
        for partition in topic.partitions
    }
    allow_change = getattr(body, "allow_replication_factor_change", True)
    results = await controller.alter_partition_reassignments(targets, allow_replication_factor_change=allow_change)
    schema = request.schema
    responses = []
    for topic in body.topics:
        partitions = []
        for partition in topic.partitions:
            error = results[TopicPartition(topic.name, partition.partition_index)]
            partitions.append(
                schema.ReassignablePartitionResponse(
                    partition_index=partition.partition_index, error_code=error.code, error_message=error.message
                )
            )
        responses.append(schema.ReassignableTopicResponse(name=topic.name, partitions=tuple(partitions)))
    return schema.AlterPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        allow_replication_factor_change=allow_change,
        error_code=ErrorCode.none,
        error_message=None,
        responses=tuple(responses),
    )
