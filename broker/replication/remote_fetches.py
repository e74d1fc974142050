"""The fetches that wait for remote storage, and how many of them waited too long."""

from collections.abc import Callable, Sequence

from broker.common.purgatory import DelayedOperation, Purgatory
from broker.replication.action_queue import ActionQueue
from broker.replication.delayed_remote_fetch import DelayedRemoteFetch
from broker.replication.fetch_params import FetchPartitionResult
from broker.replication.fetch_reader import FetchReader
from broker.replication.remote_log import RemoteLog
from broker.replication.remote_reads import RemoteReads

OnFetched = Callable[[Sequence[FetchPartitionResult]], None]


class RemoteFetches:
    """One per broker.  `max_wait_ms` is remote.fetch.max.wait.ms as it is now; what the client allows is not asked.

    `purgatory.expired_count` is Kafka's DelayedRemoteFetchMetrics ExpiresPerSec.
    """

    def __init__(
        self,
        remote_log: RemoteLog | None,
        reader: FetchReader,
        actions: ActionQueue,
        *,
        max_wait_ms: Callable[[], int],
    ) -> None:
        self.purgatory: Purgatory[DelayedOperation] = Purgatory("RemoteFetch")
        self._remote_log = remote_log
        self._reader = reader
        self._actions = actions
        self._max_wait_ms = max_wait_ms

    def begin(
        self, results: list[FetchPartitionResult], reads: RemoteReads, on_fetched: OnFetched
    ) -> DelayedRemoteFetch | None:
        """Read, and answer all partitions of the fetch together; returns the operation when it is parked."""
        assert self._remote_log is not None
        operation = DelayedRemoteFetch(
            results,
            reads,
            self._remote_log,
            self._reader.answer_budget,
            on_ready=lambda ready: self._actions.add(lambda: self.purgatory.check(ready)),
            answer=lambda: self._reader.read_bytes(results, on_fetched),
        )
        is_completed = self.purgatory.complete_or_park(operation, (operation,), self._max_wait_ms())
        return None if is_completed else operation

    def cancel(self, operation: DelayedRemoteFetch) -> None:
        """The client has gone."""
        operation.abandon()
        self.purgatory.cancel(operation)
