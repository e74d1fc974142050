"""OffsetCommit."""

from typing import Any

from broker.common.errors import ErrorCode
from broker.common.identifiers import NO_EPOCH
from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.coordinator.group.group_messages import NO_RETENTION_TIME, OffsetCommitRequest, OffsetToCommit
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.topics_image import TopicImage
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE, to_milliseconds
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext

VERSION_WITH_GROUP_ID_NOT_FOUND = 9
VERSION_WITH_TOPIC_IDS = 10


@handles(ApiKey.OFFSET_COMMIT, versions=range(2, 11))
async def offset_commit(
    request: Request, context: RequestContext, groups: GroupCoordinator, metadata: MetadataCache
) -> Any:
    """OffsetCommit: how far a group has read.

    Behaviour: Topics and partitions must exist; the offset itself is not checked. An error of the group is repeated
    for each of its partitions. Metadata longer than `offset.metadata.max.bytes` fails for its partition alone.
    Versions: 2-4 retention time of the commit · 6 leader epoch (KIP-320) · 7 static members (KIP-345) · 9 unknown
    groups are GROUP_ID_NOT_FOUND (KIP-848) · 10 topic ids (KIP-848).
    Left out: Versions 0 and 1 (removed by KIP-896).
    """
    body, schema = request.body, request.schema
    topics = [(topic, find_topic(metadata.image, topic, request.version)) for topic in body.topics]
    wanted = OffsetCommitRequest(
        group_id=body.group_id,
        generation=body.generation_id_or_member_epoch,
        member_id=body.member_id,
        group_instance_id=getattr(body, "group_instance_id", None),
        retention_time_ms=_retention_time_ms(body),
        offsets=tuple(
            _offset(image.name, partition)
            for topic, image in topics
            if image is not None
            for partition in topic.partitions
            if partition.partition_index in image.partitions
        ),
        knows_group_id_not_found=request.version >= VERSION_WITH_GROUP_ID_NOT_FOUND,
    )
    errors = {}
    if wanted.offsets:
        errors = {(each.topic, each.partition): each.error for each in await groups.commit_offsets(wanted)}
    no_topic = unknown_topic_error(request.version)

    def error_of(image: TopicImage | None, partition: int) -> ErrorCode:
        if image is None:
            return no_topic
        return errors.get((image.name, partition), ErrorCode.unknown_topic_or_partition)

    return schema.OffsetCommitResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            schema.OffsetCommitResponseTopic(
                name=getattr(topic, "name", ""),
                topic_id=getattr(topic, "topic_id", None),
                partitions=tuple(
                    schema.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=error_of(image, partition.partition_index),
                    )
                    for partition in topic.partitions
                ),
            )
            for topic, image in topics
        ),
    )


def find_topic(image: MetadataImage, topic: Any, version: int) -> TopicImage | None:
    """The topic that a request names, from version 10 of commit and fetch on by its id."""
    if version < VERSION_WITH_TOPIC_IDS:
        return image.topics.topic(topic.name)
    return None if topic.topic_id is None else image.topics.topic_by_id(topic.topic_id)


def unknown_topic_error(version: int) -> ErrorCode:
    """What a partition of a topic gets that does not exist."""
    return ErrorCode.unknown_topic_id if version >= VERSION_WITH_TOPIC_IDS else ErrorCode.unknown_topic_or_partition


def _offset(topic: str, partition: Any) -> OffsetToCommit:
    return OffsetToCommit(
        topic,
        partition.partition_index,
        partition.committed_offset,
        getattr(partition, "committed_leader_epoch", NO_EPOCH),
        partition.committed_metadata,
    )


def _retention_time_ms(body: Any) -> int:
    retention_time = getattr(body, "retention_time", None)
    return NO_RETENTION_TIME if retention_time is None else to_milliseconds(retention_time)
