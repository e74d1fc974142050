"""RemoteLogStart: where a log that is led here starts, in both tiers together."""

from broker.tiering.first_epochs import first_known_offset, restore_first_epochs
from broker.tiering.remote_offsets import find_log_start_offset
from broker.tiering.remote_task_context import RemoteTaskContext
from broker.tiering.tiered_partition import LogView, TieredPartition


class RemoteLogStart:
    """Found out by the task that runs first, and again when the log has changed or remote storage has lost something.

    A log may have come here without its past, a crash may have taken its start back to what is deleted, and a damaged
    disk its leader epochs.  Before this is settled nothing may be copied or deleted: that goes by epochs and start.
    And what nobody can read any more is not a part of the log: a consumer that begins with the earliest record, or a
    follower that is behind this disk, would ask for it for ever.
    """

    def __init__(self, partition: TieredPartition, context: RemoteTaskContext) -> None:
        self._partition = partition
        self._context = context
        self._view: LogView | None = None  # of which it is settled
        self._losses = 0  # of the partition, when that was asked

    async def settle(self, view: LogView) -> None:
        """Raise the log start to where remote storage begins.

        ReplicaNotAvailableError, RemoteStorageError, LogChangedError: it is not settled.
        """
        losses = self._partition.losses
        if self._view is not None and self._view.is_current and self._losses == losses:
            return
        log, partition = view.log, self._partition.partition
        await restore_first_epochs(partition, view, self._context)
        offset = await find_log_start_offset(
            self._context.metadata, partition, log.leader_epochs.entries, log.local_log_start_offset
        )
        view.check()
        view.raise_log_start(max(offset, first_known_offset(log)), "start of the remote log")
        self._view, self._losses = view, losses
