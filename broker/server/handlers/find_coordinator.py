"""FindCoordinator: which broker keeps a group."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from broker.common.errors import CoordinatorNotAvailableError, ErrorCode, InvalidRequestError, KafkaError
from broker.common.identifiers import (
    CONSUMER_OFFSETS_TOPIC,
    NO_BROKER,
    TopicPartition,
    partition_for_key,
)
from broker.metadata.metadata_cache import MetadataCache
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.auto_topic_creation_manager import AutoTopicCreationManager
from broker.server.handlers.init_producer_id import TRANSACTIONS_UNSUPPORTED
from broker.server.request_context import RequestContext

GROUP: Final = 0
TRANSACTION: Final = 1

FIRST_VERSION_WITH_KEY_TYPE: Final = 1
FIRST_VERSION_WITH_MANY_KEYS: Final = 4


@dataclass(frozen=True, slots=True)
class _Coordinator:
    key: str
    node_id: int
    host: str
    port: int
    error: ErrorCode = ErrorCode.none
    message: str | None = None

    @classmethod
    def missing(cls, key: str, error: KafkaError) -> "_Coordinator":
        return cls(key, NO_BROKER, "", -1, error.code, error.message)


def find_coordinator_error(request: Request, error: KafkaError) -> Any:
    return _answer(request, [_Coordinator.missing(key, error) for key in _keys(request)])


@handles(ApiKey.FIND_COORDINATOR, versions=range(7), on_error=find_coordinator_error)
async def find_coordinator(
    request: Request, context: RequestContext, cache: MetadataCache, auto_topic_creation: AutoTopicCreationManager
) -> Any:
    """FindCoordinator: the leader of the partition of `__consumer_offsets` that a group belongs to.

    Behaviour: creates `__consumer_offsets` at the first question and waits up to a second for it, so that usually the
      first answer is already good; COORDINATOR_NOT_AVAILABLE, which clients retry, while there is no live leader on the
      asking listener.  Transactional ids (key type 1) are refused so that each client gives up at once: before
      version 4 with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the only error librdkafka does not retry here, from
      version 4 on with INVALID_REQUEST, where Java's client shows the message.
    Versions:  1 key types and messages · 3 flexible · 4 many keys, an error for each · 6 share groups.
    Left out:  transactions and share groups (INVALID_REQUEST), authorization.
    """
    key_type = request.body.key_type if request.version >= FIRST_VERSION_WITH_KEY_TYPE else GROUP
    if key_type == TRANSACTION:
        return _answer(request, [_no_transactions(key, request.version) for key in _keys(request)])
    if key_type != GROUP:
        raise InvalidRequestError(f"This broker has no coordinator for keys of type {key_type}.")
    keys = _keys(request)
    if keys and cache.topic(CONSUMER_OFFSETS_TOPIC) is None:
        await auto_topic_creation.create_topics([CONSUMER_OFFSETS_TOPIC])
    return _answer(request, [_group_coordinator(cache, key, context.listener_name) for key in keys])


def _no_transactions(key: str, version: int) -> _Coordinator:
    error = ErrorCode.transactional_id_authorization_failed
    if version >= FIRST_VERSION_WITH_MANY_KEYS:
        error = ErrorCode.invalid_request
    return _Coordinator(key, NO_BROKER, "", -1, error, TRANSACTIONS_UNSUPPORTED)


def _keys(request: Request) -> Sequence[str]:
    if request.version >= FIRST_VERSION_WITH_MANY_KEYS:
        return tuple(request.body.coordinator_keys)
    return (request.body.key,)


def _group_coordinator(cache: MetadataCache, group_id: str, listener_name: str) -> _Coordinator:
    partition_count = cache.partition_count(CONSUMER_OFFSETS_TOPIC)
    if not partition_count:
        reason = f"{CONSUMER_OFFSETS_TOPIC} does not exist yet"
        return _Coordinator.missing(group_id, CoordinatorNotAvailableError(reason))
    index = partition_for_key(group_id, partition_count)
    partition = cache.partition(TopicPartition(CONSUMER_OFFSETS_TOPIC, index))
    endpoint = None if partition is None else cache.broker_endpoint(partition.leader, listener_name)
    if partition is None or endpoint is None:
        reason = f"{CONSUMER_OFFSETS_TOPIC}-{index} has no live leader on listener {listener_name}"
        return _Coordinator.missing(group_id, CoordinatorNotAvailableError(reason))
    return _Coordinator(group_id, partition.leader, endpoint.host, endpoint.port)


def _answer(request: Request, coordinators: Sequence[_Coordinator]) -> Any:
    schema = request.schema
    if request.version >= FIRST_VERSION_WITH_MANY_KEYS:
        return schema.FindCoordinatorResponse(
            throttle_time=NO_THROTTLE,
            coordinators=tuple(
                schema.Coordinator(
                    key=found.key,
                    node_id=found.node_id,
                    host=found.host,
                    port=found.port,
                    error_code=found.error,
                    error_message=found.message,
                )
                for found in coordinators
            ),
        )
    (only,) = coordinators
    return schema.FindCoordinatorResponse(
        throttle_time=NO_THROTTLE,
        error_code=only.error,
        error_message=only.message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )
