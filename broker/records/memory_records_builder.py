"""MemoryRecordsBuilder: one batch from single records, for internal topics, recompression, compaction and tests."""

from collections.abc import Iterable
from typing import Any

from broker.common.identifiers import NO_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from broker.records.compression import CompressionType, compress
from broker.records.record import encode_record
from broker.records.record_batch import (
    BATCH_HEADER_SIZE,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
    TimestampType,
    set_crc,
)


class MemoryRecordsBuilder:
    """Collects records and builds ONE batch of them; may be built once.

    The batch's base timestamp is that of the first record, or the delete horizon if there is one (KIP-534).
    """

    def __init__(
        self,
        base_offset: int = 0,
        *,
        compression: CompressionType = CompressionType.NONE,
        compression_level: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        partition_leader_epoch: int = NO_EPOCH,
        is_transactional: bool = False,
        is_control: bool = False,
        log_append_time: int = NO_TIMESTAMP,
        delete_horizon_ms: int | None = None,
    ) -> None:
        self._base_offset = base_offset
        self._compression = compression
        self._compression_level = compression_level
        self._timestamp_type = timestamp_type
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._partition_leader_epoch = partition_leader_epoch
        self._is_transactional = is_transactional
        self._is_control = is_control
        self._log_append_time = log_append_time
        self._delete_horizon_ms = delete_horizon_ms

        self._records = bytearray()
        self._base_timestamp = NO_TIMESTAMP if delete_horizon_ms is None else delete_horizon_ms
        self._max_timestamp = NO_TIMESTAMP
        self._next_offset = base_offset
        self._last_offset: int | None = None  # as overridden
        self.record_count = 0

    @property
    def size_bytes_estimate(self) -> int:
        """The size of the batch if it was built now, uncompressed: exact then, and a bound in practice otherwise."""
        return BATCH_HEADER_SIZE + len(self._records)

    @property
    def next_offset(self) -> int:
        """The offset the next record gets."""
        return self._next_offset

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        *,
        offset: int | None = None,
    ) -> None:
        """Adds one record at the next offset, or at a later one: compaction leaves gaps."""
        record_offset = self._next_offset if offset is None else offset
        assert record_offset >= self._next_offset, (record_offset, self._next_offset)
        if self.record_count == 0 and self._delete_horizon_ms is None:
            self._base_timestamp = timestamp
        self._records += encode_record(
            record_offset - self._base_offset, timestamp - self._base_timestamp, key, value, headers
        )
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self._next_offset = record_offset + 1
        self.record_count += 1

    def override_last_offset(self, last_offset: int) -> None:
        """Lets the batch span offsets up to `last_offset` whose records compaction has removed."""
        assert last_offset >= self._next_offset - 1, (last_offset, self._next_offset)
        self._last_offset = last_offset

    def override_max_timestamp(self, max_timestamp: int) -> None:
        """Keeps the largest timestamp of records that compaction has removed."""
        self._max_timestamp = max_timestamp

    def build(self) -> bytearray:
        """The batch.  Without records it is legal only as compaction leaves it: with the last offset overridden."""
        last_offset = self._next_offset - 1 if self._last_offset is None else self._last_offset
        assert last_offset >= self._base_offset, "a batch covers at least one offset"
        payload = self._records
        if self._compression is not CompressionType.NONE and self.record_count:
            payload = bytearray(compress(self._compression, self._records, self._compression_level))
        batch = bytearray(BATCH_HEADER_SIZE)
        batch += payload
        HEADER.pack_into(
            batch,
            0,
            self._base_offset,
            len(batch) - LOG_OVERHEAD,
            self._partition_leader_epoch,
            MAGIC,
            0,
            self._attributes(),
            last_offset - self._base_offset,
            self._base_timestamp,
            self._max_timestamp if self._timestamp_type is TimestampType.CREATE_TIME else self._log_append_time,
            self._producer_id,
            self._producer_epoch,
            self._base_sequence,
            self.record_count,
        )
        set_crc(batch)
        return batch

    def _attributes(self) -> int:
        attributes = self._compression | self._timestamp_type << 3
        if self._is_transactional:
            attributes |= TRANSACTIONAL_FLAG
        if self._is_control:
            attributes |= CONTROL_FLAG
        if self._delete_horizon_ms is not None:
            attributes |= DELETE_HORIZON_FLAG
        return attributes


def records_batch(*entries: tuple[int, bytes | None, bytes | None], **keywords: Any) -> bytearray:
    """One batch of (timestamp, key, value) entries; the keywords are those of `MemoryRecordsBuilder`."""
    builder = MemoryRecordsBuilder(**keywords)
    for timestamp, key, value in entries:
        builder.append(timestamp, key, value)
    return builder.build()


def empty_batch(
    base_offset: int,
    last_offset: int,
    *,
    max_timestamp: int,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    partition_leader_epoch: int = NO_EPOCH,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """A batch without records, which compaction leaves for its producer's sequence (Kafka: writeEmptyHeader)."""
    builder = MemoryRecordsBuilder(
        base_offset,
        timestamp_type=timestamp_type,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        partition_leader_epoch=partition_leader_epoch,
        is_transactional=is_transactional,
        is_control=is_control,
        log_append_time=max_timestamp,
    )
    builder.override_last_offset(last_offset)
    builder.override_max_timestamp(max_timestamp)
    return builder.build()
