"""The records of `__remote_wal_log_metadata` (KIP-1176), framed as those of KIP-405's metadata topic.

An event with api key 4 describes a whole object and all slices in it; one with key 5 says the same of one slice, to
readers of that slice's partition alone.  The KIP's schemas were never published: these are our own, but for what they
share with KIP-405.  A slice is announced when its object is there, so it begins with COPY_SEGMENT_FINISHED.
"""

from typing import ClassVar, Final, TypeAlias, get_args
from uuid import UUID

from broker.common.buffers import Buffer
from broker.schemas.framing import decode_record, encode_record
from broker.schemas.message_codec import message, stored
from broker.schemas.remote_log_metadata import RemoteLogSegmentIdEntry as RemoteLogSegmentIdEntry
from broker.schemas.remote_log_metadata import RemoteLogSegmentState as RemoteLogSegmentState
from broker.schemas.remote_log_metadata import SegmentLeaderEpochEntry as SegmentLeaderEpochEntry
from broker.schemas.remote_log_metadata import TopicIdPartitionEntry as TopicIdPartitionEntry


class RemoteWalMessage:
    """What the records share; all are flexible from their first version on."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0


@message
class RemoteWalSliceEntry:
    """One slice in a combined object; offsets are inclusive, `slice_crc32c` is unsigned, `leader_epoch` is that in
    which the publisher led the partition."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = stored()
    leader_epoch: int = stored("int32")
    start_offset: int = stored("int64")
    end_offset: int = stored("int64")
    position_in_object: int = stored("int32")
    size_in_bytes: int = stored("int32")
    slice_crc32c: int = stored("int64")
    max_timestamp_ms: int = stored("int64")
    segment_leader_epochs: tuple[SegmentLeaderEpochEntry, ...] = stored()


@message
class RemoteWalCombinedLogSegmentMetadataRecord(RemoteWalMessage):
    """An object and everything in it: enough to fetch and verify any of its slices.  `bucket` is a URL."""

    API_KEY: ClassVar[int] = 4

    combined_segment_id: UUID = stored("uuid")
    broker_id: int = stored("int32")
    broker_epoch: int = stored("int64")
    event_timestamp_ms: int = stored("int64")
    bucket: str = stored("string")
    object_key: str = stored("string")
    object_size_in_bytes: int = stored("int32")
    max_timestamp_ms: int = stored("int64")
    slices: tuple[RemoteWalSliceEntry, ...] = stored()
    custom_metadata: bytes | None = stored("bytes", default=None)
    state: int = stored("int8", default=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)


@message
class RemoteWalLogSegmentMetadataRecord(RemoteWalMessage):
    """One slice, for readers of its partition.  Fields as in RemoteWalSliceEntry and the combined record."""

    API_KEY: ClassVar[int] = 5

    remote_log_segment_id: RemoteLogSegmentIdEntry = stored()
    combined_segment_id: UUID = stored("uuid")
    start_offset: int = stored("int64")
    end_offset: int = stored("int64")
    broker_id: int = stored("int32")
    leader_epoch: int = stored("int32")
    max_timestamp_ms: int = stored("int64")
    event_timestamp_ms: int = stored("int64")
    segment_leader_epochs: tuple[SegmentLeaderEpochEntry, ...] = stored()
    segment_size_in_bytes: int = stored("int32")
    bucket: str = stored("string")
    object_key: str = stored("string")
    position_in_object: int = stored("int32")
    slice_crc32c: int = stored("int64")
    custom_metadata: bytes | None = stored("bytes", default=None)
    remote_log_segment_state: int = stored("int8", default=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)


@message
class RemoteWalLogSegmentMetadataUpdateRecord(RemoteWalMessage):
    """A slice changes its state: the two DELETE states make it void."""

    API_KEY: ClassVar[int] = 6

    remote_log_segment_id: RemoteLogSegmentIdEntry = stored()
    broker_id: int = stored("int32")
    leader_epoch: int = stored("int32")
    event_timestamp_ms: int = stored("int64")
    custom_metadata: bytes | None = stored("bytes", default=None)
    remote_log_segment_state: int = stored("int8")


@message
class RemoteWalPartitionInvalidateRecord(RemoteWalMessage):
    """A new leader: slices of earlier leader epochs are void from `from_offset` on, to readers in its epoch."""

    API_KEY: ClassVar[int] = 7

    topic_id_partition: TopicIdPartitionEntry = stored()
    broker_id: int = stored("int32")
    leader_epoch: int = stored("int32")
    from_offset: int = stored("int64")
    event_timestamp_ms: int = stored("int64")


RemoteWalMetadataRecord: TypeAlias = (
    RemoteWalCombinedLogSegmentMetadataRecord
    | RemoteWalLogSegmentMetadataRecord
    | RemoteWalLogSegmentMetadataUpdateRecord
    | RemoteWalPartitionInvalidateRecord
)

RECORD_TYPES: Final[dict[int, type[RemoteWalMetadataRecord]]] = {
    kind.API_KEY: kind for kind in get_args(RemoteWalMetadataRecord)
}


def slice_record(
    combined: RemoteWalCombinedLogSegmentMetadataRecord, entry: RemoteWalSliceEntry
) -> RemoteWalLogSegmentMetadataRecord:
    """The event of a single slice of an object."""
    return RemoteWalLogSegmentMetadataRecord(
        remote_log_segment_id=entry.remote_log_segment_id,
        combined_segment_id=combined.combined_segment_id,
        start_offset=entry.start_offset,
        end_offset=entry.end_offset,
        broker_id=combined.broker_id,
        leader_epoch=entry.leader_epoch,
        max_timestamp_ms=entry.max_timestamp_ms,
        event_timestamp_ms=combined.event_timestamp_ms,
        segment_leader_epochs=entry.segment_leader_epochs,
        segment_size_in_bytes=entry.size_in_bytes,
        bucket=combined.bucket,
        object_key=combined.object_key,
        position_in_object=entry.position_in_object,
        slice_crc32c=entry.slice_crc32c,
        custom_metadata=combined.custom_metadata,
        remote_log_segment_state=combined.state,
    )


def slice_records(
    combined: RemoteWalCombinedLogSegmentMetadataRecord,
) -> tuple[RemoteWalLogSegmentMetadataRecord, ...]:
    """The events of single slices that follow the combined one, in its order."""
    return tuple(slice_record(combined, entry) for entry in combined.slices)


def encode(record: RemoteWalMetadataRecord) -> bytes:
    """The record as a value of the topic, in its latest version."""
    return encode_record(record, record.VERSIONS[-1])


def decode(data: Buffer) -> RemoteWalMetadataRecord:
    """The record in a value of the topic.  UnknownRecordError, MalformedRecordError."""
    return decode_record(data, RECORD_TYPES)
