"""Fetch requests by hand: thousands of partitions in one pass (FetchRequest.json).

kio reads the same; the tests compare the two for every version.  Responses are in fetch_response_codec.
"""

import functools
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple
from uuid import UUID

from broker.protocol.errors import MalformedFrameError
from broker.protocol.fetch_response_codec import encode_response
from broker.protocol.produce_codec import topic_id_of
from broker.protocol.wire_format import read_unsigned_varint

__all__ = ["FetchPartition", "FetchRequest", "FetchTopic", "ForgottenTopic", "decode", "encode_response"]

FIRST_WITH_LOG_START_OFFSET: Final = 5
FIRST_WITH_SESSION: Final = 7  # KIP-227
FIRST_WITH_LEADER_EPOCH: Final = 9  # KIP-320
FIRST_WITH_RACK: Final = 11  # KIP-392
FIRST_FLEXIBLE: Final = 12
FIRST_WITH_TOPIC_ID: Final = 13  # KIP-516
FIRST_WITH_REPLICA_STATE: Final = 15  # KIP-903
FIRST_WITH_HIGH_WATERMARK: Final = 18  # KIP-1166

NO_SESSION_EPOCH: Final = -1  # FetchMetadata.FINAL_EPOCH: a sessionless full fetch
UNKNOWN_HIGH_WATERMARK: Final = (1 << 63) - 1  # the schema's default: the follower did not say

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_REPLICA_STATE: Final = Struct(">iq")
_HEAD: Final = Struct(">iiib")  # max wait, min bytes, max bytes, isolation level
_SESSION: Final = Struct(">ii")
_HEAD_AND_SESSION: Final = Struct(">iiibii")
_PARTITION_V4: Final = Struct(">iqi")  # partition, fetch offset, max bytes
_PARTITION_V5: Final = Struct(">iqqi")  # partition, fetch offset, log start offset, max bytes
_PARTITION_V9: Final = Struct(">iiqqi")  # partition, leader epoch, fetch offset, log start offset, max bytes
_PARTITION_V12: Final = Struct(">iiqiqi")  # partition, leader epoch, fetch offset, last epoch, start offset, max bytes
_PARTITION_V12_NO_TAGS: Final = Struct(">iiqiqix")
_STRIDE: Final = _PARTITION_V12_NO_TAGS.size
_NOTHING_MORE: Final = b"\1\1\0"  # no forgotten topics, an empty rack, no tags: how most requests of consumers end
_NOTHING_MORE_SIZE: Final = len(_NOTHING_MORE)
_STRIDE_WORTHWHILE: Final = 4  # below this many partitions a plain loop is as fast


class FetchPartition(NamedTuple):
    """One partition as asked for; what a version lacks has the schema's default."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int
    high_watermark: int = UNKNOWN_HIGH_WATERMARK


_make_partition: Final = functools.partial(tuple.__new__, FetchPartition)  # a fraction of what the class's call costs


class FetchTopic(NamedTuple):
    """One topic as asked for, named until version 12 and told by its id from 13 on."""

    name: str | None
    topic_id: UUID | None
    partitions: list[FetchPartition]


_make_topic: Final = functools.partial(tuple.__new__, FetchTopic)


class ForgottenTopic(NamedTuple):
    """Partitions to leave out of the session from now on."""

    name: str | None
    topic_id: UUID | None
    partitions: tuple[int, ...]


class FetchRequest(NamedTuple):
    """A fetch.  `session_id` 0 and `session_epoch` -1 ask for no session."""

    cluster_id: str | None
    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten_topics: list[ForgottenTopic]
    rack_id: str


_make_request: Final = functools.partial(tuple.__new__, FetchRequest)


def decode(frame: memoryview, position: int, version: int) -> FetchRequest:
    """The body that begins at `position`; MalformedFrameError.  Bytes behind it are ignored, as Kafka does."""
    try:
        if version >= FIRST_FLEXIBLE:
            return _decode_flexible(frame, position, version)
        return _decode_legacy(frame, position, version)
    except (StructError, IndexError, ValueError) as error:
        raise MalformedFrameError(f"FetchRequest {version}: {error}") from error


def _decode_flexible(frame: memoryview, position: int, version: int) -> FetchRequest:
    replica_id = replica_epoch = -1
    if version < FIRST_WITH_REPLICA_STATE:
        (replica_id,) = _INT32.unpack_from(frame, position)
        position += 4
    head = _HEAD_AND_SESSION.unpack_from(frame, position)  # max wait .. session epoch, as in the request
    count, position = read_unsigned_varint(frame, position + _HEAD_AND_SESSION.size)
    topics = []
    for _ in range(count - 1):
        name, topic_id, position = _topic(frame, position, version)
        partitions, position = _flexible_partitions(frame, position, version)
        position = position + 1 if frame[position] == 0 else _tagged_fields(frame, position)[1]
        topics.append(_make_topic((name, topic_id, partitions)))
    if bytes(frame[position : position + _NOTHING_MORE_SIZE]) == _NOTHING_MORE:
        return _make_request((None, replica_id, replica_epoch, *head, topics, [], ""))
    forgotten, position = _flexible_forgotten(frame, position, version)
    size, position = read_unsigned_varint(frame, position)
    rack_id, position = _text(frame, position, size - 1)
    cluster_id = None
    tags = _tagged_fields(frame, position)[0] if frame[position] else ()
    for tag, start, end in tags:
        if tag == 0:
            size, start = read_unsigned_varint(frame, start)
            cluster_id = _text(frame, start, size - 1)[0] if size else None
        elif tag == 1 and version >= FIRST_WITH_REPLICA_STATE:
            if end - start < _REPLICA_STATE.size:
                raise MalformedFrameError(f"a replica state of {end - start} bytes")
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(frame, start)
    return _make_request((cluster_id, replica_id, replica_epoch, *head, topics, forgotten, rack_id))


def _flexible_forgotten(frame: memoryview, position: int, version: int) -> tuple[list[ForgottenTopic], int]:
    count, position = read_unsigned_varint(frame, position)
    forgotten = []
    for _ in range(count - 1):
        name, topic_id, position = _topic(frame, position, version)
        size, position = read_unsigned_varint(frame, position)
        numbers, position = _int32_array(frame, position, size - 1)
        position = position + 1 if frame[position] == 0 else _tagged_fields(frame, position)[1]
        forgotten.append(ForgottenTopic(name, topic_id, numbers))
    return forgotten, position


def _flexible_partitions(frame: memoryview, position: int, version: int) -> tuple[list[FetchPartition], int]:
    count, position = read_unsigned_varint(frame, position)
    count -= 1
    end = position + _STRIDE * count
    if count >= _STRIDE_WORTHWHILE and end <= len(frame) and not any(frame[position + _STRIDE - 1 : end : _STRIDE]):
        # No tagged fields in any partition, as consumers send it: all have the same size.
        stride = _PARTITION_V12_NO_TAGS.iter_unpack(frame[position:end])
        return [_make_partition((*each, UNKNOWN_HIGH_WATERMARK)) for each in stride], end
    partitions = []
    size = _PARTITION_V12.size
    for _ in range(count):
        partition = _make_partition((*_PARTITION_V12.unpack_from(frame, position), UNKNOWN_HIGH_WATERMARK))
        position += size
        if frame[position]:
            tags, position = _tagged_fields(frame, position)
            for tag, start, end in tags:
                if tag == 1 and version >= FIRST_WITH_HIGH_WATERMARK and end - start >= _INT64.size:
                    partition = partition._replace(high_watermark=_INT64.unpack_from(frame, start)[0])
        else:
            position += 1
        partitions.append(partition)
    return partitions, position


def _decode_legacy(frame: memoryview, position: int, version: int) -> FetchRequest:
    (replica_id,) = _INT32.unpack_from(frame, position)
    max_wait_ms, min_bytes, max_bytes, isolation_level = _HEAD.unpack_from(frame, position + 4)
    position += 4 + _HEAD.size
    session_id, session_epoch = 0, NO_SESSION_EPOCH
    if version >= FIRST_WITH_SESSION:
        session_id, session_epoch = _SESSION.unpack_from(frame, position)
        position += _SESSION.size
    (count,) = _INT32.unpack_from(frame, position)
    position += 4
    topics = []
    for _ in range(count):
        name, position = _legacy_text(frame, position)
        partitions, position = _legacy_partitions(frame, position, version)
        topics.append(FetchTopic(name, None, partitions))
    forgotten = []
    if version >= FIRST_WITH_SESSION:
        (count,) = _INT32.unpack_from(frame, position)
        position += 4
        for _ in range(count):
            name, position = _legacy_text(frame, position)
            (size,) = _INT32.unpack_from(frame, position)
            numbers, position = _int32_array(frame, position + 4, size)
            forgotten.append(ForgottenTopic(name, None, numbers))
    rack_id = ""
    if version >= FIRST_WITH_RACK:
        rack_id, position = _legacy_text(frame, position)
    return FetchRequest(
        None,
        replica_id,
        -1,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
    )


def _legacy_partitions(frame: memoryview, position: int, version: int) -> tuple[list[FetchPartition], int]:
    (count,) = _INT32.unpack_from(frame, position)
    position += 4
    partitions = []
    for _ in range(count):
        leader_epoch = log_start_offset = -1
        if version >= FIRST_WITH_LEADER_EPOCH:
            index, leader_epoch, offset, log_start_offset, size = _PARTITION_V9.unpack_from(frame, position)
            position += _PARTITION_V9.size
        elif version >= FIRST_WITH_LOG_START_OFFSET:
            index, offset, log_start_offset, size = _PARTITION_V5.unpack_from(frame, position)
            position += _PARTITION_V5.size
        else:
            index, offset, size = _PARTITION_V4.unpack_from(frame, position)
            position += _PARTITION_V4.size
        partitions.append(FetchPartition(index, leader_epoch, offset, -1, log_start_offset, size))
    return partitions, position


def _topic(frame: memoryview, position: int, version: int) -> tuple[str | None, UUID | None, int]:
    if version >= FIRST_WITH_TOPIC_ID:
        end = position + 16
        return None, topic_id_of(bytes(frame[position:end])), end
    size, position = read_unsigned_varint(frame, position)
    name, position = _text(frame, position, size - 1)
    return name, None, position


def _text(frame: memoryview, position: int, size: int) -> tuple[str, int]:
    end = position + size
    if size < 0 or end > len(frame):
        raise MalformedFrameError(f"a string of {size} bytes at {position} in a frame of {len(frame)}")
    return str(frame[position:end], "utf-8"), end


def _legacy_text(frame: memoryview, position: int) -> tuple[str, int]:
    return _text(frame, position + 2, _INT16.unpack_from(frame, position)[0])


def _int32_array(frame: memoryview, position: int, count: int) -> tuple[tuple[int, ...], int]:
    if count < 0 or position + 4 * count > len(frame):
        raise MalformedFrameError(f"{count} partitions at {position} in a frame of {len(frame)}")
    end = position + 4 * count
    return tuple(value for (value,) in _INT32.iter_unpack(frame[position:end])), end


def _tagged_fields(frame: memoryview, position: int) -> tuple[list[tuple[int, int, int]], int]:
    """Each tag with where its value begins and ends, and the position behind them all."""
    count, position = read_unsigned_varint(frame, position)
    tags = []
    for _ in range(count):
        tag, position = read_unsigned_varint(frame, position)
        size, start = read_unsigned_varint(frame, position)
        position = start + size
        if position > len(frame):
            raise MalformedFrameError(f"tagged field {tag} of {size} bytes ends after its frame of {len(frame)}")
        tags.append((tag, start, position))
    return tags, position
