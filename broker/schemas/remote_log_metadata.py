"""The records of `__remote_log_metadata` (KIP-405): what happens to segments in remote storage.

A segment is told of with api key 0 when its copy begins, and with key 1 at each later change of its state; key 2 tells
that a whole partition is deleted.  Key 3 was for snapshots of the state, in files, which nobody writes any more.
"""

from enum import IntEnum
from typing import ClassVar, Final, TypeAlias, get_args
from uuid import UUID

from broker.common.buffers import Buffer
from broker.common.identifiers import TopicIdPartition
from broker.schemas.framing import decode_record, encode_record
from broker.schemas.message_codec import message, stored


class RemoteLogSegmentState(IntEnum):
    """What is known of a segment's bytes: only COPY_SEGMENT_FINISHED says that they are all there."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class RemotePartitionDeleteState(IntEnum):
    """How far the deletion of everything of a partition is."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


class RemoteLogMessage:
    """What the records share; all are flexible from their first version on."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0


@message
class TopicIdPartitionEntry:
    """A partition, as Kafka's remote metadata writes it."""

    name: str = stored("string")
    id: UUID = stored("uuid")
    partition: int = stored("int32")

    @classmethod
    def of(cls, partition: TopicIdPartition) -> "TopicIdPartitionEntry":
        return cls(name=partition.topic, id=partition.topic_id, partition=partition.partition)

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return TopicIdPartition(self.id, self.name, self.partition)


@message
class RemoteLogSegmentIdEntry:
    """A segment: its partition and an id of its own, new with every attempt to copy it."""

    topic_id_partition: TopicIdPartitionEntry = stored()
    id: UUID = stored("uuid")


@message
class SegmentLeaderEpochEntry:
    """The first offset of a leader epoch in a segment."""

    leader_epoch: int = stored("int32")
    offset: int = stored("int64")


@message
class RemoteLogSegmentMetadataRecord(RemoteLogMessage):
    """A segment; `end_offset` is inclusive, `segment_size_in_bytes` is that of the log file alone."""

    API_KEY: ClassVar[int] = 0

    remote_log_segment_id: RemoteLogSegmentIdEntry = stored()
    start_offset: int = stored("int64")
    end_offset: int = stored("int64")
    broker_id: int = stored("int32")
    max_timestamp_ms: int = stored("int64")
    event_timestamp_ms: int = stored("int64")
    segment_leader_epochs: tuple[SegmentLeaderEpochEntry, ...] = stored()
    segment_size_in_bytes: int = stored("int32")
    custom_metadata: bytes | None = stored("bytes", default=None)
    remote_log_segment_state: int = stored("int8", default=RemoteLogSegmentState.COPY_SEGMENT_STARTED)
    txn_index_empty: bool = stored("bool", tag=0, default=False)


@message
class RemoteLogSegmentMetadataUpdateRecord(RemoteLogMessage):
    """A segment changes its state."""

    API_KEY: ClassVar[int] = 1

    remote_log_segment_id: RemoteLogSegmentIdEntry = stored()
    broker_id: int = stored("int32")
    event_timestamp_ms: int = stored("int64")
    custom_metadata: bytes | None = stored("bytes", default=None)
    remote_log_segment_state: int = stored("int8")


@message
class RemotePartitionDeleteMetadataRecord(RemoteLogMessage):
    """All of a partition is being deleted.  Defined by Kafka, and sent by nobody."""

    API_KEY: ClassVar[int] = 2

    topic_id_partition: TopicIdPartitionEntry = stored()
    broker_id: int = stored("int32")
    event_timestamp_ms: int = stored("int64")
    remote_partition_delete_state: int = stored("int8")


@message
class RemoteLogSegmentMetadataSnapshotRecord(RemoteLogMessage):
    """A segment in a snapshot file of one partition; it has no place in the topic."""

    API_KEY: ClassVar[int] = 3

    segment_id: UUID = stored("uuid")
    start_offset: int = stored("int64")
    end_offset: int = stored("int64")
    broker_id: int = stored("int32")
    max_timestamp_ms: int = stored("int64")
    event_timestamp_ms: int = stored("int64")
    segment_leader_epochs: tuple[SegmentLeaderEpochEntry, ...] = stored()
    segment_size_in_bytes: int = stored("int32")
    custom_metadata: bytes | None = stored("bytes", default=None)
    remote_log_segment_state: int = stored("int8")
    txn_index_empty: bool = stored("bool", tag=0, default=False)


RemoteLogMetadataRecord: TypeAlias = (
    RemoteLogSegmentMetadataRecord
    | RemoteLogSegmentMetadataUpdateRecord
    | RemotePartitionDeleteMetadataRecord
    | RemoteLogSegmentMetadataSnapshotRecord
)

RECORD_TYPES: Final[dict[int, type[RemoteLogMetadataRecord]]] = {
    kind.API_KEY: kind for kind in get_args(RemoteLogMetadataRecord)
}


def encode(record: RemoteLogMetadataRecord) -> bytes:
    """The record as a value of the topic, in its latest version."""
    return encode_record(record, record.VERSIONS[-1])


def decode(data: Buffer) -> RemoteLogMetadataRecord:
    """The record in a value of the topic.  UnknownRecordError, MalformedRecordError."""
    return decode_record(data, RECORD_TYPES)
