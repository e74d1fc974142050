"""A producer's own Produce, by hand, version 13: requests written and responses read (ProduceRequest.json).

The broker is a producer where it announces objects, a hundred times a second.  kio writes and reads the same; the
tests compare the two.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple
from uuid import UUID

from broker.common.buffers import Buffer
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import MalformedFrameError
from broker.protocol.wire_format import legacy_string, read_unsigned_varint, skip_tagged_fields, unsigned_varint

VERSION: Final = 13

_LENGTH: Final = Struct(">i")
_HEADER: Final = Struct(">hhi")
_HEAD: Final = Struct(">Bhi")  # no transactional id, acks, timeout
_INDEX: Final = Struct(">i")
_ANSWER: Final = Struct(">ihqqq")  # partition, error, base offset, log append time, log start offset
_TOPIC_ID_SIZE: Final = 16


class ProducedAnswer(NamedTuple):
    """What became of the records of one partition; `error_code` 0 is that they are there."""

    partition: int
    error_code: int
    base_offset: int


def encode_request(
    correlation_id: int,
    client_id: str,
    acks: int,
    timeout_ms: int,
    topic_id: UUID,
    partitions: Sequence[tuple[int, Buffer]],
) -> bytes:
    """A whole request, with its length, for partitions of one topic: each number once, with its records."""
    parts: list[Buffer] = [
        b"",
        _HEADER.pack(ApiKey.PRODUCE, VERSION, correlation_id) + legacy_string(client_id) + b"\0",
        _HEAD.pack(0, acks, timeout_ms),
        b"\2" + topic_id.bytes + unsigned_varint(len(partitions) + 1),
    ]
    for partition, records in partitions:
        parts.append(_INDEX.pack(partition) + unsigned_varint(len(records) + 1))
        parts.append(records)
        parts.append(b"\0")
    parts.append(b"\0\0")  # no tags of the topic, nor of the request
    parts[0] = _LENGTH.pack(sum(map(len, parts)))
    return b"".join(parts)


def decode_response(frame: bytes) -> list[ProducedAnswer]:
    """The answers of a response without its length, whatever its topic; MalformedFrameError."""
    try:
        return _decode(frame)
    except (StructError, IndexError, ValueError) as error:
        raise MalformedFrameError(f"ProduceResponse: {error}") from error


def _decode(frame: bytes) -> list[ProducedAnswer]:
    position = skip_tagged_fields(frame, _LENGTH.size)  # behind the correlation id
    topics, position = read_unsigned_varint(frame, position)
    answers: list[ProducedAnswer] = []
    for _ in range(topics - 1):
        count, position = read_unsigned_varint(frame, position + _TOPIC_ID_SIZE)
        for _ in range(count - 1):
            partition, error_code, base_offset, _, _ = _ANSWER.unpack_from(frame, position)
            answers.append(ProducedAnswer(partition, error_code, base_offset))
            position = _skip_record_errors(frame, position + _ANSWER.size)
            _, position = _skip_string(frame, position)
            position = skip_tagged_fields(frame, position)
        position = skip_tagged_fields(frame, position)
    return answers


def _skip_record_errors(frame: bytes, position: int) -> int:
    count, position = read_unsigned_varint(frame, position)
    for _ in range(count - 1):
        _, position = _skip_string(frame, position + _INDEX.size)
        position = skip_tagged_fields(frame, position)
    return position


def _skip_string(frame: bytes, position: int) -> tuple[None, int]:
    size, position = read_unsigned_varint(frame, position)
    return None, position + max(size - 1, 0)
