"""Control records: markers that end transactions, and the metadata quorum's own messages.

A control record's key says what it is: version int16 (0) | type int16.  Newer versions are read as 0, and unknown
types are ignored by consumers (Kafka: ControlRecordType, EndTransactionMarker).
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from broker.common.errors import InvalidRecordError
from broker.common.identifiers import NO_EPOCH
from broker.records.memory_records_builder import MemoryRecordsBuilder
from broker.records.record import Record
from broker.records.record_batch import TimestampType

_KEY: Final = struct.Struct(">hh")
_END_TRANSACTION_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0


class ControlRecordType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_TYPES: Final = {int(kind): kind for kind in ControlRecordType}
END_TRANSACTION_TYPES: Final = frozenset({ControlRecordType.ABORT, ControlRecordType.COMMIT})


def encode_control_key(kind: ControlRecordType) -> bytes:
    return _KEY.pack(_VERSION, kind)


def parse_control_key(key: bytes | None) -> ControlRecordType | None:
    """None for a type this version does not know.  InvalidRecordError when the key cannot be one."""
    if key is None or len(key) < _KEY.size:
        raise InvalidRecordError(f"Invalid control record key {key!r}: at least {_KEY.size} bytes are needed")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordError(f"Invalid version {version} in a control record's key")
    return _TYPES.get(kind)


class EndTransactionMarker(NamedTuple):
    """The end of a transaction in one partition; the coordinator's epoch fences older coordinators."""

    type: ControlRecordType  # ABORT or COMMIT
    coordinator_epoch: int

    @property
    def is_commit(self) -> bool:
        return self.type is ControlRecordType.COMMIT

    def encode_key(self) -> bytes:
        return encode_control_key(self.type)

    def encode_value(self) -> bytes:
        return _END_TRANSACTION_VALUE.pack(_VERSION, self.coordinator_epoch)

    @classmethod
    def parse(cls, record: Record) -> "EndTransactionMarker | None":
        """The marker in a control record; None when the record is of another type."""
        kind = parse_control_key(record.key)
        if kind not in END_TRANSACTION_TYPES:
            return None
        assert kind is not None
        value = record.value
        if value is None or len(value) < _END_TRANSACTION_VALUE.size:
            raise InvalidRecordError(f"Invalid end transaction marker value {value!r}")
        version, coordinator_epoch = _END_TRANSACTION_VALUE.unpack_from(value)
        if version < 0:
            raise InvalidRecordError(f"Invalid version {version} in an end transaction marker")
        return cls(kind, coordinator_epoch)


def end_transaction_marker_batch(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_EPOCH,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytearray:
    """The batch of 78 bytes that ends a producer's transaction: one record, never compressed."""
    builder = MemoryRecordsBuilder(
        base_offset,
        timestamp_type=timestamp_type,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partition_leader_epoch=partition_leader_epoch,
        is_transactional=True,
        is_control=True,
        log_append_time=timestamp,
    )
    builder.append(timestamp, marker.encode_key(), marker.encode_value())
    return builder.build()


def control_batch(
    entries: Sequence[tuple[ControlRecordType, bytes]],
    *,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_EPOCH,
) -> bytearray:
    """A control batch of the metadata quorum: (type, encoded message) each."""
    builder = MemoryRecordsBuilder(base_offset, partition_leader_epoch=partition_leader_epoch, is_control=True)
    for kind, value in entries:
        builder.append(timestamp, encode_control_key(kind), value)
    return builder.build()
