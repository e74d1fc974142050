"""The records of `__consumer_offsets` for offsets and classic groups (Kafka: OffsetCommitKey.json and neighbours).

What Kafka 4 writes: offset keys of version 1 with values of version 3, or 1 when the commit has an expiry of its own;
group keys of version 2 with values of version 3.  All value versions are read.  A null value is a tombstone.
"""

import dataclasses
from typing import ClassVar, Final, TypeAlias

from broker.common.identifiers import NO_EPOCH, NO_TIMESTAMP
from broker.schemas.keyed_record import decode_versioned, encode_versioned, read_version
from broker.schemas.message_codec import message, stored

OFFSET_COMMIT_KEY_VERSION: Final = 1
OFFSET_COMMIT_VALUE_VERSION: Final = 3
OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY: Final = 1
GROUP_METADATA_KEY_VERSION: Final = 2
GROUP_METADATA_VALUE_VERSION: Final = 3

_NO_REBALANCE_TIMEOUT: Final = -1  # version 0 has none, and the session timeout stands in


@message
class OffsetCommitKey:
    """Whose offset, of which partition."""

    VERSIONS: ClassVar[range] = range(2)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group: str = stored("string")
    topic: str = stored("string")
    partition: int = stored("int32")


@message
class OffsetCommitValue:
    """A committed offset."""

    VERSIONS: ClassVar[range] = range(5)
    FLEXIBLE_SINCE: ClassVar[int | None] = 4

    offset: int = stored("int64")
    leader_epoch: int = stored("int32", since=3, ignorable=True, default=NO_EPOCH)
    metadata: str = stored("string", default="")
    commit_timestamp: int = stored("int64")
    expire_timestamp: int = stored("int64", since=1, until=1, ignorable=True, default=NO_TIMESTAMP)


@message
class GroupMetadataKey:
    """Which group."""

    VERSIONS: ClassVar[range] = range(2, 3)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group: str = stored("string")


@message
class GroupMemberMetadata:
    """One member of a classic group's generation."""

    member_id: str = stored("string")
    group_instance_id: str | None = stored("string", since=3, ignorable=True, default=None)
    client_id: str = stored("string")
    client_host: str = stored("string")
    rebalance_timeout: int = stored("int32", since=1, ignorable=True, default=_NO_REBALANCE_TIMEOUT)
    session_timeout: int = stored("int32")
    subscription: bytes = stored("bytes")
    assignment: bytes = stored("bytes")


@message
class GroupMetadataValue:
    """A classic group's generation; without members the group is empty, without a type it only keeps offsets."""

    VERSIONS: ClassVar[range] = range(5)
    FLEXIBLE_SINCE: ClassVar[int | None] = 4

    protocol_type: str = stored("string")
    generation: int = stored("int32")
    protocol: str | None = stored("string", default=None)
    leader: str | None = stored("string", default=None)
    current_state_timestamp: int = stored("int64", since=2, ignorable=True, default=NO_TIMESTAMP)
    members: tuple[GroupMemberMetadata, ...] = stored(default=())


GroupRecord: TypeAlias = (
    tuple[OffsetCommitKey, OffsetCommitValue | None] | tuple[GroupMetadataKey, GroupMetadataValue | None]
)


def encode_offset_commit(key: OffsetCommitKey, value: OffsetCommitValue | None) -> tuple[bytes, bytes | None]:
    """Key and value of the record; the leader epoch of a commit with its own expiry is not kept, as in Kafka."""
    encoded_key = encode_versioned(key, OFFSET_COMMIT_KEY_VERSION)
    if value is None:
        return encoded_key, None
    has_expiry = value.expire_timestamp != NO_TIMESTAMP
    version = OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY if has_expiry else OFFSET_COMMIT_VALUE_VERSION
    return encoded_key, encode_versioned(value, version)


def encode_group_metadata(key: GroupMetadataKey, value: GroupMetadataValue | None) -> tuple[bytes, bytes | None]:
    """Key and value of the record."""
    encoded_key = encode_versioned(key, GROUP_METADATA_KEY_VERSION)
    return encoded_key, None if value is None else encode_versioned(value, GROUP_METADATA_VALUE_VERSION)


def decode(key: bytes, value: bytes | None) -> GroupRecord | None:
    """The record, or None for kinds of records (key versions) that this broker does not know: skip them.

    UnknownVersionError for a value of a newer version, MalformedRecordError for bytes that make no sense.
    """
    key_version = read_version(key)
    if key_version in OffsetCommitKey.VERSIONS:
        commit = None if value is None else decode_versioned(OffsetCommitValue, value)
        return decode_versioned(OffsetCommitKey, key), commit
    if key_version in GroupMetadataKey.VERSIONS:
        group = None if value is None else _complete(decode_versioned(GroupMetadataValue, value))
        return decode_versioned(GroupMetadataKey, key), group
    return None


def _complete(value: GroupMetadataValue) -> GroupMetadataValue:
    """Gives members from before version 1 the rebalance timeout Kafka gives them."""
    if all(member.rebalance_timeout != _NO_REBALANCE_TIMEOUT for member in value.members):
        return value
    members = tuple(
        dataclasses.replace(member, rebalance_timeout=member.session_timeout)
        if member.rebalance_timeout == _NO_REBALANCE_TIMEOUT
        else member
        for member in value.members
    )
    return dataclasses.replace(value, members=members)
