"""AlterReplicaLogDirs: move replicas between the log directories of this broker (KIP-113)."""

from typing import Any

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.replication.replica_manager import ReplicaManager
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.ALTER_REPLICA_LOG_DIRS, versions=range(1, 3))
async def alter_replica_log_dirs(request: Request, context: RequestContext, replicas: ReplicaManager) -> Any:
    """AlterReplicaLogDirs: move replicas between the log directories of this broker (KIP-113).

    Behaviour: a broker has one log directory; a replica that is asked to move to it is there already and answers NONE.
      Any other directory answers LOG_DIR_NOT_FOUND, a replica that lives elsewhere REPLICA_NOT_AVAILABLE.
    Versions:  2 flexible.
    Left out:  moving, as there is nowhere to move to.
    """
    schema = request.schema
    errors = {
        TopicPartition(topic.name, index): _outcome(TopicPartition(topic.name, index), directory.path, replicas)
        for directory in request.body.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    topics: dict[str, list[Any]] = {}
    for (topic, index), error in errors.items():
        topics.setdefault(topic, []).append(
            schema.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
        )
    return schema.AlterReplicaLogDirsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            schema.AlterReplicaLogDirTopicResult(topic_name=topic, partitions=tuple(partitions))
            for topic, partitions in topics.items()
        ),
    )


def _outcome(topic_partition: TopicPartition, path: str, replicas: ReplicaManager) -> ErrorCode:
    """What ReplicaManager.alterReplicaLogDirs answers for one replica."""
    if path != str(replicas.log_directory):
        return ErrorCode.log_dir_not_found
    error = replicas.lookup_error(topic_partition)
    return ErrorCode.replica_not_available if error is ErrorCode.not_leader_or_follower else error
