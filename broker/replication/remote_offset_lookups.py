"""The ListOffsets requests that wait for remote storage, and how many of them waited too long."""

from collections.abc import Callable, Sequence

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.common.purgatory import DelayedOperation, Purgatory
from broker.replication.delayed_remote_list_offsets import DelayedRemoteListOffsets, OnListed
from broker.replication.offset_lookup import ListedOffset, RemoteOffsetLookup
from broker.replication.partition import Partition
from broker.replication.remote_log import RemoteLog


class RemoteOffsetLookups:
    """One per broker.  `timeout_ms` is remote.list.offsets.request.timeout.ms as it is now."""

    def __init__(
        self,
        remote_log: RemoteLog | None,
        *,
        lookup_error: Callable[[TopicPartition], ErrorCode],
        timeout_ms: Callable[[], int],
    ) -> None:
        self.purgatory: Purgatory[DelayedOperation] = Purgatory("RemoteListOffsets")
        self.expired_partitions = 0  # with those of partitions that have left; each partition knows its own
        self._remote_log = remote_log
        self._lookup_error = lookup_error
        self._timeout_ms = timeout_ms

    def wait(
        self, outcomes: Sequence[ListedOffset | RemoteOffsetLookup], timeout_ms: int, on_listed: OnListed
    ) -> DelayedRemoteListOffsets:
        """Ask remote storage, and call `on_listed` with all answers when the last is there or `timeout_ms` are over.

        No partition twice.  Without a `timeout_ms` above 0 the broker's own holds.
        """
        assert self._remote_log is not None, "a log is tiered and nothing knows of remote storage"
        operation = DelayedRemoteListOffsets(
            outcomes,
            self._remote_log,
            lookup_error=self._lookup_error,
            on_settled=self.purgatory.check,
            on_expired=self._count_expired,
            on_listed=on_listed,
        )
        wait_ms = timeout_ms if timeout_ms > 0 else self._timeout_ms()
        self.purgatory.complete_or_park(operation, (operation,), wait_ms)
        return operation

    def cancel(self, operation: DelayedRemoteListOffsets) -> None:
        """The client has gone."""
        operation.is_completed = True
        operation.cancel()
        self.purgatory.cancel(operation)

    def _count_expired(self, partition: Partition) -> None:
        self.expired_partitions += 1
        partition.expired_remote_list_offsets += 1
