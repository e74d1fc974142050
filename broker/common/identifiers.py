"""The names of things: partitions, brokers, epochs, producers, and Kafka's text form of a uuid."""

import base64
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

BrokerId: TypeAlias = int
LeaderEpoch: TypeAlias = int
Offset: TypeAlias = int

NO_BROKER: Final = -1
NO_EPOCH: Final = -1  # "not known" or "do not check", in every epoch field of the protocol
NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1

ZERO_UUID: Final = UUID(int=0)
METADATA_TOPIC_ID: Final = UUID(int=1)  # Uuid.METADATA_TOPIC_ID: the id of __cluster_metadata
RESERVED_UUID_COUNT: Final = 100  # Kafka keeps the first hundred ids for itself (Uuid.RESERVED)

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, "__share_group_state"})
REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"  # of KIP-405
REMOTE_WAL_LOG_METADATA_TOPIC: Final = "__remote_wal_log_metadata"  # of KIP-1176
# What replication through a bucket stands on cannot go through a bucket itself.
NEVER_REMOTE_WAL_TOPICS: Final = INTERNAL_TOPICS | {
    CLUSTER_METADATA_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
    REMOTE_WAL_LOG_METADATA_TOPIC,
}
NEVER_TIERED_TOPICS: Final = NEVER_REMOTE_WAL_TOPICS  # what tells of a bucket is not in a bucket, internal or not


class TopicPartition(NamedTuple):
    """One partition by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """One partition of one incarnation of a topic: a re-created topic has another id."""

    topic_id: UUID
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def uuid_to_text(value: UUID) -> str:
    """Kafka's form of a uuid: 22 characters of url-safe base64 without padding (org.apache.kafka.common.Uuid)."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> UUID:
    """The inverse of `uuid_to_text`; ValueError for anything that is not 16 bytes of base64."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a base64 uuid: {error}") from error
    if len(raw) != 16:
        raise ValueError(f"{text!r} decodes to {len(raw)} bytes, a uuid has 16")
    return UUID(bytes=raw)


def java_string_hash(text: str) -> int:
    """Java's String.hashCode as a signed 32-bit number, over UTF-16 code units."""
    value = 0
    units = text.encode("utf-16-be")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for_key(key: str, partition_count: int) -> int:
    """The partition of an internal topic that owns a group or a transactional id.

    Kafka's Utils.abs maps the smallest integer to 0 and negates the rest; it is not `hash & 0x7fffffff`.
    """
    value = java_string_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partition_count
