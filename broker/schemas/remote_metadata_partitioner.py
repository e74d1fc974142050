"""Which partition of a remote metadata topic an event belongs to (Kafka: RemoteLogMetadataTopicPartitioner)."""

from typing import Final
from uuid import UUID

from broker.common.murmur2 import positive_murmur2

_INT32_MASK: Final = (1 << 32) - 1
_INT64_MASK: Final = (1 << 64) - 1


def metadata_partition_of(topic_id: UUID, partition: int, partition_count: int) -> int:
    """Where the events of a user partition are: the same place for tiering (KIP-405) and for the WAL."""
    number = topic_id.int
    value = 1
    for part in (_hash64(number & _INT64_MASK), _hash64(number >> 64), partition):  # Kafka puts the low half first
        value = (31 * value + part) & _INT32_MASK
    return positive_murmur2(value.to_bytes(4, "big")) % partition_count


def combined_event_partition_of(broker_id: int, partition_count: int) -> int:
    """Where a broker announces its combined objects."""
    return positive_murmur2(broker_id.to_bytes(4, "big")) % partition_count


def _hash64(value: int) -> int:
    """Java's Long.hashCode, unsigned."""
    return (value ^ value >> 32) & _INT32_MASK
