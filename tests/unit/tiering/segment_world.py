"""Remote segments for tests, made from what matters."""

from collections.abc import Mapping
from uuid import UUID

from broker.common.identifiers import TopicIdPartition
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.schemas.remote_log_metadata import RemoteLogSegmentState
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate

PARTITION = TopicIdPartition(UUID(int=1 << 100), "topic", 0)
STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


def epoch_entries(epochs: Mapping[int, int]) -> tuple[EpochEntry, ...]:
    """{epoch: start offset}."""
    return tuple(EpochEntry(epoch, start_offset) for epoch, start_offset in sorted(epochs.items()))


def segment(
    number: int,
    start: int,
    end: int,
    epochs: Mapping[int, int] | None = None,
    *,
    state: RemoteLogSegmentState = STARTED,
    size: int = 100,
    max_timestamp_ms: int = 1000,
    partition: TopicIdPartition = PARTITION,
) -> RemoteLogSegmentMetadata:
    """The segment of id `number` with the offsets from `start` to `end`, inclusive; of epoch 0 unless told."""
    return RemoteLogSegmentMetadata(
        partition=partition,
        segment_id=UUID(int=number),
        start_offset=start,
        end_offset=end,
        broker_id=1,
        max_timestamp_ms=max_timestamp_ms,
        event_timestamp_ms=5000,
        segment_leader_epochs=epoch_entries({0: start} if epochs is None else epochs),
        segment_size_in_bytes=size,
        state=state,
    )


def update(
    number: int, state: RemoteLogSegmentState, *, partition: TopicIdPartition = PARTITION, custom: bytes | None = None
) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(
        partition=partition,
        segment_id=UUID(int=number),
        broker_id=2,
        event_timestamp_ms=6000,
        state=state,
        custom_metadata=custom,
    )
