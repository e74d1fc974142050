"""The record batch, format 2: a view over bytes that the broker passes along without decoding them.

Layout (big-endian): baseOffset int64 | batchLength int32 | partitionLeaderEpoch int32 | magic int8 | crc uint32 |
attributes int16 | lastOffsetDelta int32 | baseTimestamp int64 | maxTimestamp int64 | producerId int64 |
producerEpoch int16 | baseSequence int32 | recordCount int32 | records.  The CRC-32C covers everything from the
attributes on, so base offset and leader epoch are set in place without touching it (Kafka: DefaultRecordBatch).
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

from crc32c import crc32c

from broker.common.buffers import Buffer, MutableBuffer
from broker.common.errors import CorruptMessageError, InvalidRecordError
from broker.common.identifiers import NO_TIMESTAMP
from broker.records.compression import DECOMPRESSED_SIZE_MAX, CompressionType, decompress
from broker.records.record import Record, decode_records
from broker.records.sequence import decrement_sequence, increment_sequence

__all__ = [
    "BATCH_HEADER_SIZE",
    "HEADER_UP_TO_MAGIC_SIZE",
    "LOG_OVERHEAD",
    "MAGIC",
    "CompressionType",
    "RecordBatch",
    "TimestampType",
    "batch_crc",
    "batches",
    "decrement_sequence",
    "increment_sequence",
    "set_crc",
    "whole_batches_size",
]

BATCH_HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12  # base offset and length, which the length does not count
HEADER_UP_TO_MAGIC_SIZE: Final = 17
MAGIC: Final = 2

HEADER: Final = struct.Struct(">qiibIhiqqqhii")

_LENGTH_POSITION: Final = 8
_MAGIC_POSITION: Final = 16
_CRC_POSITION: Final = 17
_CHECKED_FROM: Final = 21  # where the bytes under the CRC begin: the attributes
_MAX_TIMESTAMP_POSITION: Final = 35
_LENGTH_MIN: Final = BATCH_HEADER_SIZE - LOG_OVERHEAD
_LEGACY_LENGTH_MIN: Final = 14  # LegacyRecord.RECORD_OVERHEAD_V0: below it, no format fits

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT64: Final = struct.Struct(">q")
_UP_TO_EPOCH: Final = struct.Struct(">qii")  # base offset, length, leader epoch
_CODECS: Final = tuple(CompressionType)


class TimestampType(IntEnum):
    """Bit 3 of the attributes: who set the timestamps."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def label(self) -> str:
        """The name in configurations: "CreateTime"."""
        return "CreateTime" if self is TimestampType.CREATE_TIME else "LogAppendTime"

    @classmethod
    def of(cls, label: str) -> "TimestampType":
        """The type of a configured name; ValueError when unknown."""
        for kind in cls:
            if kind.label == label:
                return kind
        raise ValueError(f"unknown timestamp type {label!r}")


class RecordBatch:
    """One batch: the header fields, read once, and the bytes they came from.

    A view: it holds the buffer and copies nothing, and it never looks at the records unless asked.  Whoever patches
    the buffer in place (the log validator of the leader) also sets the fields here; for all others it is immutable.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size_bytes",
    )

    buffer: Buffer  # exactly this batch
    size_bytes: int
    base_offset: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int  # the delete horizon when the batch has one
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @classmethod
    def parse(cls, buffer: Buffer, position: int = 0) -> "RecordBatch":
        """The batch that starts at `position`; bytes after it do not matter.

        CorruptMessageError when no whole batch of format 2 stands there.  The CRC is not checked: `ensure_valid`.
        """
        available = len(buffer) - position
        if available < BATCH_HEADER_SIZE:
            raise _unparsable(buffer, position)
        batch = cls.__new__(cls)
        (
            batch.base_offset,
            length,
            batch.partition_leader_epoch,
            batch.magic,
            batch.crc,
            batch.attributes,
            batch.last_offset_delta,
            batch.base_timestamp,
            batch.max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.record_count,
        ) = HEADER.unpack_from(buffer, position)
        size_bytes = length + LOG_OVERHEAD
        if batch.magic != MAGIC or not BATCH_HEADER_SIZE <= size_bytes <= available:
            raise _unparsable(buffer, position)
        batch.size_bytes = size_bytes
        batch.buffer = buffer if size_bytes == len(buffer) else memoryview(buffer)[position : position + size_bytes]
        return batch

    def set_base_offset_and_epoch(self, base_offset: int, leader_epoch: int) -> None:
        """What a leader stamps on the batch.  In place, so its bytes must be the leader's own; no CRC covers it."""
        writable: Any = self.buffer
        _UP_TO_EPOCH.pack_into(writable, 0, base_offset, self.size_bytes - LOG_OVERHEAD, leader_epoch)
        self.base_offset = base_offset
        self.partition_leader_epoch = leader_epoch

    def set_max_timestamp(self, timestamp_type: TimestampType, max_timestamp: int) -> None:
        """Sets the timestamp type, the largest timestamp and the CRC, in place."""
        writable: Any = self.buffer
        self.attributes = self.attributes & ~TIMESTAMP_TYPE_MASK | timestamp_type << 3
        self.max_timestamp = max_timestamp
        _INT16.pack_into(writable, _CHECKED_FROM, self.attributes)
        _INT64.pack_into(writable, _MAX_TIMESTAMP_POSITION, max_timestamp)
        self.crc = set_crc(writable)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def log_append_time(self) -> int:
        """When the broker appended it, if that is what its timestamps say; else -1."""
        return self.max_timestamp if self.attributes & TIMESTAMP_TYPE_MASK else NO_TIMESTAMP

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; -1 when the batch carries none."""
        if self.base_sequence < 0:
            return self.base_sequence
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> CompressionType:
        """InvalidRecordError for the three codec numbers that nobody has defined."""
        codec = self.attributes & CODEC_MASK
        if codec >= len(_CODECS):
            raise InvalidRecordError(f"Unknown compression type id: {codec}")
        return _CODECS[codec]

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_MASK else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_FLAG != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the batch's tombstones and markers (KIP-534)."""
        return self.base_timestamp if self.has_delete_horizon else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > -1

    def is_crc_valid(self) -> bool:
        return self.crc == batch_crc(self.buffer)

    def ensure_valid(self) -> None:
        """CorruptMessageError when the bytes are not those whose CRC the header has."""
        if self.crc != crc32c(memoryview(self.buffer)[_CHECKED_FROM:], 0, 0):  # `batch_crc`, on the hot path
            raise CorruptMessageError(
                f"Record is corrupt (stored crc = {self.crc}, computed crc = {batch_crc(self.buffer)})"
            )

    def records(self, decompressed_size_max: int = DECOMPRESSED_SIZE_MAX) -> Iterator[Record]:
        """Decodes the records one by one, unpacking them first when they are compressed.

        InvalidRecordError when they are not what the header says: as soon as it is noticed, which may be after the
        last record.
        """
        codec = self.compression
        payload: Buffer = memoryview(self.buffer)[BATCH_HEADER_SIZE:]
        if codec is not CompressionType.NONE and self.record_count > 0:
            payload = decompress(codec, payload, decompressed_size_max)
        return self.records_in(payload)

    def records_in(self, payload: Buffer) -> Iterator[Record]:
        """`records` for who has unpacked them elsewhere: `payload` is what they unpacked to."""
        is_log_append_time = self.attributes & TIMESTAMP_TYPE_MASK
        return decode_records(
            payload,
            self.record_count,
            base_offset=self.base_offset,
            base_timestamp=self.base_timestamp,
            base_sequence=self.base_sequence,
            log_append_time=self.max_timestamp if is_log_append_time else None,
        )

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets={self.base_offset}..{self.last_offset}, epoch={self.partition_leader_epoch}, "
            f"producer={self.producer_id}/{self.producer_epoch}, sequence={self.base_sequence}, "
            f"count={self.record_count}, attributes={self.attributes:#x}, size={self.size_bytes})"
        )


def _unparsable(buffer: Buffer, position: int) -> CorruptMessageError:
    """Why no batch can be read at `position`: the magic is named before the lengths, whose meaning depends on it."""
    available = len(buffer) - position
    if available < HEADER_UP_TO_MAGIC_SIZE:
        return CorruptMessageError(f"No record batch fits into {available} bytes")
    length = _INT32.unpack_from(buffer, position + _LENGTH_POSITION)[0]
    magic = buffer[position + _MAGIC_POSITION]
    if length < _LEGACY_LENGTH_MIN:
        return CorruptMessageError(f"Record size {length} is less than the minimum record overhead")
    if magic in (0, 1):
        return CorruptMessageError(f"Records of the old format {magic} are not supported (KIP-724)")
    if magic != MAGIC:
        return CorruptMessageError(f"Invalid magic {magic} in a record batch")
    if length < _LENGTH_MIN:
        return CorruptMessageError(f"Record batch is corrupt (its size {length + LOG_OVERHEAD} is below 61)")
    return CorruptMessageError(f"A record batch of {length + LOG_OVERHEAD} bytes does not fit into {available}")


def batches(buffer: Buffer, position: int = 0) -> Iterator[RecordBatch]:
    """The whole batches from `position` on; ends silently where only a part of one is left.

    CorruptMessageError at a length that cannot be, or another format.
    """
    end = len(buffer)
    while end - position >= HEADER_UP_TO_MAGIC_SIZE:
        length = _INT32.unpack_from(buffer, position + _LENGTH_POSITION)[0]
        if length >= _LENGTH_MIN and length + LOG_OVERHEAD > end - position:
            return
        batch = RecordBatch.parse(buffer, position)
        yield batch
        position += batch.size_bytes


def whole_batches_size(buffer: Buffer) -> int:
    """How many bytes the whole batches at the front of `buffer` take.  CorruptMessageError as in `batches`."""
    position = 0
    end = len(buffer)
    while end - position >= HEADER_UP_TO_MAGIC_SIZE:
        length = _INT32.unpack_from(buffer, position + _LENGTH_POSITION)[0]
        if length < _LENGTH_MIN or buffer[position + _MAGIC_POSITION] != MAGIC:
            raise _unparsable(buffer, position)
        if length + LOG_OVERHEAD > end - position:
            break
        position += length + LOG_OVERHEAD
    return position


def batch_crc(buffer: Buffer) -> int:
    """The CRC that belongs into the header of the batch that `buffer` is."""
    crc: int = crc32c(memoryview(buffer)[_CHECKED_FROM:], 0, 0)  # 0: keeps the GIL, which is cheaper than a hand-over
    return crc


def set_crc(buffer: MutableBuffer) -> int:
    """Computes the CRC of the batch that `buffer` is, and writes it into its header."""
    crc = batch_crc(buffer)
    _UINT32.pack_into(buffer, _CRC_POSITION, crc)
    return crc
