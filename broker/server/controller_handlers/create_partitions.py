"""CreatePartitions on a controller."""

from typing import Any

from broker.controller.controller import Controller
from broker.controller.topic_control_manager import CreatePartitionsTopic
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.CREATE_PARTITIONS, versions=range(4))
async def create_partitions(request: Request, context: RequestContext, controller: Controller) -> Any:
    """CreatePartitions: topics grow to a number of partitions.

    Behaviour: a number that is no increase is INVALID_PARTITIONS; given replicas must be as many as the topic has, on
      registered brokers, else INVALID_REPLICA_ASSIGNMENT.  A topic that is named twice is INVALID_REQUEST.
    Versions:  2 flexible · 3 quotas (KIP-599).
    Left out:  quotas of controller mutations.
    """
    body = request.body
    topics = [
        CreatePartitionsTopic(
            name=topic.name,
            count=topic.count,
            assignments=(
                None if topic.assignments is None else tuple(tuple(each.broker_ids) for each in topic.assignments)
            ),
        )
        for topic in body.topics
    ]
    results = await controller.create_partitions(topics, validate_only=body.validate_only)
    schema = request.schema
    return schema.CreatePartitionsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            schema.CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)
            for name, error in results.items()
        ),
    )
