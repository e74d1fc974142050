"""Metadata: brokers, topics, partitions and who leads them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from uuid import UUID

from broker.common.errors import ErrorCode, InvalidRequestError, KafkaError
from broker.common.identifiers import INTERNAL_TOPICS, ZERO_UUID
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.topics_image import TopicImage
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.authorized_operations import CLUSTER_OPERATIONS, NOT_REQUESTED, TOPIC_OPERATIONS
from broker.server.auto_topic_creation_manager import AutoTopicCreationManager
from broker.server.broker_identity import BrokerIdentity
from broker.server.cluster_nodes import advertised_nodes, controller_id_of
from broker.server.partition_description import PartitionDescriber, PartitionDescription
from broker.server.request_context import RequestContext
from broker.server.topic_names import is_valid_topic_name

FIRST_VERSION_WITH_CREATION_FLAG = 4
FIRST_VERSION_WITH_LISTENER_ERROR = 6
FIRST_VERSION_WITH_TOPIC_IDS = 12
FIRST_VERSION_WITH_TOP_LEVEL_ERROR = 13


def metadata_error(request: Request, error: KafkaError) -> Any:
    """Every topic asked for carries the error; from version 13 on the answer does too."""
    schema = request.schema
    topics = tuple(
        schema.MetadataResponseTopic(
            error_code=error.code,
            name=topic.name if request.version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.name or "",
            topic_id=getattr(topic, "topic_id", None),
            is_internal=False,
            partitions=(),
            topic_authorized_operations=NOT_REQUESTED,
        )
        for topic in request.body.topics or ()
    )
    return schema.MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=(),
        cluster_id=None,
        controller_id=-1,
        topics=topics,
        cluster_authorized_operations=NOT_REQUESTED,
        error_code=error.code,
    )


@handles(ApiKey.METADATA, versions=range(14), on_error=metadata_error)
async def metadata(
    request: Request,
    context: RequestContext,
    cache: MetadataCache,
    auto_topic_creation: AutoTopicCreationManager,
    config: ConfigHolder[BrokerConfig],
    identity: BrokerIdentity,
) -> Any:
    """Metadata: brokers of the asking listener, topics, partitions, leaders.

    Behaviour: answers from one image, so an answer never contradicts itself.  A missing topic that was asked for by
      name is created when `auto.create.topics.enable` and the request allow it; the answer waits up to one second for
      it and is UNKNOWN_TOPIC_OR_PARTITION when it is not there by then.  Never creates for "all topics".
      A partition without a leader answers LEADER_NOT_AVAILABLE with leader -1 and its real epoch.
    Versions:  0 empty list means all topics, creation is implied until 3 · 1 null means all, empty means none ·
      5 offline replicas · 7 leader epochs · 8 authorized operations · 10 topic ids · 12 topics by id ·
      13 top-level error.
    Left out:  authorization: everything is visible, and the operations reported are all there are.
    """
    body = request.body
    asks_for_all = body.topics is None or (request.version == 0 and not body.topics)
    if not asks_for_all:
        _check_topics(body.topics, request.version)
        missing = [] if not _may_create(request, config) else _missing_names(cache.image, body.topics)
        created = await auto_topic_creation.create_topics(missing, context) if missing else {}
    else:
        created = {}
    answer = _MetadataAnswer(request, context, cache.image, created)
    topics = answer.all_topics() if asks_for_all else answer.topics(body.topics)
    nodes = advertised_nodes(cache.image, context.listener_name, identity, config.current)
    schema = request.schema
    return schema.MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=tuple(
            schema.MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in nodes
        ),
        cluster_id=identity.cluster_id,
        controller_id=controller_id_of(nodes, identity),
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if getattr(body, "include_cluster_authorized_operations", False) else NOT_REQUESTED
        ),
        error_code=ErrorCode.none,
    )


def _check_topics(topics: Iterable[Any], version: int) -> None:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return
    for topic in topics:
        if topic.name is None:
            raise InvalidRequestError(f"topic name can not be null for version {version}")
        if getattr(topic, "topic_id", None) is not None:
            raise InvalidRequestError(f"topic ids are not supported in requests for version {version}")


def _may_create(request: Request, config: ConfigHolder[BrokerConfig]) -> bool:
    if not config.current.auto_create_topics_enable:
        return False
    return request.version < FIRST_VERSION_WITH_CREATION_FLAG or bool(request.body.allow_auto_topic_creation)


def _missing_names(image: MetadataImage, topics: Iterable[Any]) -> list[str]:
    """Names asked for that could exist but do not, each once, in order."""
    names = (topic.name for topic in topics if topic.name is not None and getattr(topic, "topic_id", None) is None)
    return [name for name in dict.fromkeys(names) if image.topics.topic(name) is None and is_valid_topic_name(name)]


class _MetadataAnswer:
    """Builds the topics of one answer from one image."""

    def __init__(
        self, request: Request, context: RequestContext, image: MetadataImage, created: dict[str, ErrorCode]
    ) -> None:
        self._schema = request.schema
        self._version = request.version
        self._describer = PartitionDescriber(image, context.listener_name)
        self._image = image
        self._created = created
        self._topic_operations = (
            TOPIC_OPERATIONS if getattr(request.body, "include_topic_authorized_operations", False) else NOT_REQUESTED
        )

    def all_topics(self) -> tuple[Any, ...]:
        return tuple(self._topic(topic) for topic in self._image.topics.by_id.values())

    def topics(self, asked: Iterable[Any]) -> tuple[Any, ...]:
        """One entry per topic asked for, in the order of the request; duplicates are answered once."""
        keys = dict.fromkeys((topic.name, getattr(topic, "topic_id", None)) for topic in asked)
        return tuple(self._by_name(name) if topic_id is None else self._by_id(topic_id) for name, topic_id in keys)

    def _by_id(self, topic_id: UUID) -> Any:
        topic = self._image.topics.topic_by_id(topic_id)
        if topic is None:
            return self._error(ErrorCode.unknown_topic_id, None, topic_id)
        return self._topic(topic)

    def _by_name(self, name: str | None) -> Any:
        if name is None:  # neither name nor id: the zero id is nobody's
            return self._error(ErrorCode.unknown_topic_id, None, ZERO_UUID)
        topic = self._image.topics.topic(name)
        if topic is not None:
            return self._topic(topic)
        if not is_valid_topic_name(name):
            return self._error(ErrorCode.invalid_topic_exception, name, ZERO_UUID)
        error = self._created.get(name, ErrorCode.unknown_topic_or_partition)
        # created, and deleted again since: the image decides
        return self._error(error if error != ErrorCode.none else ErrorCode.unknown_topic_or_partition, name, ZERO_UUID)

    def _error(self, error: ErrorCode, name: str | None, topic_id: UUID) -> Any:
        return self._schema.MetadataResponseTopic(
            error_code=error,
            name=name,
            topic_id=topic_id if topic_id != ZERO_UUID else None,
            is_internal=name in INTERNAL_TOPICS,
            partitions=(),
            topic_authorized_operations=NOT_REQUESTED,
        )

    def _topic(self, topic: TopicImage) -> Any:
        describe = self._describer.describe
        partitions = [describe(index, topic.partitions[index]) for index in sorted(topic.partitions)]
        if self._version < FIRST_VERSION_WITH_LISTENER_ERROR:
            partitions = [self._in_old_terms(partition) for partition in partitions]
        return self._schema.MetadataResponseTopic(
            error_code=ErrorCode.none,
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=partitions,
            topic_authorized_operations=self._topic_operations,
        )

    def _in_old_terms(self, partition: PartitionDescription) -> PartitionDescription:
        error = partition.error_code
        if error == ErrorCode.listener_not_found:
            error = ErrorCode.leader_not_available
        if self._version > 0:
            return replace(partition, error_code=error)
        # Clients of version 0 look up every replica among the brokers.
        offline = partition.offline_replicas
        replicas = tuple(replica for replica in partition.replica_nodes if replica not in offline)
        isr = tuple(replica for replica in partition.isr_nodes if replica not in offline)
        if error == ErrorCode.none and (replicas, isr) != (partition.replica_nodes, partition.isr_nodes):
            error = ErrorCode.replica_not_available
        return replace(partition, error_code=error, replica_nodes=replicas, isr_nodes=isr)
