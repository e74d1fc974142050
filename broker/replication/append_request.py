"""One call of append_records: its results, and what is still missing."""

from collections.abc import Callable, Iterable

from broker.common.errors import ErrorCode, KafkaError
from broker.common.identifiers import NO_OFFSET, TopicPartition
from broker.log.log_append import LogAppendResult
from broker.records.append_origin import AppendOrigin
from broker.records.log_validator import RecordValidationError
from broker.replication.partition import Partition
from broker.replication.produce_result import ERRORS_WITHOUT_LOG_START_OFFSET, PartitionProduceResult
from broker.replication.topic_stats import TopicStats


class AppendRequest:
    """Filled partition by partition as they are written; calls `on_appended(self)` once all are."""

    __slots__ = (
        "_missing",
        "_on_appended",
        "on_complete",
        "origin",
        "partitions",
        "required_acks",
        "results",
        "timeout_ms",
    )

    def __init__(
        self,
        topic_partitions: Iterable[TopicPartition],
        *,
        required_acks: int,
        timeout_ms: int,
        origin: AppendOrigin,
        on_appended: "Callable[[AppendRequest], None]",
        on_complete: Callable[[list[PartitionProduceResult]], None] | None = None,
    ) -> None:
        self.required_acks = required_acks
        self.timeout_ms = timeout_ms
        self.origin = origin
        self.results = list(map(PartitionProduceResult, topic_partitions))
        self.partitions: list[Partition | None] = [None] * len(self.results)
        self._missing = len(self.results)
        self._on_appended = on_appended
        self.on_complete = on_complete  # whom `on_appended` tells in the end

    def refuse_one(self, index: int, error: ErrorCode, message: str | None = None) -> None:
        result = self.results[index]
        result.error = error
        result.error_message = message
        self._one_done()

    def complete_one(self, index: int, appended: LogAppendResult, partition: Partition, size_bytes: int) -> None:
        """The log has spoken about batch `index` of `size_bytes`."""
        result = self.results[index]
        stats = partition.topic_stats
        stats.total_produce_requests += 1
        error = appended.error
        if error is None:
            self.partitions[index] = partition
            last_offset = appended.last_offset
            result.base_offset = base_offset = appended.base_offset
            result.log_append_time = appended.log_append_time
            result.log_start_offset = appended.log_start_offset
            result.required_offset = last_offset + 1
            stats.bytes_in += size_bytes
            stats.messages_in += last_offset - base_offset + 1
        else:
            _refuse(result, error, partition)
            _count_refused(stats, error, size_bytes)
        self._one_done()

    def _one_done(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._on_appended(self)


def _refuse(result: PartitionProduceResult, error: KafkaError, partition: Partition) -> None:
    result.error = code = error.code
    # The same list decides what Kafka's failedProduceRequestRate leaves out.
    if code not in ERRORS_WITHOUT_LOG_START_OFFSET:
        result.log_start_offset = NO_OFFSET if partition.local_log is None else partition.log.log_start_offset
        partition.topic_stats.failed_produce_requests += 1
    if isinstance(error, RecordValidationError):  # the only error that Kafka explains in words
        result.record_errors = error.record_errors
        result.error_message = error.message


def _count_refused(stats: TopicStats, error: KafkaError, size_bytes: int) -> None:
    code = error.code
    if code is ErrorCode.message_too_large or code is ErrorCode.record_list_too_large:
        stats.bytes_rejected += size_bytes
    elif code is ErrorCode.corrupt_message:
        stats.invalid_message_crc_records += 1
    elif code is ErrorCode.invalid_record and isinstance(error, RecordValidationError):
        stats.no_key_compacted_topic_records += len(error.record_errors)
    elif code is ErrorCode.out_of_order_sequence_number or code is ErrorCode.invalid_record:
        stats.invalid_offset_or_sequence_records += 1
