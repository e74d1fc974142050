"""Produce by hand: requests are read without copying a record, responses written without an object per partition.

kio reads and writes the same bytes; the tests compare the two for every version (ProduceRequest.json,
ProduceResponse.json).
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from broker.common.buffers import Buffer
from broker.protocol.errors import MalformedFrameError
from broker.protocol.wire_format import (
    compact_string,
    legacy_string,
    read_unsigned_varint,
    skip_tagged_fields,
    unsigned_varint,
)

FIRST_FLEXIBLE: Final = 9
FIRST_WITH_LOG_START_OFFSET: Final = 5
FIRST_WITH_RECORD_ERRORS: Final = 8  # KIP-467
FIRST_WITH_LEADER_HINTS: Final = 10  # KIP-951
FIRST_WITH_TOPIC_ID: Final = 13  # KIP-516
NULL_RECORDS: Final = -1

_NAME_POSITION: Final = 8  # without a transactional id, in the body: null, acks, timeout, and one topic count of a byte
_TOPIC_ID_SIZE: Final = 16
_HEAD_SIZE: Final = _NAME_POSITION + 1  # without the topic's id, or its name, whose length says one more than it has
HEADS_CACHED: Final = 4096
_ACKS_AND_TIMEOUT: Final = Struct(">hi")
_INDEX_AND_SIZE: Final = Struct(">iBBB")  # of a partition: the size is a varint of three bytes at most, or a long one
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_LEGACY_PARTITION: Final = Struct(">ii")  # index, size of the records
_RESPONSE_HEADER: Final = Struct(">ii")  # length, correlation id
_PARTITION_V3: Final = Struct(">ihqq")  # index, error, base offset, log append time
_PARTITION_V5: Final = Struct(">ihqqq")  # and the log start offset
_PARTITION_V8: Final = Struct(">ihqqqih")  # and no record errors, no message
_FLEXIBLE_PARTITION: Final = Struct(">ihqqqBBB")  # the same compact, and no tagged fields
_LEADER_HINT: Final = Struct(">BBBiiB")  # one tagged field: tag 0, size 9, leader id, leader epoch, no tags inside

_NO_THROTTLE: Final = bytes(4)
# Of a lone partition: no record errors, message nor tags; no tags of the topic; no throttling; no tags of the response.
_LONE_PARTITION_END: Final = b"\1\0\0\0\0\0\0\0\0"
TOPIC_NAMES_CACHED: Final = 4096

PartitionRecords = tuple[int, int, int]
"""Partition, and where its records begin and end in the frame; (-1, -1) for null."""


class ProduceTopic(NamedTuple):
    """What is produced to one topic, named until version 12 and told by its id from 13 on."""

    name: str | None
    topic_id: UUID | None
    partitions: list[PartitionRecords]


_make_topic: Final = functools.partial(tuple.__new__, ProduceTopic)  # a fraction of what the class's own call costs


class ProduceRequest(NamedTuple):
    """A request whose records still stand in its frame."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


_make_request: Final = functools.partial(tuple.__new__, ProduceRequest)

_Head = tuple[str | None, int, int, int, str | None, UUID | None, int]
"""Transactional id, acks, timeout, number of topics; name, id and number of partitions of the first one."""


class RecordErrorLike(Protocol):
    @property
    def batch_index(self) -> int: ...
    @property
    def message(self) -> str | None: ...


class LeaderHintLike(Protocol):
    @property
    def leader_id(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...


class PartitionProduceAnswer(Protocol):
    """What the encoder reads of one partition's result."""

    @property
    def topic_partition(self) -> Any: ...
    @property
    def error(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def log_append_time(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def record_errors(self) -> Sequence[RecordErrorLike]: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def current_leader(self) -> LeaderHintLike | None: ...


class NodeEndpoint(NamedTuple):
    """Where the leader of a hint is reached."""

    node_id: int
    host: str
    port: int
    rack: str | None


topic_name = functools.lru_cache(maxsize=TOPIC_NAMES_CACHED)(compact_string)
"""A topic's name as the flexible versions write it."""


@functools.lru_cache(maxsize=TOPIC_NAMES_CACHED)
def _lone_topic(topic: str | UUID) -> tuple[Callable[..., bytes], int, bytes]:
    """How a response for one partition is packed, the length it says, and what stands before the partition: no tags of
    the header, one topic with one partition."""
    before = b"\0\2" + (topic_name(topic) if isinstance(topic, str) else topic.bytes) + b"\2"
    layout = Struct(f">ii{len(before)}sihqqq{len(_LONE_PARTITION_END)}s")
    return layout.pack, layout.size - 4, before


@functools.lru_cache(maxsize=TOPIC_NAMES_CACHED)
def topic_id_of(raw: bytes) -> UUID:
    """A UUID costs more to make than a request to read; a broker sees the same ids again and again."""
    return UUID(bytes=raw)


def decode(frame: memoryview, position: int, version: int) -> ProduceRequest:
    """The body that begins at `position`; MalformedFrameError.  Bytes behind it are ignored, as Kafka does."""
    try:
        if version >= FIRST_FLEXIBLE:
            return _decode_flexible(frame, position, has_topic_id=version >= FIRST_WITH_TOPIC_ID)
        return _decode_legacy(frame, position)
    except (StructError, IndexError, ValueError) as error:
        raise MalformedFrameError(f"ProduceRequest {version}: {error}") from error


def _decode_flexible(frame: memoryview, position: int, has_topic_id: bool) -> ProduceRequest:
    # Short varints, nearly all of them, are read in place: a call costs as much as the rest of the field.
    known = None
    if not frame[position]:
        topic_size = _TOPIC_ID_SIZE if has_topic_id else frame[position + _NAME_POSITION]
        end = position + _HEAD_SIZE + topic_size
        known = known_head(bytes(frame[position:end]), has_topic_id)
    if known is None:
        known, end = _read_head(frame, position, has_topic_id)
    transactional_id, acks, timeout_ms, topic_count, name, topic_id, count = known
    position = end
    topics = []
    for number in range(topic_count):
        if number:
            name, topic_id, count, position = _read_topic(frame, position, has_topic_id)
        partitions: list[PartitionRecords] = []
        for _ in range(count):
            index, size, second, third = _INDEX_AND_SIZE.unpack_from(frame, position)
            if size < 0x80:
                start = position + 5
            elif second < 0x80:
                size, start = size & 0x7F | second << 7, position + 6
            elif third < 0x80:
                size, start = size & 0x7F | (second & 0x7F) << 7 | third << 14, position + 7
            else:
                size, start = read_unsigned_varint(frame, position + 4)
            if size:
                position = start + size - 1
                partitions.append((index, start, position))
            else:
                position = start
                partitions.append((index, NULL_RECORDS, NULL_RECORDS))
            position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
        position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
        topics.append(_make_topic((name, topic_id, partitions)))
    if frame[position]:
        skip_tagged_fields(frame, position)
    return _make_request((transactional_id, acks, timeout_ms, topics))


@functools.lru_cache(maxsize=HEADS_CACHED)
def known_head(head: bytes, has_topic_id: bool) -> _Head | None:
    """The same bytes begin nearly all requests of a client for a partition; None when they are not a whole head."""
    try:
        known, end = _read_head(memoryview(head), 0, has_topic_id)
    except (StructError, IndexError, ValueError, MalformedFrameError):
        return None
    return known if end == len(head) else None


def _read_head(frame: memoryview, position: int, has_topic_id: bool) -> tuple[_Head, int]:
    """Everything before the first partition, and the position behind it."""
    size, position = read_unsigned_varint(frame, position)
    transactional_id = None
    if size:
        transactional_id, position = _text(frame, position, size - 1)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, position)
    topic_count, position = read_unsigned_varint(frame, position + _ACKS_AND_TIMEOUT.size)
    if topic_count <= 1:
        return (transactional_id, acks, timeout_ms, 0, None, None, 0), position
    name, topic_id, count, position = _read_topic(frame, position, has_topic_id)
    return (transactional_id, acks, timeout_ms, topic_count - 1, name, topic_id, count), position


def _read_topic(frame: memoryview, position: int, has_topic_id: bool) -> tuple[str | None, UUID | None, int, int]:
    """A topic's name or id, the number of its partitions, and the position behind them."""
    name = topic_id = None
    if has_topic_id:
        end = position + _TOPIC_ID_SIZE
        topic_id = topic_id_of(bytes(frame[position:end]))
    else:
        size, position = read_unsigned_varint(frame, position)
        if not size:
            raise MalformedFrameError(f"a null topic name at {position}")
        name, end = _text(frame, position, size - 1)
    count, position = read_unsigned_varint(frame, end)
    return name, topic_id, count - 1, position


def _decode_legacy(frame: memoryview, position: int) -> ProduceRequest:
    (size,) = _INT16.unpack_from(frame, position)
    position += 2
    transactional_id = None
    if size >= 0:
        transactional_id, position = _text(frame, position, size)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, position)
    position += _ACKS_AND_TIMEOUT.size
    (topic_count,) = _INT32.unpack_from(frame, position)
    position += 4
    topics = []
    for _ in range(topic_count):
        (size,) = _INT16.unpack_from(frame, position)
        name, position = _text(frame, position + 2, size)
        (count,) = _INT32.unpack_from(frame, position)
        position += 4
        partitions: list[PartitionRecords] = []
        for _ in range(count):
            index, size = _LEGACY_PARTITION.unpack_from(frame, position)
            start = position + _LEGACY_PARTITION.size
            if size >= 0:
                position = start + size
                partitions.append((index, start, position))
            else:
                position = start
                partitions.append((index, NULL_RECORDS, NULL_RECORDS))
        if position > len(frame):
            raise MalformedFrameError(f"records end at {position}, after their frame of {len(frame)}")
        topics.append(ProduceTopic(name, None, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _text(frame: memoryview, position: int, size: int) -> tuple[str, int]:
    end = position + size
    if size < 0 or end > len(frame):
        raise MalformedFrameError(f"a string of {size} bytes at {position} in a frame of {len(frame)}")
    return str(frame[position:end], "utf-8"), end


def encode_response(
    version: int,
    correlation_id: int,
    topics: Iterable[tuple[str | UUID, Sequence[PartitionProduceAnswer]]],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Buffer]:
    """A whole response, with its length.

    Topics come by name until version 12 and by id from 13 on.  `node_endpoints` (from 10) are sent only with
    `current_leader` hints.
    """
    if version >= FIRST_FLEXIBLE:
        topics = topics if isinstance(topics, list) else list(topics)
        is_plain = not throttle_ms and not node_endpoints
        if is_plain and len(topics) == 1 and len(topics[0][1]) == 1 and not topics[0][1][0].error:
            return [_lone_partition(correlation_id, *topics[0])]
        body = _flexible_body(version, topics, throttle_ms, node_endpoints)
        return [_RESPONSE_HEADER.pack(len(body) + 5, correlation_id) + b"\0" + body]
    body = _legacy_body(version, list(topics), throttle_ms)
    return [_RESPONSE_HEADER.pack(len(body) + 4, correlation_id) + body]


def _lone_partition(correlation_id: int, topic: str | UUID, partitions: Sequence[PartitionProduceAnswer]) -> bytes:
    """What most responses are: one partition, no error.  The bytes of `_flexible_body`, in one go."""
    (each,) = partitions
    pack, size, before = _lone_topic(topic)
    return pack(
        size,
        correlation_id,
        before,
        each.topic_partition.partition,
        0,
        each.base_offset,
        each.log_append_time,
        each.log_start_offset,
        _LONE_PARTITION_END,
    )


def _flexible_body(
    version: int,
    topics: list[tuple[str | UUID, Sequence[PartitionProduceAnswer]]],
    throttle_ms: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> bytes:
    parts = [unsigned_varint(len(topics) + 1)]
    pack = _FLEXIBLE_PARTITION.pack
    for topic, partitions in topics:
        parts.append(topic_name(topic) if isinstance(topic, str) else topic.bytes)
        parts.append(unsigned_varint(len(partitions) + 1))
        for each in partitions:
            if not each.error and each.current_leader is None:
                parts.append(
                    pack(
                        each.topic_partition.partition,
                        0,
                        each.base_offset,
                        each.log_append_time,
                        each.log_start_offset,
                        1,
                        0,
                        0,
                    )
                )
            else:
                parts.append(_flexible_error(version, each))
        parts.append(b"\0")
    parts.append(_INT32.pack(throttle_ms) if throttle_ms else _NO_THROTTLE)
    parts.append(node_endpoints_tag(node_endpoints) if version >= FIRST_WITH_LEADER_HINTS else b"\0")
    return b"".join(parts)


def _flexible_error(version: int, each: PartitionProduceAnswer) -> bytes:
    parts = [
        _PARTITION_V5.pack(
            each.topic_partition.partition, each.error, each.base_offset, each.log_append_time, each.log_start_offset
        ),
        unsigned_varint(len(each.record_errors) + 1),
    ]
    for record in each.record_errors:
        parts.append(_INT32.pack(record.batch_index) + compact_string(record.message) + b"\0")
    parts.append(compact_string(each.error_message))
    hint = each.current_leader
    if hint is not None and version >= FIRST_WITH_LEADER_HINTS:
        parts.append(_LEADER_HINT.pack(1, 0, 9, hint.leader_id, hint.leader_epoch, 0))
    else:
        parts.append(b"\0")
    return b"".join(parts)


def node_endpoints_tag(node_endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The tagged fields of a response whose only tag, 0, is NodeEndpoints (Produce from 10, Fetch from 16)."""
    if not node_endpoints:
        return b"\0"
    parts = [unsigned_varint(len(node_endpoints) + 1)]
    for node in node_endpoints:
        parts.append(_INT32.pack(node.node_id) + compact_string(node.host) + _INT32.pack(node.port))
        parts.append(compact_string(node.rack) + b"\0")
    value = b"".join(parts)
    return b"\x01\x00" + unsigned_varint(len(value)) + value


def _legacy_body(
    version: int, topics: list[tuple[str | UUID, Sequence[PartitionProduceAnswer]]], throttle_ms: int
) -> bytes:
    parts = [_INT32.pack(len(topics))]
    for topic, partitions in topics:
        assert isinstance(topic, str), "versions before 13 name their topics"
        parts.append(legacy_string(topic) + _INT32.pack(len(partitions)))
        parts.extend(_legacy_partition(version, each) for each in partitions)
    parts.append(_INT32.pack(throttle_ms))
    return b"".join(parts)


def _legacy_partition(version: int, each: PartitionProduceAnswer) -> bytes:
    head = (each.topic_partition.partition, each.error, each.base_offset, each.log_append_time)
    if version < FIRST_WITH_LOG_START_OFFSET:
        return _PARTITION_V3.pack(*head)
    if version < FIRST_WITH_RECORD_ERRORS:
        return _PARTITION_V5.pack(*head, each.log_start_offset)
    if each.error == 0:
        return _PARTITION_V8.pack(*head, each.log_start_offset, 0, -1)
    parts = [_PARTITION_V5.pack(*head, each.log_start_offset), _INT32.pack(len(each.record_errors))]
    for record in each.record_errors:
        parts.append(_INT32.pack(record.batch_index) + legacy_string(record.message))
    parts.append(legacy_string(each.error_message))
    return b"".join(parts)
