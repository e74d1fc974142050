"""Single records inside a batch, format 2 (Kafka: DefaultRecord).

Brokers pass batches along whole; records are decoded only for compaction, internal topics, and where a topic's
rules need their keys or timestamps.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from broker.common.buffers import Buffer
from broker.common.errors import InvalidRecordError
from broker.common.identifiers import NO_SEQUENCE
from broker.records.sequence import increment_sequence
from broker.records.varint import decode_varint, decode_varlong, encode_varint, encode_varlong, wrapped_long

_NULL: Final = encode_varint(-1)
_NO_ATTRIBUTES: Final = b"\x00"
_TIMESTAMP_MIN: Final = -(1 << 63)
_TIMESTAMP_MAX: Final = (1 << 63) - 1
_RECORD_SIZE_MIN: Final = 7  # length, attributes, timestamp, offset, two null lengths, header count

# Header keys are text, but nothing stops a client from sending other bytes: they must survive a re-encoding.
_KEY_ERRORS: Final = "surrogateescape"


class Header(NamedTuple):
    """One header; keys may repeat and their order is kept."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """One record with what its batch says of it resolved: absolute offset, effective timestamp, sequence."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    sequence: int = NO_SEQUENCE


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]] = (),
) -> bytes:
    """One record as it stands in a batch, its length in front."""
    parts = [
        _NO_ATTRIBUTES,
        encode_varlong(timestamp_delta),
        encode_varint(offset_delta),
        *_nullable_bytes(key),
        *_nullable_bytes(value),
    ]
    pairs = tuple(headers)
    parts.append(encode_varint(len(pairs)))
    for header_key, header_value in pairs:
        parts += _nullable_bytes(header_key.encode("utf-8", _KEY_ERRORS))
        parts += _nullable_bytes(header_value)
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def _nullable_bytes(value: bytes | None) -> tuple[bytes, bytes]:
    return (_NULL, b"") if value is None else (encode_varint(len(value)), value)


def decode_records(
    data: Buffer,
    count: int,
    *,
    base_offset: int,
    base_timestamp: int,
    base_sequence: int = NO_SEQUENCE,
    log_append_time: int | None = None,
) -> Iterator[Record]:
    """The `count` records that `data`, unpacked, must hold to the last byte.

    `log_append_time` replaces the timestamps of all records.  InvalidRecordError as soon as the structure is wrong;
    leftover bytes are noticed after the last record.
    """
    if count < 0:
        raise InvalidRecordError(f"Found invalid record count {count} in a record batch")
    payload = data if isinstance(data, bytes) else bytes(data)  # slices of bytes are the keys and values wanted
    position = 0
    for _ in range(count):
        delta_of_offset, delta_of_timestamp, key, value, headers, position = _decode_record(payload, position)
        timestamp = base_timestamp + delta_of_timestamp if log_append_time is None else log_append_time
        yield Record(
            base_offset + delta_of_offset,
            timestamp if _TIMESTAMP_MIN <= timestamp <= _TIMESTAMP_MAX else wrapped_long(timestamp),
            key,
            value,
            headers,
            NO_SEQUENCE if base_sequence < 0 else increment_sequence(base_sequence, delta_of_offset),
        )
    if position != len(payload):
        raise InvalidRecordError(f"{len(payload) - position} bytes follow the last of {count} records")


def _decode_record(data: bytes, position: int) -> tuple[int, int, bytes | None, bytes | None, tuple[Header, ...], int]:
    """(offset delta, timestamp delta, key, value, headers, position of the next record)."""
    size, position = decode_varint(data, position)
    end = position + size
    if size < _RECORD_SIZE_MIN - 1 or end > len(data):
        raise InvalidRecordError(f"A record declares {size} bytes, {len(data) - position} are left in its batch")
    timestamp_delta, position = decode_varlong(data, position + 1)  # the attributes byte has no meaning yet
    offset_delta, position = decode_varint(data, position)
    key, position = _decode_nullable_bytes(data, position, end)
    value, position = _decode_nullable_bytes(data, position, end)
    headers: tuple[Header, ...] = ()
    if position < end and data[position] == 0:  # most records have none
        position += 1
    else:
        headers, position = _decode_headers(data, position, end)
    if position != end:
        raise InvalidRecordError(f"A record declares {size} bytes, its fields take {size + position - end}")
    return offset_delta, timestamp_delta, key, value, headers, position


def _decode_nullable_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = decode_varint(data, position)
    if size < 0:
        return None, position
    if size > end - position:
        raise InvalidRecordError(f"A field of {size} bytes goes past the end of its record")
    return data[position : position + size], position + size


def _decode_headers(data: bytes, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, position = decode_varint(data, position)
    if not 0 <= count <= end - position:
        raise InvalidRecordError(f"Found invalid number of record headers {count}")
    headers = []
    for _ in range(count):
        key, position = _decode_nullable_bytes(data, position, end)
        if key is None:
            raise InvalidRecordError("A record header has no key")
        value, position = _decode_nullable_bytes(data, position, end)
        headers.append(Header(key.decode("utf-8", _KEY_ERRORS), value))
    return tuple(headers), position
