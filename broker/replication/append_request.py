"""One call of append_records: its results, and what is still missing."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from broker.common.errors import NO_ERROR, ErrorCode, KafkaError
from broker.common.identifiers import NO_OFFSET, TopicPartition
from broker.log.log_append import LogAppendResult
from broker.records.append_origin import AppendOrigin
from broker.records.log_validator import RecordValidationError
from broker.replication.partition import Partition
from broker.replication.produce_result import ERRORS_WITHOUT_LOG_START_OFFSET, PartitionProduceResult
from broker.replication.topic_stats import TopicStats

_NOT_DONE: Final = PartitionProduceResult(TopicPartition("", -1))  # in the place of a result that is not known yet


class AppendRequest(ABC):
    """Filled partition by partition as they are written; `on_complete` is called once all are done."""

    __slots__ = (
        "_missing",
        "_on_appended",
        "allows_internal_topics",
        "origin",
        "partitions",
        "required_acks",
        "results",
        "timeout_ms",
    )

    def __init__(
        self,
        required_acks: int,
        timeout_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        *,
        allows_internal_topics: bool = False,
    ) -> None:
        self.required_acks = required_acks
        self.timeout_ms = timeout_ms
        self.origin = origin
        self.allows_internal_topics = allows_internal_topics

    def begin(self, count: int, on_appended: "Callable[[AppendRequest], object]") -> None:
        """So many batches are on their way; `on_appended(self)` is called when the last is written or refused."""
        self._missing = count
        self._on_appended = on_appended
        self.results = [_NOT_DONE] * count
        self.partitions: list[Partition | None] = [None] * count  # of the batches that were written

    @abstractmethod
    def on_complete(self, results: list[PartitionProduceResult]) -> None:
        """Everything is refused, or written and as safe as `required_acks` demands; results as the batches came."""

    def refuse_one(self, index: int, topic_partition: TopicPartition, error: ErrorCode) -> None:
        self.results[index] = PartitionProduceResult(topic_partition, error)
        self._one_done()

    def complete_one(self, index: int, appended: LogAppendResult, partition: Partition, size_bytes: int) -> None:
        """The log has spoken about batch `index` of `size_bytes`."""
        stats = partition.topic_stats
        stats.total_produce_requests += 1
        error = appended.error
        if error is None:
            self.partitions[index] = partition
            base_offset, next_offset = appended.base_offset, appended.last_offset + 1
            self.results[index] = PartitionProduceResult(
                partition.topic_partition,
                NO_ERROR,
                base_offset,
                appended.log_append_time,
                appended.log_start_offset,
                (),
                None,
                next_offset,
            )
            stats.bytes_in += size_bytes
            stats.messages_in += next_offset - base_offset
        else:
            self.results[index] = _refused(error, partition)
            _count_refused(stats, error, size_bytes)
        self._one_done()

    def _one_done(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._on_appended(self)


def _refused(error: KafkaError, partition: Partition) -> PartitionProduceResult:
    code = error.code
    result = PartitionProduceResult(partition.topic_partition, code)
    # The same list decides what Kafka's failedProduceRequestRate leaves out.
    if code not in ERRORS_WITHOUT_LOG_START_OFFSET:
        result.log_start_offset = NO_OFFSET if partition.local_log is None else partition.log.log_start_offset
        partition.topic_stats.failed_produce_requests += 1
    if isinstance(error, RecordValidationError):  # the only error that Kafka explains in words
        result.record_errors = error.record_errors
        result.error_message = error.message
    return result


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
