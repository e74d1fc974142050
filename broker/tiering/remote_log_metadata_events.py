"""Events of remote segments, to and from values of `__remote_log_metadata` (Kafka: RemoteLogMetadataSerde)."""

from typing import TypeAlias

from broker.common.buffers import Buffer
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.schemas.message_codec import MalformedRecordError
from broker.schemas.remote_log_metadata import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadataRecord,
    RemotePartitionDeleteState,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
    decode,
    encode,
)
from broker.tiering.remote_log_segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)

RemoteLogMetadataEvent: TypeAlias = (
    RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate | RemotePartitionDeleteMetadata
)


def encode_event(event: RemoteLogMetadataEvent) -> bytes:
    """The event as a value of the topic.  ValueError when a field's number is too large for it."""
    match event:
        case RemoteLogSegmentMetadata():
            return encode(_record_of_segment(event))
        case RemoteLogSegmentMetadataUpdate():
            return encode(
                RemoteLogSegmentMetadataUpdateRecord(
                    remote_log_segment_id=_segment_id_entry(event),
                    broker_id=event.broker_id,
                    event_timestamp_ms=event.event_timestamp_ms,
                    custom_metadata=event.custom_metadata,
                    remote_log_segment_state=event.state,
                )
            )
        case RemotePartitionDeleteMetadata():
            return encode(
                RemotePartitionDeleteMetadataRecord(
                    topic_id_partition=TopicIdPartitionEntry.of(event.partition),
                    broker_id=event.broker_id,
                    event_timestamp_ms=event.event_timestamp_ms,
                    remote_partition_delete_state=event.state,
                )
            )


def decode_event(data: Buffer) -> RemoteLogMetadataEvent:
    """The event in a value of the topic.

    UnknownRecordError: of a newer broker's making.  MalformedRecordError: bytes that are no event, an event that
    cannot be, or a snapshot, which has no place in the topic.
    """
    record = decode(data)
    try:
        match record:
            case RemoteLogSegmentMetadataRecord():
                return _segment_of_record(record)
            case RemoteLogSegmentMetadataUpdateRecord():
                return RemoteLogSegmentMetadataUpdate(
                    partition=record.remote_log_segment_id.topic_id_partition.topic_id_partition,
                    segment_id=record.remote_log_segment_id.id,
                    broker_id=record.broker_id,
                    event_timestamp_ms=record.event_timestamp_ms,
                    state=RemoteLogSegmentState(record.remote_log_segment_state),
                    custom_metadata=record.custom_metadata,
                )
            case RemotePartitionDeleteMetadataRecord():
                return RemotePartitionDeleteMetadata(
                    partition=record.topic_id_partition.topic_id_partition,
                    broker_id=record.broker_id,
                    event_timestamp_ms=record.event_timestamp_ms,
                    state=RemotePartitionDeleteState(record.remote_partition_delete_state),
                )
    except ValueError as error:
        raise MalformedRecordError(f"An event of remote log metadata that cannot be: {error}") from error
    raise MalformedRecordError(f"A {type(record).__name__} has no place in the topic")


def _segment_id_entry(event: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate) -> RemoteLogSegmentIdEntry:
    return RemoteLogSegmentIdEntry(topic_id_partition=TopicIdPartitionEntry.of(event.partition), id=event.segment_id)


def _record_of_segment(segment: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadataRecord:
    return RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=_segment_id_entry(segment),
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        broker_id=segment.broker_id,
        max_timestamp_ms=segment.max_timestamp_ms,
        event_timestamp_ms=segment.event_timestamp_ms,
        segment_leader_epochs=tuple(
            SegmentLeaderEpochEntry(leader_epoch=entry.epoch, offset=entry.start_offset)
            for entry in segment.segment_leader_epochs
        ),
        segment_size_in_bytes=segment.segment_size_in_bytes,
        custom_metadata=segment.custom_metadata,
        remote_log_segment_state=segment.state,
        txn_index_empty=segment.is_txn_index_empty,
    )


def _segment_of_record(record: RemoteLogSegmentMetadataRecord) -> RemoteLogSegmentMetadata:
    epochs = {entry.leader_epoch: entry.offset for entry in record.segment_leader_epochs}  # Kafka writes them unsorted
    return RemoteLogSegmentMetadata(
        partition=record.remote_log_segment_id.topic_id_partition.topic_id_partition,
        segment_id=record.remote_log_segment_id.id,
        start_offset=record.start_offset,
        end_offset=record.end_offset,
        broker_id=record.broker_id,
        max_timestamp_ms=record.max_timestamp_ms,
        event_timestamp_ms=record.event_timestamp_ms,
        segment_leader_epochs=tuple(EpochEntry(*entry) for entry in sorted(epochs.items())),
        segment_size_in_bytes=record.segment_size_in_bytes,
        state=RemoteLogSegmentState(record.remote_log_segment_state),
        custom_metadata=record.custom_metadata,
        is_txn_index_empty=record.txn_index_empty,
    )
