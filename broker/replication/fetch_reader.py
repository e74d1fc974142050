"""Reading for a fetch: which ranges of which files, within its limits (Kafka's ReplicaManager.readFromLog).

Deciding is one plain `def` over all partitions; the bytes are read afterwards, from the page cache in the loop and
from the disk in a thread.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from broker.common.byte_budget import ByteBudget
from broker.common.disk import DiskExecutor
from broker.common.errors import NO_ERROR, ErrorCode, KafkaError, StorageFailure
from broker.common.identifiers import NO_BROKER, ZERO_UUID, TopicPartition
from broker.log.file_records import FileSlice, read, read_cached
from broker.log.unified_log import UnifiedLog
from broker.replication.fetch_params import (
    BucketFetch,
    EpochEndOffset,
    FetchIsolation,
    FetchParams,
    FetchPartition,
    FetchPartitionResult,
)
from broker.replication.hosted_partitions import HostedPartitions
from broker.replication.partition import Partition
from broker.replication.remote_log import RemoteFetch, RemoteLog
from broker.replication.remote_reads import RemoteReads
from broker.replication.replica_selector import ReplicaSelector

log = structlog.get_logger(__name__)

# Kafka's failedFetchRequestRate leaves these out (ReplicaManager.readFromLog).
ERRORS_THAT_ARE_NO_FAILURE: Final = frozenset(
    {
        ErrorCode.offset_out_of_range,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_leader_or_follower,
        ErrorCode.replica_not_available,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.kafka_storage_error,
        ErrorCode.inconsistent_topic_id,
    }
)


NO_BOUND: Final = -1
FIRST_VERSION_WITH_LAST_FETCHED_EPOCH: Final = 12
# What a follower gets however much clients leave unread, or they would hold acks=all and the ISR back: as much as one
# batch may be large, which anybody gets.  A fetcher has one answer under way, so it is so much for each of them.
FOLLOWER_SHARE_BYTES: Final = 1 << 20
_HIGH_WATERMARK: Final = FetchIsolation.HIGH_WATERMARK  # as NO_ERROR: for the hot path
_TXN_COMMITTED: Final = FetchIsolation.TXN_COMMITTED


class FetchReader:
    """Reads the partitions that are hosted here; `replica_selector` None: consumers are served by whom they ask.

    While `is_fenced`, consumers are refused: what this broker would show them may be the past.

    `answer_budget` counts the answers that clients have not taken, and here those that are being read from the disk.
    As it runs out answers get smaller, down to the one batch that KIP-74 grants: a client that does not read makes
    others fetch in smaller steps, and stops none.  Followers keep FOLLOWER_SHARE_BYTES each.

    Without a `remote_log` nothing is tiered here.
    """

    def __init__(
        self,
        hosted: HostedPartitions,
        disk: DiskExecutor,
        replica_selector: ReplicaSelector | None = None,
        is_fenced: Callable[[], bool] = lambda: False,
        answer_budget: ByteBudget | None = None,
        remote_log: RemoteLog | None = None,
    ) -> None:
        self._hosted = hosted
        self._remote_log = remote_log
        self.answer_budget = answer_budget or ByteBudget(NO_BOUND)
        self._disk = disk
        self._replica_selector = replica_selector
        self._is_fenced = is_fenced

    def left_bytes(self, params: FetchParams) -> int:
        """How much an answer may be large now, or as large as one batch."""
        left_bytes = self.answer_budget.left_bytes
        return max(left_bytes, FOLLOWER_SHARE_BYTES) if params.is_from_follower else left_bytes

    def locate(
        self, params: FetchParams, requests: Sequence[FetchPartition], *, is_first_read: bool
    ) -> tuple[list[FetchPartitionResult], RemoteReads | None]:
        """One result per partition, its bytes still in the file, or in remote storage: those are told apart as well.

        The first batch of the first partition that has one is taken even if it exceeds the limits, or a consumer
        could never pass it (KIP-74); everything else fits.  What remote storage will give is not known: it counts as
        all it may, but a local partition still has that first batch, or a bucket that hangs would stop it.  A
        follower's progress is recorded, and remote storage asked, in the first read only.
        """
        if self._is_fenced() and not params.is_from_follower:
            return [_error(request, ErrorCode.not_leader_or_follower) for request in requests], None
        results = []
        remote: RemoteReads | None = None
        left_bytes = self.left_bytes(params)
        remaining = params.max_bytes if params.max_bytes < left_bytes else left_bytes
        must_have_one = True
        for request in requests:
            size_max = request.max_bytes if request.max_bytes < remaining else remaining
            result = self._locate_one(params, request, size_max, must_have_one, is_first_read)
            size = result.size_bytes
            if size:
                must_have_one = False
                remaining = remaining - size if remaining > size else 0
            elif result.remote_fetch is not None:
                if remote is None:
                    assert self._remote_log is not None
                    remote = RemoteReads(self._remote_log)
                remaining = max(remaining - remote.admit(result), 0)
            results.append(result)
        return results, remote

    def _locate_one(
        self, params: FetchParams, request: FetchPartition, size_max: int, must_have_one: bool, is_first_read: bool
    ) -> FetchPartitionResult:
        partition = request.hosted
        if partition is None:
            found = self._find(request)
            if isinstance(found, FetchPartitionResult):
                return found
            partition = request.hosted = found
        partition.topic_stats.total_fetch_requests += 1
        local = partition.local_log
        if local is None:
            return self._failed(partition, request, ErrorCode.kafka_storage_error)
        try:
            error = _refusal(partition, params, request)
            if error is None:
                return self._locate_in(partition, local, params, request, size_max, must_have_one, is_first_read)
        except KafkaError as failure:
            error = failure.code
        result = self._failed(partition, request, error)
        _slow_down_if_refused_again(partition, params, result)
        return result

    def _find(self, request: FetchPartition) -> Partition | FetchPartitionResult:
        if request.topic is None:
            return _error(request, ErrorCode.unknown_topic_id, is_unresolved=True)
        topic_partition = TopicPartition(request.topic, request.partition)
        partition = self._hosted.get(topic_partition)
        if partition is None:
            error = self._hosted.lookup_error(topic_partition)
            return _error(request, error, is_unresolved=error is ErrorCode.unknown_topic_or_partition)
        asked_id, topic_id = request.topic_id, partition.topic_id
        if asked_id is not ZERO_UUID and asked_id != topic_id and asked_id != ZERO_UUID:
            return _error(request, ErrorCode.inconsistent_topic_id)
        return partition

    def _failed(self, partition: Partition, request: FetchPartition, error: ErrorCode) -> FetchPartitionResult:
        if error not in ERRORS_THAT_ARE_NO_FAILURE:
            partition.topic_stats.failed_fetch_requests += 1
        return _error(request, error)

    def _locate_in(
        self,
        partition: Partition,
        local: UnifiedLog,
        params: FetchParams,
        request: FetchPartition,
        size_max: int,
        must_have_one: bool,
        is_first_read: bool,
    ) -> FetchPartitionResult:
        result = FetchPartitionResult(
            request, NO_ERROR, local.high_watermark, local.last_stable_offset, local.log_start_offset
        )
        selector = self._replica_selector
        if selector is not None and partition.is_leader and not params.fetch_only_leader:
            result.preferred_read_replica = selector.select(partition, params, request)
            if result.preferred_read_replica != NO_BROKER:
                result.completes_fetch = True
                return result
        if request.last_fetched_epoch >= 0 and _has_diverged(local, request, result):
            _slow_down_if_refused_again(partition, params, result)
            return result
        self._locate_records(partition, local, params, result, size_max, must_have_one, is_first_read)
        return result

    def _locate_records(
        self,
        partition: Partition,
        local: UnifiedLog,
        params: FetchParams,
        result: FetchPartitionResult,
        size_max: int,
        must_have_one: bool,
        is_first_read: bool,
    ) -> None:
        request = result.request
        offset = request.fetch_offset
        end_offset = local.log_end_offset
        if offset < local.local_log_start_offset or offset > end_offset:
            self._locate_elsewhere(partition, local, params, result, size_max, must_have_one, is_first_read)
            return
        if params.is_from_follower and _gets_no_records(partition, params, request, is_first_read):
            _answer_without_records(partition, local, params, result, is_first_read)
            return
        isolation = params.isolation
        if isolation is _HIGH_WATERMARK:
            limit = result.high_watermark
        elif isolation is _TXN_COMMITTED:
            limit = result.last_stable_offset
        else:
            limit = end_offset
        if offset < limit:
            result.has_more = True
            is_held_back = params.is_from_follower and partition.followers.holds_back(params.replica_id)
            if not is_held_back and (size_max > 0 or must_have_one):
                is_committed_only = isolation is _TXN_COMMITTED
                found = local.read(offset, size_max, limit, min_one_batch=must_have_one, with_aborted=is_committed_only)
                result.file_slice = found.file_slice
                result.size_bytes = found.size_bytes
                result.aborted_transactions = found.aborted_transactions
            # A reader on an older segment than the limit gets no more by waiting: an answer spans one segment.
            result.completes_fetch = not is_held_back and offset < local.segments.active.base_offset < limit
        elif offset > limit:
            # Between what it may see and the end.  A leader answers empty at once, as Kafka does; a follower will hear
            # of the high watermark any moment, and need not be asked again and again until then.
            result.completes_fetch = partition.is_leader
        if isolation is _TXN_COMMITTED and result.aborted_transactions is None:
            result.aborted_transactions = ()
        if params.is_from_follower:
            if is_first_read:
                _note_progress(partition, params, request, end_offset)
            if params.replica_id not in partition.isr:
                result.has_more = True  # look again at its next fetch, whether or not anything changes here

    def _locate_elsewhere(
        self,
        partition: Partition,
        local: UnifiedLog,
        params: FetchParams,
        result: FetchPartitionResult,
        size_max: int,
        must_have_one: bool,
        is_first_read: bool,
    ) -> None:
        """The local log does not have the offset: it is in remote storage (KIP-405), or nowhere."""
        offset = result.request.fetch_offset
        is_of_the_log = result.log_start_offset <= offset < local.local_log_start_offset
        if self._remote_log is None or not is_of_the_log or not local.is_tiered:
            result.refuse(ErrorCode.offset_out_of_range)
            _slow_down_if_refused_again(partition, params, result)
            return
        isolation = params.isolation
        if isolation is FetchIsolation.LOG_END:  # replicas copy what leaders have on their disks
            result.error = ErrorCode.offset_moved_to_tiered_storage
            result.completes_fetch = True
            _slow_down_if_refused_again(partition, params, result)
            return
        is_committed_only = isolation is _TXN_COMMITTED
        limit = result.last_stable_offset if is_committed_only else result.high_watermark
        if offset < limit:
            result.has_more = True
            if is_first_read:
                result.remote_fetch = RemoteFetch(partition, offset, size_max, must_have_one, limit, is_committed_only)
        else:
            result.completes_fetch = offset > limit and partition.is_leader  # as in the local log
        if is_committed_only:
            result.aborted_transactions = ()

    # The bytes

    def read_bytes(
        self, results: list[FetchPartitionResult], on_read: Callable[[list[FetchPartitionResult]], None]
    ) -> None:
        """Fill in the records and call `on_read`: at once when the page cache has all of them."""
        cold: list[FetchPartitionResult] | None = None
        for result in results:
            file_slice = result.file_slice
            if file_slice is not None:
                data = read_cached(file_slice)
                if data is None:
                    cold = [*cold, result] if cold else [result]
                else:
                    result.records = data
                    result.file_slice = None
        if cold is None:
            on_read(results)
        else:
            _ColdRead(results, cold, on_read, self.answer_budget).start(self._disk)


class _ColdRead:
    """The reads of one fetch that wait for the disk, all in one visit to a thread."""

    def __init__(
        self,
        results: list[FetchPartitionResult],
        cold: list[FetchPartitionResult],
        on_read: Callable[[list[FetchPartitionResult]], None],
        budget: ByteBudget,
    ) -> None:
        self._budget = budget
        self._size_bytes = sum(result.size_bytes for result in results)
        self._results = results
        self._cold = cold
        self._on_read = on_read

    def start(self, disk: DiskExecutor) -> None:
        slices = [result.file_slice for result in self._cold if result.file_slice is not None]
        self._budget.acquire(self._size_bytes)
        disk.submit(_read_all, slices).add_done_callback(self._finished)

    def _finished(self, future: "asyncio.Future[list[bytes | bytearray | memoryview | KafkaError]]") -> None:
        self._budget.release(self._size_bytes)  # the socket counts what it does not take
        if future.cancelled():
            return
        for result, data in zip(self._cold, future.result(), strict=True):
            assert result.file_slice is not None
            if isinstance(data, KafkaError) or len(data) < result.file_slice.size:
                # Cut meanwhile (we follow somebody now), or the disk failed: the client asks again.
                log.warning("fetch_read_failed", partition=result.partition, error=str(data)[:200])
                result.refuse(ErrorCode.kafka_storage_error)
            else:
                result.records = data
                result.file_slice = None
        self._on_read(self._results)


def _read_all(slices: Sequence[FileSlice]) -> list[bytes | bytearray | memoryview | KafkaError]:
    """Runs in a thread; a failure belongs to its slice alone."""
    read_data: list[bytes | bytearray | memoryview | KafkaError] = []
    for file_slice in slices:
        try:
            read_data.append(read(file_slice))
        except KafkaError as error:
            read_data.append(error)
        except OSError as error:
            read_data.append(StorageFailure(str(error)))
    return read_data


def _refusal(partition: Partition, params: FetchParams, request: FetchPartition) -> ErrorCode | None:
    """Why this reader may not read here: another epoch than ours, no leader, no follower of ours."""
    epoch = request.current_leader_epoch
    if epoch >= 0 and epoch != partition.leader_epoch:
        return partition.leader_epoch_error(epoch)
    if params.fetch_only_leader and not partition.is_leader:
        return ErrorCode.not_leader_or_follower
    if params.is_from_follower:
        error = partition.followers.fetch_error(params.replica_id, params.replica_epoch, epoch)
        if (
            error is None
            and partition.leader_wal is not None
            and (epoch < 0 or params.version < FIRST_VERSION_WITH_LAST_FETCHED_EPOCH)
        ):
            # Records from a bucket are those of an epoch: who does not say both cannot be told that it has diverged.
            return ErrorCode.fenced_leader_epoch
        return error
    return None


def _note_progress(partition: Partition, params: FetchParams, request: FetchPartition, end_offset: int) -> None:
    partition.update_follower_fetch_state(
        params.replica_id,
        fetch_offset=request.fetch_offset,
        log_start_offset=request.log_start_offset,
        leader_log_end_offset=end_offset,
        replica_epoch=params.replica_epoch,
    )


# Followers that take their records from a bucket (KIP-1176)


def _gets_no_records(partition: Partition, params: FetchParams, request: FetchPartition, is_first_read: bool) -> bool:
    """Whether offsets are all a follower gets; decided at the first read of a fetch."""
    wal = partition.leader_wal
    if wal is None:
        request.bucket_fetch = None
        return False
    if is_first_read:
        is_served = wal.serves_records(params.replica_id, request.fetch_offset)
        request.bucket_fetch = None if is_served else BucketFetch.BEHIND
    return request.bucket_fetch is not None


def _answer_without_records(
    partition: Partition, local: UnifiedLog, params: FetchParams, result: FetchPartitionResult, is_first_read: bool
) -> None:
    """The answer carries no bytes that would end the follower's wait; a high watermark it has not heard of does.

    Kafka's answer has the one from before this fetch, and the bytes of the next bring the next soon.  Here it is that
    of after it, or a follower would hear of what its own fetch has committed one whole wait later.
    """
    request = result.request
    end_offset = local.log_end_offset
    if is_first_read:
        _note_progress(partition, params, request, end_offset)
        result.high_watermark = local.high_watermark
        result.last_stable_offset = local.last_stable_offset
    is_behind = request.fetch_offset < end_offset
    result.has_more = is_behind or params.replica_id not in partition.isr  # look again at its next fetch
    # Outside of a session it is not known what the follower has heard: it is told again and again, but not faster than
    # one that is behind.
    request.bucket_fetch = BucketFetch.BEHIND if is_behind or not request.is_remembered else BucketFetch.CAUGHT_UP
    result.completes_fetch = request.has_news(result.high_watermark, result.log_start_offset)


def _slow_down_if_refused_again(partition: Partition, params: FetchParams, result: FetchPartitionResult) -> None:
    """Nothing but a refusal ends the waits of such a follower: one that asks the same again must not make a loop."""
    if params.is_from_follower and partition.leader_wal is not None:
        result.request.bucket_fetch = BucketFetch.REFUSED
        result.completes_fetch = not result.request.is_refused_again


def _error(request: FetchPartition, error: ErrorCode, *, is_unresolved: bool = False) -> FetchPartitionResult:
    result = FetchPartitionResult(request, error)
    result.is_unresolved = is_unresolved
    result.completes_fetch = not is_unresolved
    return result


def _has_diverged(local: UnifiedLog, request: FetchPartition, result: FetchPartitionResult) -> bool:
    """Whether the reader's log is not a prefix of ours (KIP-595); the result then says where it stops being one."""
    epoch, end_offset = local.end_offset_for_epoch(request.last_fetched_epoch)
    if epoch < 0 or end_offset < 0 or request.fetch_offset < result.log_start_offset:
        result.refuse(ErrorCode.offset_out_of_range)
        return True
    if epoch < request.last_fetched_epoch or end_offset < request.fetch_offset:
        result.diverging_epoch = EpochEndOffset(epoch, end_offset)
        result.completes_fetch = True
        return True
    return False
