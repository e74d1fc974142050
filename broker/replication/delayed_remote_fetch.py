"""A fetch that waits for what it reads from remote storage (KIP-405; Kafka's DelayedRemoteFetch)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import structlog

from broker.common.byte_budget import ByteBudget
from broker.common.errors import ErrorCode, KafkaError
from broker.common.identifiers import TopicPartition
from broker.common.purgatory import DelayedOperation
from broker.log.unified_log import UnifiedLog
from broker.replication.fetch_params import FetchPartitionResult
from broker.replication.remote_log import RemoteFetch, RemoteLog, RemoteRecords

if TYPE_CHECKING:
    from broker.replication.remote_reads import RemoteReads

log = structlog.get_logger(__name__)

Reading = asyncio.Future[RemoteRecords]


class DelayedRemoteFetch(DelayedOperation):
    """Complete when all reads are done, or a partition that is read has left; listens to these partitions.

    `results` are of all partitions of the request.  Offsets stay as they were when it was located, and so do ranges of
    local files, whose bytes are read with the answer.  What was read of a log that was cut meanwhile is not told, nor
    what went wrong: the client comes back and gets what the log has now.  `budget` counts what the reads may bring, and
    then what they have brought: clients that fetch much and take little make others fetch in smaller steps.
    """

    __slots__ = ("_answer", "_budget", "_held_bytes", "_is_partition_lost", "_located", "_on_ready", "_reading")

    def __init__(
        self,
        results: Sequence[FetchPartitionResult],
        reads: "RemoteReads",
        remote_log: RemoteLog,
        budget: ByteBudget,
        *,
        on_ready: "Callable[[DelayedRemoteFetch], object]",
        answer: Callable[[], object],
    ) -> None:
        """`answer` is called once, when `results` have what was read."""
        super().__init__()
        self._budget = budget
        self._on_ready = on_ready
        self._answer = answer
        self._held_bytes = 0
        self._is_partition_lost = False
        self._located = [_Located(result) for result in results if result.file_slice is not None]
        self._reading: dict[Reading, _Located] = {}
        for result in reads.results:
            self._begin(result, remote_log)

    def _begin(self, result: FetchPartitionResult, remote_log: RemoteLog) -> None:
        fetch = _fetch_of(result)
        try:
            reading = remote_log.fetch(fetch)
        except KafkaError as error:  # too many wait already
            result.refuse(error.code)
            return
        self._reading[reading] = _Located(result)
        self._hold(fetch.size_max)
        fetch.partition.add_listener(self)
        reading.add_done_callback(self._on_read)

    def _on_read(self, reading: Reading) -> None:
        failure = None if reading.cancelled() else reading.exception()
        if self.is_completed:
            return
        size_bytes = 0 if reading.cancelled() or failure is not None else len(reading.result().records)
        self._hold(size_bytes - _fetch_of(self._reading[reading].result).size_max)
        if self.try_complete():
            self._on_ready(self)

    def _hold(self, more_bytes: int) -> None:
        self._held_bytes += more_bytes
        if more_bytes > 0:
            self._budget.acquire(more_bytes)
        elif more_bytes < 0:
            self._budget.release(-more_bytes)

    def _let_go(self) -> None:
        """Take back what is not done."""
        for reading, located in self._reading.items():
            reading.cancel()
            _fetch_of(located.result).partition.remove_listener(self)
        self._hold(-self._held_bytes)  # whoever sends the answer counts it

    def abandon(self) -> None:
        """The client has gone."""
        self.is_completed = True
        self._let_go()

    # As a DelayedOperation

    def try_complete(self) -> bool:
        return self._is_partition_lost or all(reading.done() for reading in self._reading)

    def on_complete(self, expired: bool) -> None:
        for reading, located in self._reading.items():
            if reading.done():  # else its records are empty, without an error: the client comes back for them
                _take(located, reading)
        for located in self._located:
            if not located.is_same_log:
                located.result.refuse(ErrorCode.kafka_storage_error)
        self._let_go()
        self._answer()

    # As a PartitionListener

    def on_high_watermark_updated(self, topic_partition: TopicPartition, offset: int) -> None: ...

    def on_becoming_follower(self, topic_partition: TopicPartition) -> None:
        """Followers read from remote storage as well."""

    def on_deleted(self, topic_partition: TopicPartition) -> None:
        self._is_partition_lost = True
        self._on_ready(self)


class _Located:
    """What a partition is answered, good as long as its log is not cut: other records may take their place."""

    __slots__ = ("_log", "_truncation_count", "result")

    def __init__(self, result: FetchPartitionResult) -> None:
        self.result = result
        self._log = _log_of(result)
        self._truncation_count = None if self._log is None else self._log.truncation_count

    @property
    def is_same_log(self) -> bool:
        now = _log_of(self.result)
        return now is not None and now is self._log and now.truncation_count == self._truncation_count


def _take(located: _Located, reading: Reading) -> None:
    """What was read, or why nothing was, becomes the partition's answer."""
    result, fetch = located.result, _fetch_of(located.result)
    local = fetch.partition.local_log
    if local is not None and not local.log_start_offset <= fetch.offset <= local.log_end_offset:
        result.refuse(ErrorCode.offset_out_of_range)  # deleted meanwhile, or the log begins anew
        return
    if not located.is_same_log:
        return
    failure = KafkaError("Remote storage has dropped the read") if reading.cancelled() else reading.exception()
    if failure is not None:
        if not isinstance(failure, KafkaError):
            log.error("remote_fetch_failed", partition=str(fetch.partition.topic_partition), exc_info=failure)
        result.refuse(failure.code if isinstance(failure, KafkaError) else ErrorCode.unknown_server_error)
        return
    found = reading.result()
    if found.aborted is not None:
        result.aborted_transactions = found.aborted
    if found.next_offset is None:
        result.records = found.records
        result.size_bytes = len(found.records)
    else:
        _go_on_locally(result, fetch, found.next_offset)


def _go_on_locally(result: FetchPartitionResult, fetch: RemoteFetch, offset: int) -> None:
    try:
        found = fetch.partition.log.read(
            offset,
            fetch.size_max,
            fetch.upper_bound_offset,
            min_one_batch=fetch.min_one_message,
            with_aborted=fetch.only_committed,
        )
    except KafkaError:  # the local log begins later now, or does not have it: the client comes back
        return
    result.file_slice = found.file_slice
    result.size_bytes = found.size_bytes
    if found.aborted_transactions is not None:
        result.aborted_transactions = found.aborted_transactions


def _fetch_of(result: FetchPartitionResult) -> RemoteFetch:
    assert result.remote_fetch is not None, result
    return result.remote_fetch


def _log_of(result: FetchPartitionResult) -> UnifiedLog | None:
    partition = result.request.hosted
    return None if partition is None else partition.local_log
