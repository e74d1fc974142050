"""The records of `__transaction_state` (Kafka: TransactionLogKey.json, TransactionLogValue.json).

Values are written in version 0, and in version 1 from transaction.version 1 on (KIP-890).  A null value says that the
transactional id has expired.
"""

from typing import ClassVar, Final, TypeAlias

from broker.common.identifiers import NO_PRODUCER_ID, NO_TIMESTAMP
from broker.schemas.keyed_record import decode_versioned, encode_versioned, read_version
from broker.schemas.message_codec import message, stored

TRANSACTION_LOG_KEY_VERSION: Final = 0
TRANSACTION_LOG_VALUE_VERSION: Final = 0
TRANSACTION_LOG_VALUE_VERSION_FLEXIBLE: Final = 1


@message
class TransactionLogKey:
    """Whose transaction."""

    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    transactional_id: str = stored("string")


@message
class TransactionPartitions:
    """Partitions of a topic that take part in a transaction."""

    topic: str = stored("string")
    partition_ids: tuple[int, ...] = stored("int32")


@message
class TransactionLogValue:
    """The state of a transactional id; the partitions of an empty transaction are null."""

    VERSIONS: ClassVar[range] = range(2)
    FLEXIBLE_SINCE: ClassVar[int | None] = 1

    producer_id: int = stored("int64")
    previous_producer_id: int = stored("int64", since=1, tag=0, ignorable=True, default=NO_PRODUCER_ID)
    next_producer_id: int = stored("int64", since=1, tag=1, ignorable=True, default=NO_PRODUCER_ID)
    producer_epoch: int = stored("int16")
    transaction_timeout_ms: int = stored("int32")
    transaction_status: int = stored("int8")
    transaction_partitions: tuple[TransactionPartitions, ...] | None = stored(default=None)
    transaction_last_update_timestamp_ms: int = stored("int64")
    transaction_start_timestamp_ms: int = stored("int64", default=NO_TIMESTAMP)
    client_transaction_version: int = stored("int16", since=1, tag=2, ignorable=True, default=0)


TransactionRecord: TypeAlias = tuple[TransactionLogKey, TransactionLogValue | None]


def encode_transaction(
    key: TransactionLogKey, value: TransactionLogValue | None, version: int = TRANSACTION_LOG_VALUE_VERSION
) -> tuple[bytes, bytes | None]:
    """Key and value of the record."""
    encoded_key = encode_versioned(key, TRANSACTION_LOG_KEY_VERSION)
    return encoded_key, None if value is None else encode_versioned(value, version)


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """The record, or None for kinds of records (key versions) that this broker does not know: skip them.

    UnknownVersionError for a value of a newer version, MalformedRecordError for bytes that make no sense.
    """
    if read_version(key) not in TransactionLogKey.VERSIONS:
        return None
    state = None if value is None else decode_versioned(TransactionLogValue, value)
    return decode_versioned(TransactionLogKey, key), state
