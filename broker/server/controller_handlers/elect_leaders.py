"""ElectLeaders on a controller."""

from typing import Any

from broker.common.errors import ErrorCode, InvalidRequestError
from broker.common.identifiers import TopicPartition
from broker.controller.api_error import ApiError
from broker.controller.controller import Controller
from broker.controller.replication_control_manager import ElectionType
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.ELECT_LEADERS, versions=range(3))
async def elect_leaders(request: Request, context: RequestContext, controller: Controller) -> Any:
    """ElectLeaders: preferred or unclean elections (KIP-460).

    Behaviour: ELECTION_NOT_NEEDED when the preferred replica leads, or any for an unclean election;
      PREFERRED_LEADER_NOT_AVAILABLE and ELIGIBLE_LEADERS_NOT_AVAILABLE when no such replica can.  Without a list all
      partitions are looked at, and those that needed nothing are left out of the answer.
    Versions:  0 preferred only · 1 election type · 2 flexible.
    Left out:  —
    """
    body = request.body
    number = getattr(body, "election_type", int(ElectionType.PREFERRED))
    try:
        election_type = ElectionType(number)
    except ValueError:
        raise InvalidRequestError(f"Unknown election type {number}") from None
    partitions = None
    if body.topic_partitions is not None:
        partitions = [
            TopicPartition(topic.topic, index) for topic in body.topic_partitions for index in topic.partitions
        ]
    results = await controller.elect_leaders(election_type, partitions)
    by_topic: dict[str, list[tuple[int, ApiError]]] = {}
    for topic_partition, error in results.items():
        by_topic.setdefault(topic_partition.topic, []).append((topic_partition.partition, error))
    schema = request.schema
    return schema.ElectLeadersResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        replica_election_results=tuple(
            schema.ReplicaElectionResult(
                topic=topic,
                partition_result=tuple(
                    schema.PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
                    for index, error in results_of_topic
                ),
            )
            for topic, results_of_topic in by_topic.items()
        ),
    )
