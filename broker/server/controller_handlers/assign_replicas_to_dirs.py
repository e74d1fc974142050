"""AssignReplicasToDirs: a broker says in which log directory its replicas are."""

from typing import Any
from uuid import UUID

from broker.common.errors import ErrorCode
from broker.common.identifiers import ZERO_UUID
from broker.controller.brokers_to_isrs import PartitionKey
from broker.controller.controller import Controller
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.ASSIGN_REPLICAS_TO_DIRS, versions=range(1))
async def assign_replicas_to_dirs(request: Request, context: RequestContext, controller: Controller) -> Any:
    """AssignReplicasToDirs: stores the directory of each replica (KIP-858).

    Behaviour: per partition: unknown topics UNKNOWN_TOPIC_ID, unknown partitions UNKNOWN_TOPIC_OR_PARTITION, replicas
      of other brokers NOT_LEADER_OR_FOLLOWER.  A stale broker epoch fails the whole request.
    Versions:  0.
    Left out:  —
    """
    body = request.body
    assignments: dict[UUID, dict[UUID, list[int]]] = {}
    for directory in body.directories:
        topics = assignments.setdefault(directory.id_ or ZERO_UUID, {})
        for topic in directory.topics:
            indexes = topics.setdefault(topic.topic_id or ZERO_UUID, [])
            indexes += [partition.partition_index for partition in topic.partitions]
    results = await controller.assign_replicas_to_directories(body.broker_id, body.broker_epoch, assignments)
    schema = request.schema
    return schema.AssignReplicasToDirsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        directories=tuple(
            schema.DirectoryData(
                id_=directory_id,
                topics=tuple(
                    schema.TopicData(
                        topic_id=topic_id,
                        partitions=tuple(
                            schema.PartitionData(
                                partition_index=index, error_code=results[PartitionKey(topic_id, index)]
                            )
                            for index in indexes
                        ),
                    )
                    for topic_id, indexes in topics.items()
                ),
            )
            for directory_id, topics in assignments.items()
        ),
    )
