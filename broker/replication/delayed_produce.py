"""A produce request with acks=all that waits for its records to be committed (Kafka's DelayedProduce)."""

from collections.abc import Callable, Sequence

from broker.common.errors import ErrorCode
from broker.common.purgatory import DelayedOperation
from broker.replication.produce_result import PartitionProduceResult

OnProduced = Callable[[list[PartitionProduceResult]], None]


class DelayedProduce(DelayedOperation):
    """Counts the partitions that are not settled yet.

    Each partition tells by itself when its high watermark has passed the request's records, or never will: a wake-up
    costs nothing for the other partitions and nothing for requests behind this one.
    """

    __slots__ = ("_on_produced", "_on_settled", "_results", "_unsettled")

    def __init__(
        self,
        results: list[PartitionProduceResult],
        unsettled: Sequence[int],
        on_produced: OnProduced,
        on_settled: "Callable[[DelayedProduce], None]",
    ) -> None:
        super().__init__()
        self._results = results
        self._unsettled = dict.fromkeys(unsettled)
        self._on_produced = on_produced
        self._on_settled = on_settled

    def on_partition_done(self, index: int, error: ErrorCode) -> None:
        """Result `index` is committed, or refused; the first word counts."""
        if self.is_completed or index not in self._unsettled:
            return
        del self._unsettled[index]
        if error is not ErrorCode.none:
            result = self._results[index]
            result.error = error
        if not self._unsettled:
            self._on_settled(self)

    def try_complete(self) -> bool:
        return not self._unsettled

    def on_complete(self, expired: bool) -> None:
        if expired:  # the records stay in the log and will normally be committed; the base offset is told
            for index in self._unsettled:
                self._results[index].error = ErrorCode.request_timed_out
        self._on_produced(self._results)
