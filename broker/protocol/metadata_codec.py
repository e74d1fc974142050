"""Metadata responses by hand: kio needs 62 ms to write 10,000 partitions, this a fraction (MetadataResponse.json).

It reads any objects with the fields of kio's classes for the version, and writes kio's bytes; the tests compare the
two for every version.
"""

import functools
from collections.abc import Iterable, Sequence
from struct import Struct, pack
from typing import Any, Final

from broker.common.buffers import Buffer
from broker.protocol.durations import to_milliseconds
from broker.protocol.wire_format import compact_string, legacy_string, unsigned_varint

FIRST_WITH_CONTROLLER: Final = 1  # racks and internal topics, too
FIRST_WITH_CLUSTER_ID: Final = 2
FIRST_WITH_THROTTLE: Final = 3
FIRST_WITH_OFFLINE_REPLICAS: Final = 5
FIRST_WITH_LEADER_EPOCH: Final = 7
FIRST_WITH_OPERATIONS: Final = 8
FIRST_FLEXIBLE: Final = 9
FIRST_WITH_TOPIC_ID: Final = 10
LAST_WITH_CLUSTER_OPERATIONS: Final = 10
FIRST_WITH_TOP_LEVEL_ERROR: Final = 13
NODE_LISTS_CACHED: Final = 4096  # replica sets repeat; a cluster has far fewer of them than partitions

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_PARTITION_V0: Final = Struct(">hii")  # error, index, leader
_PARTITION_V7: Final = Struct(">hiii")  # and the leader epoch
_RESPONSE_HEADER: Final = Struct(">ii")  # length, correlation id
_ZERO_UUID: Final = bytes(16)


def encode_response(version: int, correlation_id: int, response: Any) -> list[Buffer]:
    """A whole response, with its length, from an object with the fields of kio's MetadataResponse."""
    is_flexible = version >= FIRST_FLEXIBLE
    string = compact_string if is_flexible else legacy_string
    parts: list[bytes] = [b"", b"\0" if is_flexible else b""]
    if version >= FIRST_WITH_THROTTLE:
        parts.append(_INT32.pack(to_milliseconds(response.throttle_time)))
    parts.append(_array_size(len(response.brokers), is_flexible))
    for node in response.brokers:
        parts.append(_INT32.pack(node.node_id) + string(node.host) + _INT32.pack(node.port))
        if version >= FIRST_WITH_CONTROLLER:
            parts.append(string(node.rack))
        if is_flexible:
            parts.append(b"\0")
    if version >= FIRST_WITH_CLUSTER_ID:
        parts.append(string(response.cluster_id))
    if version >= FIRST_WITH_CONTROLLER:
        parts.append(_INT32.pack(response.controller_id))
    parts.append(_array_size(len(response.topics), is_flexible))
    for topic in response.topics:
        parts.extend(encode_topic(version, topic))
    if FIRST_WITH_OPERATIONS <= version <= LAST_WITH_CLUSTER_OPERATIONS:
        parts.append(_INT32.pack(response.cluster_authorized_operations))
    if version >= FIRST_WITH_TOP_LEVEL_ERROR:
        parts.append(_INT16.pack(response.error_code))
    if is_flexible:
        parts.append(b"\0")
    size_bytes = sum(map(len, parts)) + 4
    parts[0] = _RESPONSE_HEADER.pack(size_bytes, correlation_id)
    return [b"".join(parts)]


def encode_topic(version: int, topic: Any) -> Iterable[bytes]:
    """One topic of a response, in pieces: what a cache by topic would keep."""
    is_flexible = version >= FIRST_FLEXIBLE
    yield _INT16.pack(topic.error_code) + (compact_string if is_flexible else legacy_string)(topic.name)
    if version >= FIRST_WITH_TOPIC_ID:
        yield _ZERO_UUID if topic.topic_id is None else topic.topic_id.bytes
    if version >= FIRST_WITH_CONTROLLER:
        yield b"\1" if topic.is_internal else b"\0"
    yield _array_size(len(topic.partitions), is_flexible)
    yield from (_flexible_partitions if is_flexible else _legacy_partitions)(version, topic.partitions)
    if version >= FIRST_WITH_OPERATIONS:
        yield _INT32.pack(topic.topic_authorized_operations)
    if is_flexible:
        yield b"\0"


def _flexible_partitions(version: int, partitions: Sequence[Any]) -> Iterable[bytes]:
    for each in partitions:
        yield _PARTITION_V7.pack(each.error_code, each.partition_index, each.leader_id, each.leader_epoch)
        yield _compact_nodes(each.replica_nodes)
        yield _compact_nodes(each.isr_nodes)
        yield _compact_nodes(each.offline_replicas)
        yield b"\0"


def _legacy_partitions(version: int, partitions: Sequence[Any]) -> Iterable[bytes]:
    for each in partitions:
        if version >= FIRST_WITH_LEADER_EPOCH:
            yield _PARTITION_V7.pack(each.error_code, each.partition_index, each.leader_id, each.leader_epoch)
        else:
            yield _PARTITION_V0.pack(each.error_code, each.partition_index, each.leader_id)
        yield _legacy_nodes(each.replica_nodes)
        yield _legacy_nodes(each.isr_nodes)
        if version >= FIRST_WITH_OFFLINE_REPLICAS:
            yield _legacy_nodes(each.offline_replicas)


def _array_size(count: int, is_flexible: bool) -> bytes:
    return unsigned_varint(count + 1) if is_flexible else _INT32.pack(count)


@functools.lru_cache(maxsize=NODE_LISTS_CACHED)
def _compact_nodes(nodes: tuple[int, ...]) -> bytes:
    return unsigned_varint(len(nodes) + 1) + pack(f">{len(nodes)}i", *nodes)


@functools.lru_cache(maxsize=NODE_LISTS_CACHED)
def _legacy_nodes(nodes: tuple[int, ...]) -> bytes:
    return pack(f">i{len(nodes)}i", len(nodes), *nodes)
