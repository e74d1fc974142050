"""A fetch that waits for min.bytes (Kafka's DelayedFetch)."""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from broker.common.errors import ErrorCode, KafkaError
from broker.common.purgatory import DelayedOperation
from broker.replication.fetch_params import BucketFetch, FetchParams, FetchPartition, FetchPartitionResult
from broker.replication.fetch_source import FetchSource
from broker.replication.partition import Partition

ANSWER_NOW: Final = -1
IN_REMOTE_STORAGE: Final = -2  # the next fetch is read there, or this one waits because the quota is exceeded
REFUSED_AGAIN_WAIT_MS: Final = 20  # before a follower hears the same refusal once more; it has a backoff of its own


class DelayedFetch(DelayedOperation):
    """Adds up what is available, partition by partition, as each of them changes.

    A wake-up looks at the partition that changed and at no other: with min.bytes of 1 and a thousand partitions, one
    appended record costs one look.
    """

    __slots__ = ("_accumulated_bytes", "_held_back", "_is_ready", "_on_ready", "_read_again", "params", "source")

    def __init__(
        self,
        params: FetchParams,
        source: FetchSource,
        *,
        on_ready: "Callable[[DelayedFetch], None]",
        read_again: "Callable[[DelayedFetch, bool], None]",
        held_back: Collection[FetchPartition] = (),
    ) -> None:
        """`held_back` are partitions in remote storage that the quota keeps from being read."""
        super().__init__()
        self.params = params
        self.source = source
        self._on_ready = on_ready
        self._read_again = read_again
        self._held_back = held_back
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
        if available == IN_REMOTE_STORAGE and request in self._held_back:
            available = 0
        if available >= 0:
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


def parking_ms(params: FetchParams, results: Sequence[FetchPartitionResult], lag_wait_ms: int) -> int:
    """As long as the fetch may wait; a follower that takes records from a bucket is heard again sooner (KIP-1176).

    It gets no records that would end the wait, but its next fetch is what commits the records it has by then.
    `lag_wait_ms` is remote.wal.fetch.lag.wait.ms.
    """
    wait_ms = params.max_wait_ms
    if params.is_from_follower:
        for result in results:
            bucket_fetch = result.request.bucket_fetch
            if bucket_fetch is BucketFetch.BEHIND:
                wait_ms = min(wait_ms, lag_wait_ms)
            elif bucket_fetch is BucketFetch.REFUSED:
                wait_ms = min(wait_ms, max(lag_wait_ms, REFUSED_AGAIN_WAIT_MS))
    return wait_ms


def available_bytes(request: FetchPartition, params: FetchParams) -> int:
    """What the partition adds to min.bytes, or ANSWER_NOW when waiting has no point any more, or IN_REMOTE_STORAGE
    when that is because the offset is below the local log."""
    partition = request.hosted
    if partition is None or partition.local_log is None:
        return ANSWER_NOW
    if params.fetch_only_leader and not partition.is_leader:
        return ANSWER_NOW
    if request.bucket_fetch is not None and partition.leader_wal is not None:
        return ANSWER_NOW if _concerns_bucket_follower(request, partition) else 0
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
    if offset < log.local_log_start_offset:
        return IN_REMOTE_STORAGE
    if params.is_from_follower and partition.followers.holds_back(params.replica_id):
        return 0
    if offset < log.segments.active.base_offset < limit:
        return ANSWER_NOW  # one answer never spans two segments, so waiting could not fill it
    if params.min_bytes <= 1 and limit == log.log_end_offset:
        return 1  # the record before the end is there, whatever its size
    read = log.read(offset, request.max_bytes, limit, min_one_batch=True)
    return min(read.size_bytes, request.max_bytes)


def _concerns_bucket_follower(request: FetchPartition, partition: Partition) -> bool:
    """Whether a follower that gets no records here has to hear what happened; appends alone wake who has everything."""
    if request.bucket_fetch is BucketFetch.REFUSED:
        return False  # its wait is what it gets
    if partition.leader_epoch_error(request.current_leader_epoch) is not None:
        return True
    log = partition.log
    if request.bucket_fetch is BucketFetch.CAUGHT_UP and log.log_end_offset != request.fetch_offset:
        return True
    return request.has_news(log.high_watermark, log.log_start_offset)
