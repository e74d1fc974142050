"""The leader epochs of what a log has in remote storage alone, when its own file does not tell them any more.

A disk may lose or damage `leader-epoch-checkpoint`.  The batches on it say their epochs again (`LogLoader`), but not
those of older records: what is remote would seem to be of another log.  Each remote segment has those of all below it.
"""

from collections.abc import Iterator, Sequence

import structlog

from broker.common.errors import ReplicaNotAvailableError
from broker.common.identifiers import TopicIdPartition
from broker.log.unified_log import UnifiedLog
from broker.tiering.errors import RemoteStorageError
from broker.tiering.leader_epochs import LeaderEpochs, epoch_of, epochs_below
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata
from broker.tiering.remote_log_state import read_leader_epochs
from broker.tiering.remote_task_context import RemoteTaskContext
from broker.tiering.tiered_partition import LogView

log = structlog.get_logger(__name__)


def first_known_offset(local: UnifiedLog) -> int:
    """The epochs of what is in remote storage alone are known from here on; the log start, or less, when all are."""
    earliest = local.leader_epochs.earliest_entry
    local_start = local.local_log_start_offset
    return local_start if earliest is None else min(earliest.start_offset, local_start)


def lacks_first_epochs(local: UnifiedLog) -> bool:
    """Whether it may have remote records whose epochs it does not know."""
    return local.log_start_offset < first_known_offset(local)


def ensure_epoch_is_known(local: UnifiedLog, offset: int) -> None:
    """ReplicaNotAvailableError for a remote record whose epoch is not known yet: "not known" is not "not there"."""
    if local.log_start_offset <= offset < first_known_offset(local):
        raise ReplicaNotAvailableError(
            f"the leader epochs of {local.topic_partition} below offset {first_known_offset(local)} are being restored"
        )


async def restore_first_epochs(partition: TopicIdPartition, view: LogView, context: RemoteTaskContext) -> None:
    """Give the log the epochs it lacks, as far down as remote storage has records of it.

    ReplicaNotAvailableError, LogChangedError.  RemoteStorageError: what remote storage has below is not known to be of
    this log, nor not to be.
    """
    local = view.log
    while lacks_first_epochs(local):
        segments = await context.metadata.list_remote_log_segments(partition)
        readable = [segment for segment in segments if segment.is_readable]
        view.check()
        offset = first_known_offset(local)
        found = await _epochs_below(offset, local.leader_epochs.entries, readable, context)
        view.check()
        if not found:
            return
        if offset == first_known_offset(local):  # else somebody else has done it
            local.leader_epochs.prepend(found)
            local.leader_epochs.truncate_from_start(local.log_start_offset)
            local.epochs_changed()
            log.warning(
                "leader_epochs_restored", partition=str(partition.topic_partition), below=offset, epochs=len(found)
            )


async def _epochs_below(
    offset: int,
    known: LeaderEpochs,
    readable: Sequence[RemoteLogSegmentMetadata],
    context: RemoteTaskContext,
) -> LeaderEpochs:
    """Those of the log whose epochs from `offset` on are `known`; none when nothing below is in remote storage."""
    for segment in _of_this_log(offset, known, readable):
        epochs = epochs_below(await read_leader_epochs(context.storage, segment), offset)
        if epochs and (not known or epochs[-1].epoch <= known[0].epoch):
            return epochs
    if any(segment.segment_leader_epochs[0].start_offset < offset for segment in readable):
        raise RemoteStorageError(
            f"the leader epochs below offset {offset} are lost, and remote storage does not tell which of its segments "
            "are of this log: nothing is copied or deleted"
        )
    return ()


def _of_this_log(
    offset: int, known: LeaderEpochs, readable: Sequence[RemoteLogSegmentMetadata]
) -> Iterator[RemoteLogSegmentMetadata]:
    """Two logs that have records of one epoch are the same below them.  Or else one that holds the last record below
    `offset`, when all of those agree on its epoch."""
    epochs = {entry.epoch for entry in known}
    oldest_first = sorted(readable, key=lambda segment: segment.start_offset)
    related = (each for each in oldest_first if any(entry.epoch in epochs for entry in each.segment_leader_epochs))
    if (segment := next(related, None)) is not None:
        yield segment
    holding = {
        epoch_of(segment.segment_leader_epochs, offset - 1): segment
        for segment in readable
        if segment.segment_leader_epochs[0].start_offset < offset <= segment.next_offset
    }
    if len(holding) == 1:
        yield from holding.values()
