"""What a follower begins with whose leader has moved the start of its log to remote storage (Kafka: TierStateMachine).

The records stay there: leader epochs and producers are all that is fetched.
"""

import asyncio
from pathlib import Path

from broker.common.errors import StorageFailure
from broker.common.identifiers import TopicIdPartition
from broker.log.leader_epoch_file_cache import LEADER_EPOCH_CHECKPOINT, EpochEntry
from broker.log.offset_checkpoint_file import decode_checkpoint
from broker.replication.remote_log import RemoteLogState
from broker.tiering.errors import RemoteStorageError
from broker.tiering.remote_log_metadata_manager import RemoteLogMetadataManager
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata
from broker.tiering.remote_storage_manager import IndexType, RemoteStorageManager


async def read_state_before(
    metadata: RemoteLogMetadataManager,
    storage: RemoteStorageManager,
    partition: TopicIdPartition,
    epoch: int,
    offset: int,
) -> RemoteLogState:
    """See `RemoteLog.state_before`."""
    segment = await _segment_to_begin_after(metadata, partition, epoch, offset)
    if segment is None:
        raise RemoteStorageError(
            f"no remote segment of {partition.topic_partition} is known that has offset {offset} of epoch {epoch}"
        )
    try:
        async with asyncio.TaskGroup() as group:
            epochs = group.create_task(read_leader_epochs(storage, segment), name="leader-epochs")
            snapshot = group.create_task(
                storage.fetch_index(segment, IndexType.PRODUCER_SNAPSHOT), name="producer-snapshot"
            )
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return RemoteLogState(segment.next_offset, epochs.result(), snapshot.result())


async def read_leader_epochs(
    storage: RemoteStorageManager, segment: RemoteLogSegmentMetadata
) -> tuple[EpochEntry, ...]:
    """All of the log below the segment's end, as of when it was copied.  RemoteStorageError."""
    return _decode_epochs(segment, await storage.fetch_index(segment, IndexType.LEADER_EPOCH))


async def _segment_to_begin_after(
    metadata: RemoteLogMetadataManager, partition: TopicIdPartition, epoch: int, offset: int
) -> RemoteLogSegmentMetadata | None:
    """Of those that have the record the one that ends first: after an unclean election a longer one may go on with what
    another log has."""
    segment = await metadata.remote_log_segment_metadata(partition, epoch, offset)
    if segment is None or segment.end_offset == offset:
        return segment
    listed = await metadata.list_remote_log_segments(partition, epoch)
    having = (each for each in listed if each.is_readable and each.has(epoch, offset))
    return min(having, key=lambda each: each.end_offset, default=None)


def _decode_epochs(segment: RemoteLogSegmentMetadata, content: bytes) -> tuple[EpochEntry, ...]:
    """Ascending in both, all below the segment's end.  RemoteStorageError."""
    try:
        lines = decode_checkpoint(Path(LEADER_EPOCH_CHECKPOINT), content, 2)
        entries = tuple(EpochEntry(int(epoch), int(start_offset)) for epoch, start_offset in lines)
    except (StorageFailure, ValueError) as error:
        raise RemoteStorageError(f"the leader epochs of segment {segment.segment_id} are corrupt: {error}") from error
    previous = EpochEntry(-1, -1)
    for entry in entries:
        if not (previous.epoch < entry.epoch and previous.start_offset < entry.start_offset <= segment.end_offset):
            raise RemoteStorageError(f"the leader epochs of segment {segment.segment_id} are corrupt: {entries}")
        previous = entry
    if not entries:
        raise RemoteStorageError(f"segment {segment.segment_id} comes without leader epochs")
    return entries
