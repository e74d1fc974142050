"""What one partition of a produce request is answered with (Kafka's ProduceResponse.PartitionResponse)."""

from typing import TYPE_CHECKING, Final

from broker.common.errors import ErrorCode
from broker.common.identifiers import NO_OFFSET, NO_TIMESTAMP, TopicPartition

if TYPE_CHECKING:
    from broker.records.log_validator import RecordError
    from broker.replication.fetch_params import LeaderHint

# Kafka answers these with log_start_offset -1, every other error with the real one (ReplicaManager.appendToLocalLog).
ERRORS_WITHOUT_LOG_START_OFFSET: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_leader_or_follower,
        ErrorCode.message_too_large,
        ErrorCode.record_list_too_large,
        ErrorCode.corrupt_message,
        ErrorCode.kafka_storage_error,
        ErrorCode.invalid_topic_exception,
    }
)


class PartitionProduceResult:
    """One partition's answer.  `required_offset` is the high watermark that acks=all waits for."""

    __slots__ = (
        "base_offset",
        "current_leader",
        "error",
        "error_message",
        "log_append_time",
        "log_start_offset",
        "record_errors",
        "required_offset",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        error: ErrorCode = ErrorCode.none,
        base_offset: int = NO_OFFSET,
        log_append_time: int = NO_TIMESTAMP,
        log_start_offset: int = NO_OFFSET,
        record_errors: "tuple[RecordError, ...]" = (),
        error_message: str | None = None,
        required_offset: int = NO_OFFSET,
    ) -> None:
        self.topic_partition = topic_partition
        self.error = error
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.log_start_offset = log_start_offset
        self.record_errors = record_errors
        self.error_message = error_message
        self.required_offset = required_offset
        self.current_leader: LeaderHint | None = None
