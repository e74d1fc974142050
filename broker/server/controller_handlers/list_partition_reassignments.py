"""ListPartitionReassignments on a controller."""

from typing import Any

from broker.common.errors import ErrorCode
from broker.controller.controller import Controller
from broker.controller.reassignment_control_manager import OngoingReassignment
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=range(1))
async def list_partition_reassignments(request: Request, context: RequestContext, controller: Controller) -> Any:
    """ListPartitionReassignments: moves of replicas under way (KIP-455).

    Behaviour: of the named partitions, or of all; what is not moving, or does not exist, is left out.
    Versions:  0.
    Left out:  —
    """
    topics = request.body.topics
    asked = None if topics is None else {topic.name: topic.partition_indexes for topic in topics}
    found = await controller.list_partition_reassignments(asked)
    by_topic: dict[str, list[tuple[int, OngoingReassignment]]] = {}
    for topic_partition, ongoing in found.items():
        by_topic.setdefault(topic_partition.topic, []).append((topic_partition.partition, ongoing))
    schema = request.schema
    return schema.ListPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(
            schema.OngoingTopicReassignment(
                name=name,
                partitions=tuple(
                    schema.OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=ongoing.replicas,
                        adding_replicas=ongoing.adding,
                        removing_replicas=ongoing.removing,
                    )
                    for index, ongoing in partitions
                ),
            )
            for name, partitions in by_topic.items()
        ),
    )
