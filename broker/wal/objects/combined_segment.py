"""The combined object: slices of many partitions back to back, then a table of them and a footer.

Layout: slices | table (the combined event as a metadata record) | its length int32 | its CRC-32C uint32 | "KWAL" |
version int8.  Readers of slices never touch the table: what the metadata topic says is what counts.  It is there for
those who find an object without metadata.
"""

import dataclasses
import struct
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from crc32c import crc32c

from broker.common.buffers import Buffer
from broker.common.errors import CorruptMessageError, UnsupportedVersionError
from broker.common.identifiers import NO_TIMESTAMP, TopicIdPartition
from broker.schemas.remote_wal_metadata import (
    RemoteLogSegmentIdEntry,
    RemoteWalCombinedLogSegmentMetadataRecord,
    RemoteWalSliceEntry,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
    decode,
    encode,
)
from broker.wal.objects.wal_slice import WalSlice

_FOOTER: Final = struct.Struct(">iI4sb")
FOOTER_SIZE: Final = _FOOTER.size
_MAGIC: Final = b"KWAL"
_VERSION: Final = 1
_INT32: Final = struct.Struct(">i")
_AFTER_SIZE: Final = 8 + 1 + 1 + 1 + 1  # the timestamp; no slices, no custom metadata; state, and no tags
_APPEND_TIME: Final = struct.Struct(">q")

# Upper bounds of what a table takes, so that an object can be filled up to its limit before the table exists.
TABLE_SIZE_MAX: Final = 80 + 1024 + 256 + FOOTER_SIZE  # fixed fields, object key, bucket
# However large the object: its table is its event, made without letting others run, and the metadata topic must take it
# as one message.
EVENT_SIZE_MAX: Final = 512 * 1024
_TABLE_ROW_SIZE: Final = 96  # without name and epochs
_TABLE_EPOCH_SIZE: Final = 13

FollowersOf = Callable[[TopicIdPartition], Collection[int]]


class CorruptObjectError(CorruptMessageError):
    """The object has no valid table at its end."""


@dataclass(frozen=True, slots=True)
class ObjectIdentity:
    """Who makes an object, when, and where it goes.  `bucket` is a URL.

    `oldest_append_ms`: when, by the leader's wall clock, the oldest of what is in it was appended; -1: not told.
    """

    combined_segment_id: UUID
    broker_id: int
    broker_epoch: int
    event_timestamp_ms: int
    bucket: str
    object_key: str
    oldest_append_ms: int = NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class CombinedSegment:
    """An object ready for its PUT: `buffers` one after the other are its bytes.

    `event` is the metadata as the value of its record, to be sent as it is unless a slice lost its ground meanwhile.
    """

    metadata: RemoteWalCombinedLogSegmentMetadataRecord
    event: bytes
    buffers: tuple[Buffer, ...]

    @property
    def size(self) -> int:
        return self.metadata.object_size_in_bytes


def build_combined_segment(
    identity: ObjectIdentity, slices: Iterable[WalSlice], followers_of: FollowersOf
) -> CombinedSegment:
    """One object of all slices, of which there is one at least.

    Partitions with the same followers are neighbours: what a follower wants is then one range, or nearly so.
    """
    ordered = sorted(slices, key=lambda each: _place(each, followers_of))
    assert ordered, "an object without a slice"
    rows: list[RemoteWalSliceEntry] = []
    position = 0
    for each in ordered:
        rows.append(_row(each, position))
        position += each.size
    metadata = RemoteWalCombinedLogSegmentMetadataRecord(
        combined_segment_id=identity.combined_segment_id,
        broker_id=identity.broker_id,
        broker_epoch=identity.broker_epoch,
        event_timestamp_ms=identity.event_timestamp_ms,
        bucket=identity.bucket,
        object_key=identity.object_key,
        object_size_in_bytes=0,
        max_timestamp_ms=max(each.max_timestamp for each in ordered),
        slices=tuple(rows),
        custom_metadata=_append_time(identity.oldest_append_ms),
    )
    table = bytearray(encode(metadata))
    object_size = position + len(table) + FOOTER_SIZE
    metadata = dataclasses.replace(metadata, object_size_in_bytes=object_size)
    _INT32.pack_into(table, _size_position(metadata), object_size)  # rather than encode hundreds of slices again
    footer = _FOOTER.pack(len(table), crc32c(table), _MAGIC, _VERSION)
    event = bytes(table)
    return CombinedSegment(metadata, event, (*(each.records for each in ordered), event + footer))


def _size_position(metadata: RemoteWalCombinedLogSegmentMetadataRecord) -> int:
    """Where the size of the object stands in the encoded event."""
    without_slices = encode(dataclasses.replace(metadata, slices=(), custom_metadata=None))
    return len(without_slices) - _INT32.size - _AFTER_SIZE


def append_time_of(custom_metadata: bytes | None) -> int | None:
    """When the oldest of an object, or of the object of a slice, was appended, in milliseconds since 1970.

    So much is in the CustomMetadata of an event: 8 bytes, big-endian.  None when it does not tell.
    """
    if custom_metadata is None or len(custom_metadata) != _APPEND_TIME.size:
        return None
    append_ms: int = _APPEND_TIME.unpack(custom_metadata)[0]
    return append_ms


def _append_time(oldest_append_ms: int) -> bytes | None:
    return None if oldest_append_ms == NO_TIMESTAMP else _APPEND_TIME.pack(oldest_append_ms)


def table_row_size_max(topic: str, epoch_count: int = 1) -> int:
    """At most so many bytes of the table are about one slice of that topic."""
    return _TABLE_ROW_SIZE + len(topic.encode()) + _TABLE_EPOCH_SIZE * epoch_count


def with_slices(
    metadata: RemoteWalCombinedLogSegmentMetadataRecord, slice_ids: Collection[UUID]
) -> RemoteWalCombinedLogSegmentMetadataRecord:
    """The combined event for those slices alone: others in the object lost their ground before it was announced."""
    kept = tuple(row for row in metadata.slices if row.remote_log_segment_id.id in slice_ids)
    return metadata if len(kept) == len(metadata.slices) else dataclasses.replace(metadata, slices=kept)


def table_range(footer: Buffer, object_size: int) -> tuple[int, int]:
    """(position, size) of the table in an object whose last FOOTER_SIZE bytes are `footer`.  CorruptObjectError."""
    if len(footer) != FOOTER_SIZE:
        raise CorruptObjectError(f"{len(footer)} bytes are no footer")
    size, _, magic, version = _FOOTER.unpack(footer)
    position = object_size - FOOTER_SIZE - size
    if magic != _MAGIC or version != _VERSION or size <= 0 or position <= 0:
        raise CorruptObjectError(f"The last bytes are no footer of a combined object of version {_VERSION}")
    return position, size


def read_table(table: Buffer, footer: Buffer, object_size: int) -> RemoteWalCombinedLogSegmentMetadataRecord:
    """What an object says of itself.  CorruptObjectError when it is damaged or its slices are not back to back."""
    position, size = table_range(footer, object_size)
    if len(table) != size or crc32c(table) != _FOOTER.unpack(footer)[1]:
        raise CorruptObjectError("The table's CRC is wrong")
    try:
        metadata = decode(table)
    except (CorruptMessageError, UnsupportedVersionError) as error:
        raise CorruptObjectError(f"The table cannot be read: {error}") from error
    if not isinstance(metadata, RemoteWalCombinedLogSegmentMetadataRecord):
        raise CorruptObjectError(f"The table is a {type(metadata).__name__}")
    end = 0
    for row in metadata.slices:
        if row.position_in_object != end:
            raise CorruptObjectError(f"A slice begins at {row.position_in_object}, the one before ends at {end}")
        end += row.size_in_bytes
    if end != position or metadata.object_size_in_bytes != object_size:
        raise CorruptObjectError(f"Slices end at {end} and the table begins at {position}, of {object_size} bytes")
    return metadata


def read_object(data: Buffer) -> RemoteWalCombinedLogSegmentMetadataRecord:
    """The table of a whole object.  CorruptObjectError."""
    view = memoryview(data)
    footer = view[-FOOTER_SIZE:]
    position, size = table_range(footer, len(data))
    return read_table(view[position : position + size], footer, len(data))


def _place(each: WalSlice, followers_of: FollowersOf) -> tuple[tuple[int, ...], bytes, int, int]:
    partition = each.partition
    followers = tuple(sorted(followers_of(partition)))
    return followers, partition.topic_id.bytes, partition.partition, each.start_offset


def _row(each: WalSlice, position: int) -> RemoteWalSliceEntry:
    return RemoteWalSliceEntry(
        remote_log_segment_id=RemoteLogSegmentIdEntry(
            topic_id_partition=TopicIdPartitionEntry.of(each.partition), id=each.slice_id
        ),
        leader_epoch=each.token.leader_epoch,
        start_offset=each.start_offset,
        end_offset=each.end_offset,
        position_in_object=position,
        size_in_bytes=each.size,
        slice_crc32c=each.crc32c,
        max_timestamp_ms=each.max_timestamp,
        segment_leader_epochs=tuple(
            SegmentLeaderEpochEntry(leader_epoch=epoch, offset=offset) for epoch, offset in each.leader_epochs
        ),
    )
