"""OffsetFetch."""

from typing import Any

from broker.common.errors import ErrorCode
from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.coordinator.group.group_messages import FetchedOffset, OffsetFetchRequest, OffsetFetchResult
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_image import MetadataImage
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.handlers.offset_commit import VERSION_WITH_TOPIC_IDS, find_topic, unknown_topic_error
from broker.server.request_context import RequestContext

VERSION_WITH_TOP_LEVEL_ERROR = 2
VERSION_WITH_GROUPS = 8


@handles(ApiKey.OFFSET_FETCH, versions=range(1, 11))
async def offset_fetch(
    request: Request, context: RequestContext, groups: GroupCoordinator, metadata: MetadataCache
) -> Any:
    """OffsetFetch: how far groups have read.

    Behaviour: Nothing committed is offset -1 without an error. Reads what is committed; when stability is required
    it waits for earlier commits and answers UNSTABLE_OFFSET_COMMIT where a transaction is open. A coordinator that has
    just been elected waits until its replicas have all that its log had then, so that no acknowledged commit is missed
    (Kafka waits only when stability is required); NOT_COORDINATOR when they have not in offsets.commit.timeout.ms.
    Versions: 1 named topics · 2 all topics, error of the group · 5 leader epoch (KIP-320) · 7 require stable
    (KIP-447) · 8 several groups (KIP-709) · 9 member id and epoch (KIP-848, not looked at for classic groups) · 10
    topic ids (KIP-848).
    Left out: Version 0 (removed by KIP-896).
    """
    body, image = request.body, metadata.image
    require_stable = getattr(body, "require_stable", False)
    asked = body.groups if request.version >= VERSION_WITH_GROUPS else (body,)
    answers = [await _fetch(groups, image, group, require_stable, request.version) for group in asked]
    if request.version >= VERSION_WITH_GROUPS:
        return request.schema.OffsetFetchResponse(
            throttle_time=NO_THROTTLE,
            groups=tuple(
                request.schema.OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    topics=_topics(request, image, group, result),
                    error_code=result.error,
                )
                for group, result in zip(asked, answers, strict=True)
            ),
        )
    (result,) = answers
    return request.schema.OffsetFetchResponse(
        throttle_time=NO_THROTTLE, topics=_topics(request, image, body, result), error_code=result.error
    )


async def _fetch(
    groups: GroupCoordinator, image: MetadataImage, group: Any, require_stable: bool, version: int
) -> OffsetFetchResult:
    topics: dict[str, tuple[int, ...]] | None = None
    if group.topics is not None:
        topics = {}
        for topic in group.topics:
            name = _topic_name(image, topic, version)
            if name is not None:
                topics[name] = (*topics.get(name, ()), *topic.partition_indexes)
    return await groups.fetch_offsets(
        OffsetFetchRequest(group_id=group.group_id, topics=topics, require_stable=require_stable)
    )


def _topic_name(image: MetadataImage, topic: Any, version: int) -> str | None:
    """Offsets of a name can be asked for whether there is such a topic or not; an id must be known."""
    if version < VERSION_WITH_TOPIC_IDS:
        return str(topic.name)
    found = find_topic(image, topic, version)
    return None if found is None else found.name


def _topics(request: Request, image: MetadataImage, group: Any, result: OffsetFetchResult) -> tuple[Any, ...]:
    if result.error is not ErrorCode.none and request.version >= VERSION_WITH_TOP_LEVEL_ERROR:
        return ()
    if group.topics is None:
        named = result.topics.items()
        return tuple(
            topic for name, offsets in named if (topic := _all_of_topic(request, image, name, offsets)) is not None
        )
    return tuple(_asked_topic(request, image, topic, result) for topic in group.topics)


def _all_of_topic(request: Request, image: MetadataImage, name: str, offsets: tuple[FetchedOffset, ...]) -> Any:
    """A topic that has no id any more cannot be told to a client that goes by ids."""
    topic = image.topics.topic(name)
    if topic is None and request.version >= VERSION_WITH_TOPIC_IDS:
        return None
    return _topic(request, name, None if topic is None else topic.id, offsets)


def _asked_topic(request: Request, image: MetadataImage, topic: Any, result: OffsetFetchResult) -> Any:
    name = _topic_name(image, topic, request.version)
    error = result.error if name is not None else unknown_topic_error(request.version)
    found = {} if name is None else {offset.partition: offset for offset in result.topics.get(name, ())}
    offsets = tuple(
        found.get(partition, FetchedOffset(partition, error=error)) for partition in topic.partition_indexes
    )
    return _topic(request, getattr(topic, "name", ""), getattr(topic, "topic_id", None), offsets)


def _topic(request: Request, name: str, topic_id: Any, offsets: tuple[FetchedOffset, ...]) -> Any:
    schema = request.schema
    in_groups = request.version >= VERSION_WITH_GROUPS
    topic = schema.OffsetFetchResponseTopics if in_groups else schema.OffsetFetchResponseTopic
    partition = schema.OffsetFetchResponsePartitions if in_groups else schema.OffsetFetchResponsePartition
    return topic(
        name=name,
        **({"topic_id": topic_id} if in_groups else {}),
        partitions=tuple(
            partition(
                partition_index=offset.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                metadata=offset.metadata,
                error_code=offset.error,
            )
            for offset in offsets
        ),
    )
