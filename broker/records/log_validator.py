"""LogValidator: what a leader checks before it appends a batch, and what it stamps on it (Kafka: LogValidator).

Records are decoded only where a topic's rules need it: keys on compacted topics, timestamps when the header's are
outside the allowed window or implausible, another codec than the topic's.  Else a batch is checked by its header and
CRC and stamped in place.  The header's timestamps are those of the first and of the latest record, so a record in the
middle that is older than the first one is not noticed; Kafka decodes every record to see it.
"""

import struct
from typing import ClassVar, Final, NamedTuple

from broker.common.buffers import Buffer
from broker.common.errors import (
    CorruptMessageError,
    ErrorCode,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from broker.common.identifiers import NO_TIMESTAMP
from broker.records.append_origin import AppendOrigin
from broker.records.compression import CompressionType
from broker.records.memory_records_builder import MemoryRecordsBuilder
from broker.records.record import Record
from broker.records.record_batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_UP_TO_MAGIC_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TIMESTAMP_TYPE_MASK,
    RecordBatch,
    TimestampType,
)

_LENGTH: Final = struct.Struct(">i")
_MAGIC_POSITION: Final = 16
_ZSTD: Final = int(CompressionType.ZSTD)
_CLIENT: Final = AppendOrigin.CLIENT  # Python 3.11 looks members of an enum up slowly
_LEGACY_SIZE_MIN: Final = LOG_OVERHEAD + 14  # the smallest message of format 0
_ZSTD_PRODUCE_VERSION: Final = 7  # KIP-110: older clients could not read what they cause to be stored
_ERRORS_IN_MESSAGE_MAX: Final = 3
_CONTROL_OR_CODEC_MASK: Final = CONTROL_FLAG | CODEC_MASK  # above zstd: a control batch, or a codec nobody defined
_NOT_AS_IT_IS_FLAGS: Final = CONTROL_FLAG | TIMESTAMP_TYPE_MASK


class RecordError(NamedTuple):
    """Why one record of a refused batch is bad (KIP-467)."""

    batch_index: int  # position in the batch
    message: str


class RecordValidationError(InvalidRecordError):
    """A batch is refused for some of its records; all the bad ones are listed."""

    code: ClassVar[ErrorCode] = ErrorCode.invalid_record

    def __init__(self, message: str, record_errors: tuple[RecordError, ...]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class TimestampValidationError(RecordValidationError, InvalidTimestampError):
    """At least one of the bad records has a timestamp that is not allowed: that code wins."""

    code: ClassVar[ErrorCode] = ErrorCode.invalid_timestamp


def parse_produced_batch(produced: Buffer, produce_version: int) -> RecordBatch:
    """The one batch that a partition's records in a Produce request must be (ProduceRequest.validateRecords).

    Bytes after it that are not a whole batch are left out.
    """
    try:
        batch = RecordBatch.parse(produced)
    except CorruptMessageError as error:
        raise _not_a_produced_batch(produced, produce_version, error) from error
    if batch.size_bytes != len(produced):
        _refuse_second_batch(memoryview(produced)[batch.size_bytes :], produce_version)
    if produce_version < _ZSTD_PRODUCE_VERSION and batch.attributes & CODEC_MASK == _ZSTD:
        raise UnsupportedCompressionTypeError(
            f"Produce requests with version {produce_version} are not allowed to use ZStandard compression"
        )
    return batch


def _declared_size(records: Buffer) -> int:
    length: int = _LENGTH.unpack_from(records, 8)[0]
    return length + LOG_OVERHEAD


def _not_a_produced_batch(records: Buffer, produce_version: int, error: CorruptMessageError) -> KafkaError:
    """Kafka first looks for whole batches, of any format, then at their format, and only then at their header."""
    if len(records) < HEADER_UP_TO_MAGIC_SIZE or _declared_size(records) > len(records):
        return InvalidRecordError(
            f"Produce requests with version {produce_version} must have at least one record batch per partition"
        )
    if records[_MAGIC_POSITION] in (0, 1) and _declared_size(records) >= _LEGACY_SIZE_MIN:
        return InvalidRecordError(
            f"Produce requests with version {produce_version} are only allowed to contain record batches "
            f"with magic version {MAGIC}"
        )
    return error


def _refuse_second_batch(rest: Buffer, produce_version: int) -> None:
    if len(rest) >= HEADER_UP_TO_MAGIC_SIZE and _declared_size(rest) <= len(rest):
        raise InvalidRecordError(
            f"Produce requests with version {produce_version} are only allowed to contain exactly one record batch "
            "per partition"
        )


class LogValidator:
    """The rules of one topic.  Stateless: made anew when the topic's configuration changes."""

    def __init__(
        self,
        *,
        topic: str,
        compression_type: CompressionType | None,
        compact: bool,
        timestamp_type: TimestampType,
        timestamp_before_max_ms: int,
        timestamp_after_max_ms: int,
        message_size_max: int,
        compression_level: int | None = None,
    ) -> None:
        """`compression_type` None is "producer": batches keep the codec they come with."""
        self._topic = topic
        self._compression_type = compression_type
        self._compression_level = compression_level
        self._compact = compact
        self._timestamp_type = timestamp_type
        self._timestamp_type_bits = TIMESTAMP_TYPE_MASK if timestamp_type is TimestampType.LOG_APPEND_TIME else 0
        self._is_log_append_time = timestamp_type is TimestampType.LOG_APPEND_TIME
        self._timestamp_before_max_ms = timestamp_before_max_ms
        self._timestamp_after_max_ms = timestamp_after_max_ms
        self._message_size_max = message_size_max
        self._takes_batches_as_they_are = compression_type is None and not compact and not self._is_log_append_time

    def check_batch(self, batch: RecordBatch, origin: AppendOrigin) -> None:
        """Refuses a batch for its header, size or CRC.  Changes nothing."""
        is_client = origin is _CLIENT
        if is_client and batch.base_offset != 0:
            raise InvalidRecordError(
                f"The baseOffset of the record batch in the append to {self._topic} should be 0, "
                f"but it is {batch.base_offset}"
            )
        if batch.size_bytes > self._message_size_max and origin is not AppendOrigin.REPLICATION:
            raise self._too_large(batch.size_bytes)
        batch.ensure_valid()
        if is_client and (
            not 0 < batch.record_count == batch.last_offset_delta + 1
            or batch.attributes & _CONTROL_OR_CODEC_MASK > _ZSTD
            or (batch.base_sequence < 0 <= batch.producer_id)
        ):
            self._check_client_batch(batch)

    def _check_client_batch(self, batch: RecordBatch) -> None:
        """Something looks wrong: say what, in the order in which Kafka looks."""
        count_from_offsets = batch.last_offset_delta + 1
        count = batch.record_count
        if count_from_offsets <= 0 or count <= 0 or count_from_offsets != count:
            raise InvalidRecordError(
                f"Inconsistent batch: its offsets imply {count_from_offsets} records, its header says {count}"
            )
        if batch.attributes & CONTROL_FLAG:
            raise InvalidRecordError("Clients are not allowed to write control records")
        if batch.producer_id >= 0 and batch.base_sequence < 0:
            raise InvalidRecordError(
                f"Invalid sequence number {batch.base_sequence} in record batch with producerId {batch.producer_id}"
            )
        if batch.attributes & CODEC_MASK > CompressionType.ZSTD:
            raise InvalidRecordError(f"Unknown compression type id: {batch.attributes & CODEC_MASK}")

    def assign(self, batch: RecordBatch, base_offset: int, leader_epoch: int, now_ms: int) -> RecordBatch:
        """Gives a checked batch its offsets, its leader epoch and its timestamp type, after the rules of the topic;
        returns the batch to write.

        Its bytes are changed in place, unless it must be rebuilt for another codec.  When a rule is broken nothing has
        changed: RecordValidationError with every bad record, InvalidRecordError for records that cannot be decoded,
        MessageTooLargeError when the batch grew too large in another codec.
        """
        if (
            self._takes_batches_as_they_are
            and not batch.attributes & _NOT_AS_IT_IS_FLAGS
            and now_ms - self._timestamp_before_max_ms
            <= batch.base_timestamp
            <= batch.max_timestamp
            <= now_ms + self._timestamp_after_max_ms
        ):
            batch.set_base_offset_and_epoch(base_offset, leader_epoch)
            return batch
        return self._assign_by_the_rules(batch, base_offset, leader_epoch, now_ms)

    def _assign_by_the_rules(self, batch: RecordBatch, base_offset: int, leader_epoch: int, now_ms: int) -> RecordBatch:
        largest = now_ms if self._is_log_append_time else batch.max_timestamp
        needs_rebuild = False
        if not batch.attributes & CONTROL_FLAG:
            if batch.attributes & TIMESTAMP_TYPE_MASK:
                self._refuse_log_append_time(batch)
            needs_rebuild = self._compression_type is not None and self._compression_type != batch.compression
            if self._compact or needs_rebuild or self._needs_timestamps(batch, now_ms):
                records = list(batch.records())
                self._check_records(batch, records, now_ms)
                if not self._is_log_append_time:
                    largest = max((record.timestamp for record in records), default=largest)
                if needs_rebuild or not _has_consecutive_offsets(batch, records):
                    return self._rebuild(batch, records, base_offset, leader_epoch, now_ms)
        batch.set_base_offset_and_epoch(base_offset, leader_epoch)
        if largest != batch.max_timestamp or batch.attributes & TIMESTAMP_TYPE_MASK != self._timestamp_type_bits:
            batch.set_max_timestamp(self._timestamp_type, largest)
        return batch

    def _rebuild(
        self, batch: RecordBatch, records: list[Record], base_offset: int, leader_epoch: int, now_ms: int
    ) -> RecordBatch:
        log_append_time = now_ms if self._is_log_append_time else NO_TIMESTAMP
        builder = MemoryRecordsBuilder(
            base_offset,
            compression=batch.compression if self._compression_type is None else self._compression_type,
            compression_level=self._compression_level,
            timestamp_type=self._timestamp_type,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            partition_leader_epoch=leader_epoch,
            is_transactional=batch.is_transactional,
            log_append_time=log_append_time,
        )
        for record in records:
            builder.append(record.timestamp, record.key, record.value, record.headers)
        buffer = builder.build()
        if len(buffer) > self._message_size_max:
            raise self._too_large(len(buffer))
        return RecordBatch.parse(buffer)

    def _too_large(self, size_bytes: int) -> MessageTooLargeError:
        return MessageTooLargeError(
            f"The record batch size in the append to {self._topic} is {size_bytes} bytes "
            f"which exceeds the maximum configured value of {self._message_size_max}"
        )

    def _refuse_log_append_time(self, batch: RecordBatch) -> None:
        """Only the broker may say LogAppendTime.

        On CreateTime topics Kafka lets such a batch pass unless its records have no timestamp; their timestamps are
        then the header's largest one.
        """
        if self._is_log_append_time or batch.max_timestamp == NO_TIMESTAMP:
            message = "Invalid timestamp type in message at offset. Message timestamp type should not be LogAppendTime"
            errors = [RecordError(index, message) for index in range(batch.record_count)]
            raise _validation_error(errors, has_invalid_timestamp=True)

    def _needs_timestamps(self, batch: RecordBatch, now_ms: int) -> bool:
        """Whether the header alone cannot say that the records' timestamps are allowed."""
        if self._is_log_append_time:
            return False
        base, largest = batch.base_timestamp, batch.max_timestamp
        if base == largest == NO_TIMESTAMP:
            return False
        return not now_ms - self._timestamp_before_max_ms <= base <= largest <= now_ms + self._timestamp_after_max_ms

    def _check_records(self, batch: RecordBatch, records: list[Record], now_ms: int) -> None:
        earliest = now_ms - self._timestamp_before_max_ms
        latest = now_ms + self._timestamp_after_max_ms
        errors: list[RecordError] = []
        has_invalid_timestamp = False
        for index, record in enumerate(records):
            timestamp = record.timestamp
            if self._compact and record.key is None:
                errors.append(
                    RecordError(
                        index, f"Compacted topic cannot accept message without key in topic partition {self._topic}."
                    )
                )
            elif not self._is_log_append_time and timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
                has_invalid_timestamp = True
                errors.append(
                    RecordError(
                        index,
                        f"Timestamp {timestamp} of message with offset {record.offset} is out of range. "
                        f"The timestamp should be within [{earliest}, {latest}]",
                    )
                )
        if errors:
            raise _validation_error(errors, has_invalid_timestamp)


def _has_consecutive_offsets(batch: RecordBatch, records: list[Record]) -> bool:
    return all(record.offset == offset for offset, record in enumerate(records, batch.base_offset))


def _validation_error(errors: list[RecordError], has_invalid_timestamp: bool) -> KafkaError:
    if has_invalid_timestamp:
        return TimestampValidationError(
            "One or more records have been rejected due to invalid timestamp", tuple(errors)
        )
    shown = ", ".join(error.message for error in errors[:_ERRORS_IN_MESSAGE_MAX])
    return RecordValidationError(
        f"One or more records have been rejected due to {len(errors)} record errors in total, "
        f"and only showing the first three errors at most: {shown}",
        tuple(errors),
    )
