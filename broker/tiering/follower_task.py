"""FollowerTask: a follower learns what of its log is in remote storage (Kafka: RLMFollowerTask)."""

from broker.tiering.first_epochs import restore_first_epochs
from broker.tiering.remote_log_metadata_manager import RemoteLogMetadataManager
from broker.tiering.remote_offsets import find_copied_offset
from broker.tiering.remote_task_context import RemoteTaskContext
from broker.tiering.tiered_partition import LogChangedError, LogView, TieredPartition


class FollowerTask:
    """So that it may delete what it has on its own disk, and that it may lead."""

    def __init__(self, partition: TieredPartition, context: RemoteTaskContext) -> None:
        self._partition = partition
        self._context = context

    async def run(self) -> None:
        """Once.  ReplicaNotAvailableError; RemoteStorageError when epochs are lost, and cannot be read there."""
        view = self._partition.look(as_leader=False)
        if view is not None:
            try:
                await raise_highest_remote_offset(self._partition, view, self._context.metadata)
                await restore_first_epochs(self._partition.partition, view, self._context)
            except LogChangedError:
                return


async def raise_highest_remote_offset(
    partition: TieredPartition, view: LogView, metadata: RemoteLogMetadataManager
) -> None:
    """Tell the log up to which of its offsets it is in remote storage.

    What is lost while questions are answered counts (`TieredPartition.lose`).
    ReplicaNotAvailableError, LogChangedError.
    """
    log = view.log
    while True:
        leader_epochs, losses = log.leader_epochs.entries, partition.losses
        copied_offset = await find_copied_offset(
            metadata,
            partition.partition,
            leader_epochs,
            log.log_end_offset,
            max(log.highest_remote_offset, log.local_log_start_offset - 1),
        )
        view.check()
        if log.leader_epochs.entries == leader_epochs and partition.losses == losses:
            log.update_highest_remote_offset(copied_offset)
            return
