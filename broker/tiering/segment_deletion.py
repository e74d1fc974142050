"""Deletion of one remote segment, told before and after (KIP-405: DELETE_SEGMENT_STARTED, DELETE_SEGMENT_FINISHED)."""

from broker.schemas.remote_log_metadata import RemoteLogSegmentState
from broker.tiering.errors import RemoteStorageError
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate
from broker.tiering.remote_task_context import RemoteTaskContext

_DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


def update_of(
    segment: RemoteLogSegmentMetadata,
    state: RemoteLogSegmentState,
    context: RemoteTaskContext,
    custom_metadata: bytes | None = None,
) -> RemoteLogSegmentMetadataUpdate:
    """What this broker tells of a segment now."""
    return RemoteLogSegmentMetadataUpdate(
        partition=segment.partition,
        segment_id=segment.segment_id,
        broker_id=context.local_broker_id,
        event_timestamp_ms=context.clock.now_ms(),
        state=state,
        custom_metadata=custom_metadata,
    )


async def delete_segment(segment: RemoteLogSegmentMetadata, context: RemoteTaskContext) -> RemoteStorageError | None:
    """What storage says against it: then it stays in DELETE_SEGMENT_STARTED, for another time.

    Nobody may read of it any more when this is called.  RemoteStorageError when it could not be told.
    """
    stats = context.stats.topic(segment.partition.topic)
    stats.delete_requests += 1
    try:
        if segment.state is not _DELETING:
            await context.metadata.update_remote_log_segment_metadata(update_of(segment, _DELETING, context))
        failure = await _delete_data(segment, context)
        if failure is None:
            await context.metadata.update_remote_log_segment_metadata(update_of(segment, _DELETED, context))
        else:
            stats.delete_errors += 1
    except Exception:
        stats.delete_errors += 1
        raise
    return failure


async def _delete_data(segment: RemoteLogSegmentMetadata, context: RemoteTaskContext) -> RemoteStorageError | None:
    try:
        await context.storage.delete_log_segment_data(segment)
    except RemoteStorageError as error:
        return error
    except Exception as error:  # a storage manager of one's own may raise anything
        return RemoteStorageError(
            f"remote segment {segment.segment_id} of {segment.partition.topic_partition} was not deleted: {error!r}"
        )
    return None
