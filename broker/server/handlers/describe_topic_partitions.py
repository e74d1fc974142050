"""DescribeTopicPartitions: topics page by page, in the order of their names (KIP-966)."""

from collections.abc import Sequence
from typing import Any

from broker.common.errors import ErrorCode, InvalidRequestError, KafkaError
from broker.common.identifiers import INTERNAL_TOPICS
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.topics_image import TopicImage
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.authorized_operations import NOT_REQUESTED, TOPIC_OPERATIONS
from broker.server.partition_description import PartitionDescriber
from broker.server.request_context import RequestContext
from broker.server.topic_names import is_valid_topic_name


def describe_topic_partitions_error(request: Request, error: KafkaError) -> Any:
    """The error at every topic asked for: there is no place for it above them."""
    schema = request.schema
    topics = tuple(
        schema.DescribeTopicPartitionsResponseTopic(
            error_code=error.code,
            name=topic.name,
            topic_id=None,
            is_internal=False,
            partitions=(),
            topic_authorized_operations=NOT_REQUESTED,
        )
        for topic in request.body.topics
    )
    return schema.DescribeTopicPartitionsResponse(throttle_time=NO_THROTTLE, topics=topics, next_cursor=None)


@handles(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=range(1), on_error=describe_topic_partitions_error)
def describe_topic_partitions(
    request: Request, context: RequestContext, cache: MetadataCache, config: ConfigHolder[BrokerConfig]
) -> Any:
    """DescribeTopicPartitions: partitions with their eligible leader replicas, a bounded number per answer.

    Behaviour: topics come sorted by name; no topics asked for means all of them.  Every topic asked for is in the
      answer or lies behind the cursor: an unknown one has UNKNOWN_TOPIC_OR_PARTITION.  At most the smaller of the
      request's limit and `max.request.partition.size.limit` partitions are in an answer; the cursor says where the next
      request goes on.  Nothing is created.
    Versions:  0 only.
    Left out:  authorization.
    """
    body = request.body
    limit = max(min(body.response_partition_limit, config.current.max_request_partition_size_limit), 1)
    first = 0
    start_after = ""
    if body.cursor is not None:
        start_after, first = body.cursor.topic_name, body.cursor.partition_index
        if first < 0:
            raise InvalidRequestError(f"the cursor's partition index must not be negative: {first}")
    names = {topic.name for topic in body.topics} or cache.image.topics.by_name.keys()
    page = _Page(request, context.listener_name, cache.image, limit)
    for name in sorted(name for name in names if name >= start_after):
        if not page.add(name, first if name == start_after else 0):
            break
    return request.schema.DescribeTopicPartitionsResponse(
        throttle_time=NO_THROTTLE, topics=tuple(page.topics), next_cursor=page.next_cursor
    )


class _Page:
    """One answer being filled up to its limit of partitions."""

    def __init__(self, request: Request, listener_name: str, image: MetadataImage, limit: int) -> None:
        self._schema = request.schema
        self._describer = PartitionDescriber(image, listener_name)
        self._image = image
        self._remaining = limit
        self.topics: list[Any] = []
        self.next_cursor: Any = None

    def add(self, name: str, first_partition: int) -> bool:
        """Describe a topic from a partition on; False when the page is full and the cursor is set."""
        topic = self._image.topics.topic(name)
        if topic is None:
            self.topics.append(self._unknown(name))
            return True
        indexes = [index for index in sorted(topic.partitions) if index >= first_partition]
        if self._remaining == 0:
            self.next_cursor = self._schema.Cursor(topic_name=name, partition_index=first_partition)
            return False
        shown = indexes[: self._remaining]
        self._remaining -= len(shown)
        self.topics.append(self._known(topic, shown))
        if len(shown) < len(indexes):
            self.next_cursor = self._schema.Cursor(topic_name=name, partition_index=indexes[len(shown)])
            return False
        return True

    def _unknown(self, name: str) -> Any:
        error = ErrorCode.unknown_topic_or_partition
        if not is_valid_topic_name(name):
            error = ErrorCode.invalid_topic_exception
        return self._schema.DescribeTopicPartitionsResponseTopic(
            error_code=error,
            name=name,
            topic_id=None,
            is_internal=name in INTERNAL_TOPICS,
            partitions=(),
            topic_authorized_operations=NOT_REQUESTED,
        )

    def _known(self, topic: TopicImage, indexes: Sequence[int]) -> Any:
        return self._schema.DescribeTopicPartitionsResponseTopic(
            error_code=ErrorCode.none,
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=tuple(self._partition(topic, index) for index in indexes),
            topic_authorized_operations=TOPIC_OPERATIONS,
        )

    def _partition(self, topic: TopicImage, index: int) -> Any:
        partition = self._describer.describe(index, topic.partitions[index])
        return self._schema.DescribeTopicPartitionsResponsePartition(
            error_code=partition.error_code,
            partition_index=index,
            leader_id=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            replica_nodes=partition.replica_nodes,
            isr_nodes=partition.isr_nodes,
            eligible_leader_replicas=partition.eligible_leader_replicas,
            last_known_elr=partition.last_known_elr,
            offline_replicas=partition.offline_replicas,
        )
