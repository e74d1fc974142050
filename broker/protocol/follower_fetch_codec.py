"""A follower's own Fetch, by hand: requests written and responses read, versions 13 to 18 (FetchRequest.json).

A busy follower asks a thousand times a second.  kio writes and reads the same; the tests compare the two.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple
from uuid import UUID

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import MalformedFrameError
from broker.protocol.wire_format import legacy_string, read_unsigned_varint, skip_tagged_fields, unsigned_varint

FIRST_VERSION: Final = 13  # topic ids (KIP-516)
FIRST_WITH_REPLICA_STATE: Final = 15  # KIP-903

_LENGTH: Final = Struct(">i")
_HEADER: Final = Struct(">hhi")
_INT32: Final = Struct(">i")
_HEAD: Final = Struct(">iiibii")  # max wait, min bytes, max bytes, isolation level, session id, session epoch
_PARTITION: Final = Struct(">iiqiqix")  # partition, epoch, offset, last epoch, start offset, max bytes, no tags
_REPLICA_STATE: Final = Struct(">BBBiqB")  # one tag, which is 1, of 13 bytes: replica id, epoch, no tags
_RESPONSE_HEAD: Final = Struct(">ihi")  # throttle time, error, session id
_ANSWER: Final = Struct(">ihqqq")  # partition, error, high watermark, last stable offset, log start offset
_ABORTED_BYTES: Final = 17  # producer id, first offset, no tags
_EPOCH_END: Final = Struct(">iq")
_DIVERGING_EPOCH_TAG: Final = 0


class FetchedAnswer(NamedTuple):
    """One partition of a response.  `records` is a view of the response."""

    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    records: memoryview
    diverging_epoch: tuple[int, int] | None  # epoch and end offset


class FetchedAnswers(NamedTuple):
    error_code: int
    session_id: int
    topics: list[tuple[UUID, list[FetchedAnswer]]]


class FollowerFetchHead(NamedTuple):
    """What a request says once."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int


# Partition, leader epoch, fetch offset, last fetched epoch, log start offset, max bytes.
AskedPartition = tuple[int, int, int, int, int, int]


def encode_request(
    version: int,
    correlation_id: int,
    client_id: str,
    head: FollowerFetchHead,
    topics: Mapping[UUID, Sequence[AskedPartition]],
    forgotten: Mapping[UUID, Sequence[int]],
) -> bytes:
    """A whole request, with its length."""
    assert version >= FIRST_VERSION, f"followers fetch with topic ids, not with version {version}"
    has_state = version >= FIRST_WITH_REPLICA_STATE
    parts = [
        b"",
        _HEADER.pack(ApiKey.FETCH, version, correlation_id) + legacy_string(client_id) + b"\0",
        b"" if has_state else _INT32.pack(head.replica_id),
        _HEAD.pack(head.max_wait_ms, head.min_bytes, head.max_bytes, 0, head.session_id, head.session_epoch),
        unsigned_varint(len(topics) + 1),
    ]
    pack = _PARTITION.pack
    for topic_id, partitions in topics.items():
        parts.append(topic_id.bytes + unsigned_varint(len(partitions) + 1))
        parts.extend([pack(*each) for each in partitions])
        parts.append(b"\0")
    parts.append(unsigned_varint(len(forgotten) + 1))
    for topic_id, numbers in forgotten.items():
        parts.append(topic_id.bytes + unsigned_varint(len(numbers) + 1))
        parts.append(Struct(f">{len(numbers)}i").pack(*numbers) + b"\0")
    parts.append(b"\1")  # no rack
    parts.append(_REPLICA_STATE.pack(1, 1, 13, head.replica_id, head.replica_epoch, 0) if has_state else b"\0")
    parts[0] = _LENGTH.pack(sum(map(len, parts)))
    return b"".join(parts)


def decode_response(frame: bytes) -> FetchedAnswers:
    """A response without its length; MalformedFrameError."""
    try:
        return _decode(frame)
    except (StructError, IndexError, ValueError) as error:
        raise MalformedFrameError(f"FetchResponse: {error}") from error


def _decode(frame: bytes) -> FetchedAnswers:
    view = memoryview(frame)
    position = skip_tagged_fields(frame, _LENGTH.size)  # behind the correlation id
    _, error_code, session_id = _RESPONSE_HEAD.unpack_from(frame, position)
    count, position = read_unsigned_varint(frame, position + _RESPONSE_HEAD.size)
    topics = []
    for _ in range(count - 1):
        topic_id = UUID(bytes=frame[position : position + 16])
        count, position = read_unsigned_varint(frame, position + 16)
        answers = []
        for _ in range(count - 1):
            answer, position = _decode_answer(frame, view, position)
            answers.append(answer)
        position = skip_tagged_fields(frame, position)
        topics.append((topic_id, answers))
    return FetchedAnswers(error_code, session_id, topics)


def _decode_answer(frame: bytes, view: memoryview, position: int) -> tuple[FetchedAnswer, int]:
    partition, error_code, high_watermark, _, log_start_offset = _ANSWER.unpack_from(frame, position)
    aborted, position = read_unsigned_varint(frame, position + _ANSWER.size)
    if aborted > 1:  # followers read uncommitted; a leader has no reason to send any
        position += (aborted - 1) * _ABORTED_BYTES
    size, position = read_unsigned_varint(frame, position + 4)  # behind the preferred read replica
    end = position + max(size - 1, 0)
    if end > len(frame):
        raise MalformedFrameError(f"FetchResponse: {size} bytes of records at {position} of {len(frame)}")
    records = view[position:end]
    diverging_epoch = None
    if frame[end]:
        diverging_epoch, position = _decode_tags(frame, end)
    else:
        position = end + 1
    return (
        FetchedAnswer(partition, error_code, high_watermark, log_start_offset, records, diverging_epoch),
        position,
    )


def _decode_tags(frame: bytes, position: int) -> tuple[tuple[int, int] | None, int]:
    """The diverging epoch, if there is one, and the position behind all tags."""
    count, position = read_unsigned_varint(frame, position)
    diverging_epoch = None
    for _ in range(count):
        tag, position = read_unsigned_varint(frame, position)
        size, position = read_unsigned_varint(frame, position)
        if tag == _DIVERGING_EPOCH_TAG:
            epoch, end_offset = _EPOCH_END.unpack_from(frame, position)
            diverging_epoch = (epoch, end_offset) if epoch >= 0 else None
        position += size
    return diverging_epoch, position
