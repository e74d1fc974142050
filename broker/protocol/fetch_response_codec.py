"""Fetch responses by hand: records are passed on as they are, never copied (FetchResponse.json).

kio writes the same bytes; the tests compare the two for every version.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, Protocol
from uuid import UUID

from broker.common.buffers import Buffer
from broker.protocol.produce_codec import LeaderHintLike, NodeEndpoint, node_endpoints_tag, topic_name
from broker.protocol.wire_format import legacy_string, unsigned_varint

FIRST_WITH_LOG_START_OFFSET: Final = 5
FIRST_WITH_SESSION: Final = 7  # KIP-227
FIRST_WITH_RACK: Final = 11  # KIP-392
FIRST_FLEXIBLE: Final = 12
FIRST_WITH_NODE_ENDPOINTS: Final = 16  # KIP-951

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_ANSWER_V4: Final = Struct(">ihqq")  # partition, error, high watermark, last stable offset
_ANSWER_V5: Final = Struct(">ihqqq")  # and the log start offset
_FLEXIBLE_ANSWER: Final = Struct(">ihqqqBi")  # and null aborted transactions, the preferred replica
_ABORTED: Final = Struct(">qq")
_EPOCH_END: Final = Struct(">iqB")
_LEADER: Final = Struct(">iiB")
_RESPONSE_HEADER: Final = Struct(">ii")  # length, correlation id
_FLEXIBLE_HEAD: Final = Struct(">iiBihi")  # length, correlation id, no tags, throttle time, error, session id
_LENGTH_SIZE: Final = 4


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
    buffers: list[Buffer] = []
    size_bytes = _FLEXIBLE_HEAD.size - _LENGTH_SIZE
    small = [unsigned_varint(len(topics) + 1)]  # small pieces are joined, records stay as they are
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
            records_size = len(records)
            small.append(unsigned_varint(records_size + 1))
            if records_size:
                joined = b"".join(small)
                small.clear()
                size_bytes += len(joined) + records_size
                buffers += (joined, records)
            if each.diverging_epoch is None and each.current_leader is None:
                small.append(b"\0")
            else:
                small.append(_answer_tags(each))
        small.append(b"\0")
    small.append(node_endpoints_tag(node_endpoints) if version >= FIRST_WITH_NODE_ENDPOINTS else b"\0")
    joined = b"".join(small)
    head = _FLEXIBLE_HEAD.pack(size_bytes + len(joined), correlation_id, 0, throttle_ms, error_code, session_id)
    if not buffers:
        return [head + joined]
    buffers[0] = head + buffers[0]
    buffers.append(joined)
    return buffers


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
