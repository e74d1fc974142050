"""OffsetDelete."""

from typing import Any

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.metadata.metadata_cache import MetadataCache
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.OFFSET_DELETE, versions=range(1))
async def offset_delete(
    request: Request, context: RequestContext, groups: GroupCoordinator, metadata: MetadataCache
) -> Any:
    """OffsetDelete: forget what a group has committed for some partitions (KIP-496).

    Behaviour: A group of consumers keeps the topics it is subscribed to (GROUP_SUBSCRIBED_TO_TOPIC); any other group
    must be empty. An offset that is not there is deleted without an error.
    Versions: 0.
    Left out: —
    """
    body, schema, image = request.body, request.schema, metadata.image
    partitions = [
        (str(topic.name), partition.partition_index)
        for topic in body.topics
        for partition in topic.partitions
        if image.topics.partition(TopicPartition(topic.name, partition.partition_index)) is not None
    ]
    result = await groups.delete_offsets(body.group_id, partitions)
    if result.error is not ErrorCode.none:
        return schema.OffsetDeleteResponse(error_code=result.error, throttle_time=NO_THROTTLE, topics=())
    errors = {(each.topic, each.partition): each.error for each in result.partitions}
    return schema.OffsetDeleteResponse(
        error_code=ErrorCode.none,
        throttle_time=NO_THROTTLE,
        topics=tuple(
            schema.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    schema.OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=errors.get(
                            (topic.name, partition.partition_index), ErrorCode.unknown_topic_or_partition
                        ),
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in body.topics
        ),
    )
