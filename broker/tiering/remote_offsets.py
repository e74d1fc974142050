"""Where the remote part of a log ends and begins, told by its leader epochs (KIP-405, as RemoteLogManager does it)."""

from typing import Final, NamedTuple

from broker.common.identifiers import NO_EPOCH, NO_OFFSET, TopicIdPartition
from broker.tiering.leader_epochs import LeaderEpochs, end_offset_of, epoch_of
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


async def find_copied_offset(
    manager: RemoteLogMetadataManager,
    partition: TopicIdPartition,
    leader_epochs: LeaderEpochs,
    log_end_offset: int,
    known_offset: int,
) -> int:
    """Up to where, inclusive, everything is in remote storage that this disk has; NO_OFFSET when nothing ever was.

    Nothing above `known_offset` is taken on trust: it is the larger of the highest remote offset as known so far, and
    the last offset below the local log start.  Kafka takes the highest offset that was ever copied.  But copies are
    deleted when a topic is tiered no more: after it is enabled again they would seem to be there, nothing would be
    copied, and retention would delete from the disk what is nowhere else.
    """
    highest = await find_highest_remote_offset(manager, partition, leader_epochs, log_end_offset)
    offset = known_offset + 1
    while offset <= highest.offset:
        epoch = epoch_of(leader_epochs, offset)
        segment = None if epoch is None else await manager.remote_log_segment_metadata(partition, epoch, offset)
        if epoch is None or segment is None:
            break
        offset = min(segment.next_offset, end_offset_of(leader_epochs, epoch, log_end_offset))
    return min(offset - 1, highest.offset)


async def find_log_start_offset(
    manager: RemoteLogMetadataManager,
    partition: TopicIdPartition,
    leader_epochs: LeaderEpochs,
    local_log_start_offset: int,
) -> int:
    """Where the log begins, both tiers together: with the first readable segment of the earliest epoch that has any,
    or on the local disk.

    For a new leader, whose log start offset is raised to it and never lowered.  Kafka takes segments that are being
    deleted as well, and a log whose start offset was lost in a crash would begin with what nobody can read.
    ReplicaNotAvailableError.
    """
    for entry in leader_epochs:
        for segment in await manager.list_remote_log_segments(partition, entry.epoch):
            if segment.is_readable:
                return min(segment.start_offset, local_log_start_offset)
    return local_log_start_offset
