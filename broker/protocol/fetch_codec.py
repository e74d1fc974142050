"""Fetch by hand: requests of thousands of partitions in one pass, responses whose records are never copied.

kio reads and writes the same bytes; the tests compare the two for every version (FetchRequest.json,
FetchResponse.json).
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from broker.common.buffers import Buffer
from broker.protocol.errors import MalformedFrameError
from broker.protocol.produce_codec import LeaderHintLike, NodeEndpoint, node_endpoints_tag, topic_id_of, topic_name
from broker.protocol.wire_format import legacy_string, read_unsigned_varint, unsigned_varint

FIRST_WITH_LOG_START_OFFSET: Final = 5
FIRST_WITH_SESSION: Final = 7  # KIP-227
FIRST_WITH_LEADER_EPOCH: Final = 9  # KIP-320
FIRST_WITH_RACK: Final = 11  # KIP-392
FIRST_FLEXIBLE: Final = 12
FIRST_WITH_TOPIC_ID: Final = 13  # KIP-516
FIRST_WITH_REPLICA_STATE: Final = 15  # KIP-903
FIRST_WITH_NODE_ENDPOINTS: Final = 16  # KIP-951
FIRST_WITH_HIGH_WATERMARK: Final = 18  # KIP-1166

NO_SESSION_EPOCH: Final = -1  # FetchMetadata.FINAL_EPOCH: a sessionless full fetch
UNKNOWN_HIGH_WATERMARK: Final = (1 << 63) - 1  # the schema's default: the follower did not say

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_REPLICA_STATE: Final = Struct(">iq")
_HEAD: Final = Struct(">iiib")  # max wait, min bytes, max bytes, isolation level
_SESSION: Final = Struct(">ii")
_PARTITION_V4: Final = Struct(">iqi")  # partition, fetch offset, max bytes
_PARTITION_V5: Final = Struct(">iqqi")  # partition, fetch offset, log start offset, max bytes
_PARTITION_V9: Final = Struct(">iiqqi")  # partition, leader epoch, fetch offset, log start offset, max bytes
_PARTITION_V12: Final = Struct(">iiqiqi")  # partition, leader epoch, fetch offset, last epoch, start offset, max bytes
_PARTITION_V12_NO_TAGS: Final = Struct(">iiqiqix")
_STRIDE: Final = _PARTITION_V12_NO_TAGS.size
_STRIDE_WORTHWHILE: Final = 4  # below this many partitions a plain loop is as fast

_ANSWER_V4: Final = Struct(">ihqq")  # partition, error, high watermark, last stable offset
_ANSWER_V5: Final = Struct(">ihqqq")  # and the log start offset
_FLEXIBLE_ANSWER: Final = Struct(">ihqqqBi")  # and null aborted transactions, the preferred replica
_ABORTED: Final = Struct(">qq")
_EPOCH_END: Final = Struct(">iqB")
_LEADER: Final = Struct(">iiB")
_RESPONSE_HEADER: Final = Struct(">ii")  # length, correlation id


class FetchPartition(NamedTuple):
    """One partition as asked for; what a version lacks has the schema's default."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int
    high_watermark: int = UNKNOWN_HIGH_WATERMARK


class FetchTopic(NamedTuple):
    """One topic as asked for, named until version 12 and told by its id from 13 on."""

    name: str | None
    topic_id: UUID | None
    partitions: list[FetchPartition]


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


class AbortedTransactionLike(Protocol):
    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...


class EpochEndOffsetLike(Protocol):
    @property
    def epoch(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


class FetchPartitionAnswer(Protocol):
    """What the encoder reads of one partition's result."""

    @property
    def partition(self) -> int: ...
    @property
    def error(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def aborted_transactions(self) -> Sequence[AbortedTransactionLike] | None: ...
    @property
    def records(self) -> Buffer: ...
    @property
    def diverging_epoch(self) -> EpochEndOffsetLike | None: ...
    @property
    def preferred_read_replica(self) -> int: ...
    @property
    def current_leader(self) -> LeaderHintLike | None: ...


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
    max_wait_ms, min_bytes, max_bytes, isolation_level = _HEAD.unpack_from(frame, position)
    session_id, session_epoch = _SESSION.unpack_from(frame, position + _HEAD.size)
    count, position = read_unsigned_varint(frame, position + _HEAD.size + _SESSION.size)
    topics = []
    for _ in range(count - 1):
        name, topic_id, position = _topic(frame, position, version)
        partitions, position = _flexible_partitions(frame, position, version)
        position = _skip_tags(frame, position)
        topics.append(FetchTopic(name, topic_id, partitions))
    count, position = read_unsigned_varint(frame, position)
    forgotten = []
    for _ in range(count - 1):
        name, topic_id, position = _topic(frame, position, version)
        size, position = read_unsigned_varint(frame, position)
        numbers, position = _int32_array(frame, position, size - 1)
        position = _skip_tags(frame, position)
        forgotten.append(ForgottenTopic(name, topic_id, numbers))
    size, position = read_unsigned_varint(frame, position)
    rack_id, position = _text(frame, position, size - 1)
    cluster_id = None
    tags, _ = _tagged_fields(frame, position)
    for tag, start, end in tags:
        if tag == 0:
            size, start = read_unsigned_varint(frame, start)
            cluster_id = _text(frame, start, size - 1)[0] if size else None
        elif tag == 1 and version >= FIRST_WITH_REPLICA_STATE:
            if end - start < _REPLICA_STATE.size:
                raise MalformedFrameError(f"a replica state of {end - start} bytes")
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(frame, start)
    return FetchRequest(
        cluster_id,
        replica_id,
        replica_epoch,
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


def _flexible_partitions(frame: memoryview, position: int, version: int) -> tuple[list[FetchPartition], int]:
    count, position = read_unsigned_varint(frame, position)
    count -= 1
    end = position + _STRIDE * count
    if count >= _STRIDE_WORTHWHILE and end <= len(frame) and not any(frame[position + _STRIDE - 1 : end : _STRIDE]):
        # No tagged fields in any partition, as consumers send it: all have the same size.
        return [FetchPartition(*each) for each in _PARTITION_V12_NO_TAGS.iter_unpack(frame[position:end])], end
    partitions = []
    for _ in range(count):
        partition = FetchPartition(*_PARTITION_V12.unpack_from(frame, position))
        position += _PARTITION_V12.size
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


def _skip_tags(frame: memoryview, position: int) -> int:
    return position + 1 if frame[position] == 0 else _tagged_fields(frame, position)[1]


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


def encode_response(
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    topics: Iterable[tuple[str | UUID, Sequence[FetchPartitionAnswer]]],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Buffer]:
    """A whole response, with its length, as buffers to send one after the other; records are passed on as they are.

    Topics come by name until version 12 and by id from 13 on.  A top-level error exists from version 7 on.
    """
    if version >= FIRST_FLEXIBLE:
        return _flexible_response(
            version, correlation_id, error_code, session_id, list(topics), throttle_ms, node_endpoints
        )
    return _legacy_response(version, correlation_id, error_code, session_id, list(topics), throttle_ms)


def _flexible_response(
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    topics: list[tuple[str | UUID, Sequence[FetchPartitionAnswer]]],
    throttle_ms: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> list[Buffer]:
    out = _Output(b"\0" + _INT32.pack(throttle_ms) + _INT16.pack(error_code) + _INT32.pack(session_id))
    small = out.small
    small.append(unsigned_varint(len(topics) + 1))
    pack = _FLEXIBLE_ANSWER.pack
    for topic, partitions in topics:
        small.append(topic_name(topic) if isinstance(topic, str) else topic.bytes)
        small.append(unsigned_varint(len(partitions) + 1))
        for each in partitions:
            if each.aborted_transactions is None:
                small.append(
                    pack(
                        each.partition,
                        each.error,
                        each.high_watermark,
                        each.last_stable_offset,
                        each.log_start_offset,
                        0,
                        each.preferred_read_replica,
                    )
                )
            else:
                small.append(_flexible_answer_with_aborted(each))
            records = each.records
            small.append(unsigned_varint(len(records) + 1))
            if records:
                out.add(records)
            if each.diverging_epoch is None and each.current_leader is None:
                small.append(b"\0")
            else:
                small.append(_answer_tags(each))
        small.append(b"\0")
    small.append(node_endpoints_tag(node_endpoints) if version >= FIRST_WITH_NODE_ENDPOINTS else b"\0")
    return out.response(correlation_id)


def _flexible_answer_with_aborted(each: FetchPartitionAnswer) -> bytes:
    aborted = each.aborted_transactions
    assert aborted is not None
    parts = [
        _ANSWER_V5.pack(
            each.partition, each.error, each.high_watermark, each.last_stable_offset, each.log_start_offset
        ),
        unsigned_varint(len(aborted) + 1),
    ]
    parts.extend(_ABORTED.pack(one.producer_id, one.first_offset) + b"\0" for one in aborted)
    parts.append(_INT32.pack(each.preferred_read_replica))
    return b"".join(parts)


def _answer_tags(each: FetchPartitionAnswer) -> bytes:
    """Where the follower diverged (tag 0, KIP-595) and who leads (tag 1, KIP-951)."""
    fields = []
    if each.diverging_epoch is not None:
        end = each.diverging_epoch
        fields.append(b"\x00\x0d" + _EPOCH_END.pack(end.epoch, end.end_offset, 0))
    if each.current_leader is not None:
        leader = each.current_leader
        fields.append(b"\x01\x09" + _LEADER.pack(leader.leader_id, leader.leader_epoch, 0))
    return unsigned_varint(len(fields)) + b"".join(fields)


def _legacy_response(
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    topics: list[tuple[str | UUID, Sequence[FetchPartitionAnswer]]],
    throttle_ms: int,
) -> list[Buffer]:
    out = _Output(_INT32.pack(throttle_ms))
    small = out.small
    if version >= FIRST_WITH_SESSION:
        small.append(_INT16.pack(error_code) + _INT32.pack(session_id))
    small.append(_INT32.pack(len(topics)))
    for topic, partitions in topics:
        assert isinstance(topic, str), "versions before 13 name their topics"
        small.append(legacy_string(topic) + _INT32.pack(len(partitions)))
        for each in partitions:
            small.append(_legacy_answer(version, each))
            records = each.records
            small.append(_INT32.pack(len(records)))
            if records:
                out.add(records)
    return out.response(correlation_id)


def _legacy_answer(version: int, each: FetchPartitionAnswer) -> bytes:
    head = (each.partition, each.error, each.high_watermark, each.last_stable_offset)
    if version >= FIRST_WITH_LOG_START_OFFSET:
        parts = [_ANSWER_V5.pack(*head, each.log_start_offset)]
    else:
        parts = [_ANSWER_V4.pack(*head)]
    aborted = each.aborted_transactions
    parts.append(_INT32.pack(-1 if aborted is None else len(aborted)))
    parts.extend(_ABORTED.pack(one.producer_id, one.first_offset) for one in aborted or ())
    if version >= FIRST_WITH_RACK:
        parts.append(_INT32.pack(each.preferred_read_replica))
    return b"".join(parts)


class _Output:
    """Small pieces are joined, big ones kept as they are, and the length in front is known at the end."""

    __slots__ = ("_buffers", "_size_bytes", "small")

    def __init__(self, head: bytes) -> None:
        self.small: list[bytes] = [b"", head]  # the first place is the header's, until it is known
        self._buffers: list[Buffer] = []
        self._size_bytes = 0

    def add(self, records: Buffer) -> None:
        joined = b"".join(self.small)
        self.small.clear()
        self._buffers += (joined, records)
        self._size_bytes += len(joined) + len(records)

    def response(self, correlation_id: int) -> list[Buffer]:
        joined = b"".join(self.small)
        size_bytes = self._size_bytes + len(joined) + 4
        header = _RESPONSE_HEADER.pack(size_bytes, correlation_id)
        if not self._buffers:
            return [header + joined]
        first = self._buffers[0]
        assert isinstance(first, bytes)
        self._buffers[0] = header + first
        self._buffers.append(joined)
        return self._buffers
