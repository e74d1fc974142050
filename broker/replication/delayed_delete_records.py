"""DeleteRecords that waits until every alive replica has dropped the records (Kafka's DelayedDeleteRecords)."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.common.errors import ErrorCode
from broker.common.identifiers import NO_OFFSET, TopicPartition
from broker.common.purgatory import DelayedOperation

if TYPE_CHECKING:
    from broker.replication.partition import Partition


class DeleteRecordsResult:
    """One partition's answer: the low watermark of its alive replicas, -1 with an error."""

    __slots__ = ("error", "low_watermark", "partition", "required_offset", "topic_partition")

    def __init__(
        self,
        topic_partition: TopicPartition,
        error: ErrorCode = ErrorCode.none,
        *,
        partition: "Partition | None" = None,
        required_offset: int = NO_OFFSET,
    ) -> None:
        self.topic_partition = topic_partition
        self.error = error
        self.low_watermark = NO_OFFSET
        self.partition = partition  # what is still waited for; None once settled
        self.required_offset = required_offset


OnDeleted = Callable[[list[DeleteRecordsResult]], None]


class DelayedDeleteRecords(DelayedOperation):
    """Looks at the low watermark of each partition that is not settled yet."""

    __slots__ = ("_lookup_error", "_on_deleted", "results")

    def __init__(
        self,
        results: list[DeleteRecordsResult],
        on_deleted: OnDeleted,
        lookup_error: Callable[[TopicPartition], ErrorCode],
    ) -> None:
        super().__init__()
        self.results = results
        self._on_deleted = on_deleted
        self._lookup_error = lookup_error
        for result in results:
            if result.partition is not None:
                result.partition.delete_records_waiting += 1

    def try_complete(self) -> bool:
        is_settled = True
        for result in self.results:
            partition = result.partition
            if partition is None:
                continue
            error = self._error(partition)
            if error is not ErrorCode.none:
                result.error = error
                self._settle(result, NO_OFFSET)
            elif partition.low_watermark >= result.required_offset:
                self._settle(result, partition.low_watermark)
            else:
                is_settled = False
        return is_settled

    def on_complete(self, expired: bool) -> None:
        for result in self.results:
            if result.partition is not None:  # the log start offset stays moved
                result.error = ErrorCode.request_timed_out
                self._settle(result, NO_OFFSET)
        self._on_deleted(self.results)

    def _error(self, partition: "Partition") -> ErrorCode:
        if partition.is_leader:
            return ErrorCode.none
        return self._lookup_error(partition.topic_partition) or ErrorCode.not_leader_or_follower

    @staticmethod
    def _settle(result: DeleteRecordsResult, low_watermark: int) -> None:
        assert result.partition is not None
        result.partition.delete_records_waiting -= 1
        result.partition = None
        result.low_watermark = low_watermark
