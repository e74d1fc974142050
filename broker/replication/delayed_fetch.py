"""A fetch that waits for min.bytes (Kafka's DelayedFetch)."""

from collections.abc import Callable, Sequence
from typing import Final

from broker.common.errors import ErrorCode, KafkaError
from broker.common.purgatory import DelayedOperation
from broker.replication.fetch_params import FetchParams, FetchPartition, FetchPartitionResult
from broker.replication.fetch_source import FetchSource

ANSWER_NOW: Final = -1


class DelayedFetch(DelayedOperation):
    """Adds up what is available, partition by partition, as each of them changes.

    A wake-up looks at the partition that changed and at no other: with min.bytes of 1 and a thousand partitions, one
    appended record costs one look.
    """

    __slots__ = ("_accumulated_bytes", "_is_ready", "_on_ready", "_read_again", "params", "source")

    def __init__(
        self,
        params: FetchParams,
        source: FetchSource,
        *,
        on_ready: "Callable[[DelayedFetch], None]",
        read_again: "Callable[[DelayedFetch, bool], None]",
    ) -> None:
        super().__init__()
        self.params = params
        self.source = source
        self._on_ready = on_ready
        self._read_again = read_again
        self._accumulated_bytes = 0
        self._is_ready = False

    def start_from(self, results: Sequence[FetchPartitionResult]) -> None:
        """Count what the read that led to parking has found; nothing can have changed since."""
        for result in results:
            result.request.available_bytes = result.size_bytes
            self._accumulated_bytes += result.size_bytes

    def on_partition_changed(self, request: FetchPartition) -> None:
        if self._is_ready or self.is_completed:
            return
        try:
            available = available_bytes(request, self.params)
        except KafkaError:  # the read that answers tells it
            available = ANSWER_NOW
        if available != ANSWER_NOW:
            self._accumulated_bytes += available - request.available_bytes
            request.available_bytes = available
            if self._accumulated_bytes < self.params.min_bytes:
                return
        self._is_ready = True
        self._on_ready(self)

    def try_complete(self) -> bool:
        return self._is_ready

    def on_complete(self, expired: bool) -> None:
        self.source.unpark(self)
        self._read_again(self, expired)


def available_bytes(request: FetchPartition, params: FetchParams) -> int:
    """What the partition adds to min.bytes, or ANSWER_NOW when waiting has no point any more."""
    partition = request.hosted
    if partition is None or partition.local_log is None:
        return ANSWER_NOW
    if params.fetch_only_leader and not partition.is_leader:
        return ANSWER_NOW
    # A newer epoch than ours (UNKNOWN_LEADER_EPOCH) would have failed before parking.
    if partition.leader_epoch_error(request.current_leader_epoch) is ErrorCode.fenced_leader_epoch:
        return ANSWER_NOW
    log = partition.local_log
    offset = request.fetch_offset
    if request.last_fetched_epoch >= 0:
        epoch, end_offset = log.end_offset_for_epoch(request.last_fetched_epoch)
        if end_offset < offset or epoch < request.last_fetched_epoch:
            return ANSWER_NOW  # diverging, or unknown: it needs another answer than records
    limit = partition.fetch_limit(params.isolation)
    if offset == limit:
        return 0
    if offset > log.log_end_offset or offset < log.log_start_offset:
        return ANSWER_NOW  # truncated, or deleted
    if offset > limit:
        return ANSWER_NOW if partition.is_leader else 0  # as `FetchReader` has it
    if params.is_from_follower and partition.followers.holds_back(params.replica_id):
        return 0
    if offset < log.segments.active.base_offset < limit:
        return ANSWER_NOW  # one answer never spans two segments, so waiting could not fill it
    if params.min_bytes <= 1 and limit == log.log_end_offset:
        return 1  # the record before the end is there, whatever its size
    read = log.read(offset, request.max_bytes, limit, min_one_batch=True)
    return min(read.size_bytes, request.max_bytes)
