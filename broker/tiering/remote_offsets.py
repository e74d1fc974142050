"""Where the remote part of a log ends and begins, told by its leader epochs (KIP-405, as RemoteLogManager does it)."""

from typing import Final, NamedTuple

from broker.common.identifiers import NO_EPOCH, NO_OFFSET, TopicIdPartition
from broker.tiering.leader_epochs import LeaderEpochs, end_offset_of
from broker.tiering.remote_log_metadata_manager import RemoteLogMetadataManager


class RemoteOffset(NamedTuple):
    """An offset, and the epoch its record was written in."""

    offset: int
    epoch: int


NOTHING_COPIED: Final = RemoteOffset(NO_OFFSET, NO_EPOCH)


async def find_highest_remote_offset(
    manager: RemoteLogMetadataManager, partition: TopicIdPartition, leader_epochs: LeaderEpochs, log_end_offset: int
) -> RemoteOffset:
    """The last offset, inclusive, of this log that is in remote storage; NOTHING_COPIED.

    After an unclean election remote storage may reach further in an epoch than the log does: that part is of another
    log.  `leader_epochs` are the log's as of now; whoever has waited for this must see that they still are.
    ReplicaNotAvailableError.
    """
    for entry in reversed(leader_epochs):
        highest = await manager.highest_offset_for_epoch(partition, entry.epoch)
        if highest is not None:
            end_offset = end_offset_of(leader_epochs, entry.epoch, log_end_offset)
            return RemoteOffset(min(highest, end_offset - 1), entry.epoch)
    return NOTHING_COPIED


async def find_log_start_offset(
    manager: RemoteLogMetadataManager,
    partition: TopicIdPartition,
    leader_epochs: LeaderEpochs,
    local_log_start_offset: int,
) -> int:
    """Where the log begins, both tiers together: with the first segment of the earliest epoch that has any.

    For a new leader, whose log start offset is raised to it and never lowered.  ReplicaNotAvailableError.
    """
    for entry in leader_epochs:
        segments = await manager.list_remote_log_segments(partition, entry.epoch)
        if segments:
            return segments[0].start_offset
    return local_log_start_offset
