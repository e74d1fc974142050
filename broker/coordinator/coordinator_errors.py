"""What a client of a coordinator is told when its record could not be appended."""

from typing import Final

from broker.common.errors import (
    CoordinatorNotAvailableError,
    ErrorCode,
    KafkaError,
    NotCoordinatorError,
    RequestTimedOutError,
)

_NOT_AVAILABLE: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.request_timed_out,
    }
)
_NOT_COORDINATOR: Final = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.kafka_storage_error})
_UNKNOWN: Final = frozenset(
    {ErrorCode.message_too_large, ErrorCode.record_list_too_large, ErrorCode.invalid_fetch_size}
)


def coordinator_error(error: KafkaError) -> KafkaError:
    """The error of an append or of its replication in the words of Kafka's CoordinatorOperationExceptionHelper."""
    if error.code in _NOT_AVAILABLE:
        return CoordinatorNotAvailableError(error.message)
    if error.code in _NOT_COORDINATOR:
        return NotCoordinatorError(error.message)
    if error.code in _UNKNOWN:
        return KafkaError(error.message)
    return error


def stable_fetch_error(error: KafkaError) -> KafkaError:
    """A fetch that waited for earlier commits in vain sends its client to look for the coordinator again."""
    return NotCoordinatorError(error.message) if isinstance(error, RequestTimedOutError) else coordinator_error(error)
