"""DescribeLogDirs: what is on this broker's disk."""

from collections.abc import Iterator
from typing import Any

from broker.common.errors import ErrorCode, StorageFailure
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.replication.replica_manager import LogDescription, ReplicaManager
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext

UNKNOWN_VOLUME_BYTES = -1  # DescribeLogDirsResponse.UNKNOWN_VOLUME_BYTES


@handles(ApiKey.DESCRIBE_LOG_DIRS, versions=range(1, 6))
async def describe_log_dirs(request: Request, context: RequestContext, replicas: ReplicaManager) -> Any:
    """DescribeLogDirs: what is on this broker's disk.

    Behaviour: the log directory with the partitions asked for (null: all) that are here, their size and how far the
      high watermark is behind the end; the size of the volume and what is free on it.
    Versions:  2 flexible · 3 top-level error · 4 volume sizes · 5 cordoned directories (none is).
    Left out:  future logs: a broker has one log directory.
    """
    wanted = None
    if request.body.topics is not None:
        wanted = {topic.topic: frozenset(topic.partitions) for topic in request.body.topics}
    schema = request.schema
    try:
        total_bytes, usable_bytes = await replicas.volume_bytes()
        error = ErrorCode.none
    except StorageFailure:
        total_bytes = usable_bytes = UNKNOWN_VOLUME_BYTES
        error = ErrorCode.kafka_storage_error
    topics: dict[str, list[Any]] = {}
    for each in _selected(replicas.describe_logs(), wanted):
        topics.setdefault(each.topic_partition.topic, []).append(
            schema.DescribeLogDirsPartition(
                partition_index=each.topic_partition.partition,
                partition_size=each.size_bytes,
                offset_lag=each.offset_lag,
                is_future_key=False,
            )
        )
    result = schema.DescribeLogDirsResult(
        error_code=error,
        log_dir=str(replicas.log_directory),
        topics=tuple(
            schema.DescribeLogDirsTopic(name=name, partitions=tuple(partitions)) for name, partitions in topics.items()
        ),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        is_cordoned=False,
    )
    return schema.DescribeLogDirsResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, results=(result,))


def _selected(logs: Iterator[LogDescription], wanted: "dict[str, frozenset[int]] | None") -> Iterator[LogDescription]:
    for each in logs:
        topic, partition = each.topic_partition
        if wanted is None or partition in wanted.get(topic, frozenset()):
            yield each
