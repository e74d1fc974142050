"""ReplicaManager: the partitions of this broker, and the requests that reach them (Kafka's ReplicaManager).

It finds the partitions and puts their results together; what happens in a partition is Partition's business.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog

from broker.common.buffers import MutableBuffer
from broker.common.byte_budget import ByteBudget
from broker.common.clock import Clock
from broker.common.disk import DiskExecutor
from broker.common.errors import (
    ErrorCode,
    InvalidTopicError,
    KafkaError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    PolicyViolationError,
    StorageFailure,
)
from broker.common.identifiers import INTERNAL_TOPICS, NO_EPOCH, TopicPartition
from broker.common.purgatory import DelayedOperation, Purgatory
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.log.log_append import ActiveProducer, LogAppendResult
from broker.log.log_manager import LogManager
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.records.append_origin import AppendOrigin
from broker.records.record_batch import RecordBatch
from broker.replication.action_queue import ActionQueue
from broker.replication.alter_partition_manager import AlterPartitionManager
from broker.replication.append_request import AppendRequest
from broker.replication.delayed_delete_records import DelayedDeleteRecords, DeleteRecordsResult, OnDeleted
from broker.replication.delayed_fetch import DelayedFetch, parking_ms
from broker.replication.delayed_produce import DelayedProduce
from broker.replication.delayed_remote_fetch import DelayedRemoteFetch
from broker.replication.fetch_params import (
    FetchParams,
    FetchPartition,
    FetchPartitionResult,
    LeaderHint,
)
from broker.replication.fetch_reader import FetchReader
from broker.replication.fetch_source import FetchSource, RequestedPartitions
from broker.replication.follower_fetchers import FollowerFetchers, NoFetchers
from broker.replication.group_commit import ACKS_ALL, GroupCommit
from broker.replication.hosted_partitions import HostedPartitions
from broker.replication.offset_lookup import (
    EpochEnd,
    ListedOffset,
    OffsetQuery,
    RemoteOffsetLookup,
    last_offset_for_leader_epoch,
    list_offset,
)
from broker.replication.partition import Partition
from broker.replication.partition_context import IsrStats, PartitionContext, PartitionListener
from broker.replication.remote_fetches import OnFetched, RemoteFetches
from broker.replication.remote_log import RemoteLog
from broker.replication.remote_offset_lookups import RemoteOffsetLookups
from broker.replication.replica_selector import ReplicaSelector
from broker.replication.topic_stats import BrokerTopicStats, TopicStats

log = structlog.get_logger(__name__)

REOPEN_OFFLINE_SECONDS: Final = 1.0
VALID_ACKS: Final = frozenset({-1, 0, 1})


class LogDescription(NamedTuple):
    """One log of this broker, as DescribeLogDirs tells it."""

    topic_partition: TopicPartition
    size_bytes: int
    offset_lag: int


def monotonic_ms() -> int:
    """The loop's time: lag and ages must not follow jumps of the wall clock."""
    return int(asyncio.get_running_loop().time() * 1000)


class ReplicaManager:
    """One per broker.  Everything happens in the event loop; `running()` owns the only tasks."""

    def __init__(
        self,
        *,
        local_broker_id: int,
        config: ConfigHolder[BrokerConfig],
        log_manager: LogManager,
        metadata_cache: MetadataCache,
        disk: DiskExecutor,
        clock: Clock,
        alter_partition_manager: AlterPartitionManager,
        broker_epoch: Callable[[], int] = lambda: NO_EPOCH,
        monotonic_ms: Callable[[], int] = monotonic_ms,
        replica_selector: ReplicaSelector | None = None,
        is_fenced: Callable[[], bool] = lambda: False,
        answer_budget: ByteBudget | None = None,
        fetchers: FollowerFetchers | None = None,
        remote_log: RemoteLog | None = None,
    ) -> None:
        """`is_fenced` asks whether this broker must refuse to lead: clients are then sent to look for the leader.

        `answer_budget` bounds what fetches read ahead of their clients; without one nothing does.
        """
        self.local_broker_id = local_broker_id
        self.topic_stats = BrokerTopicStats()
        self.produce_purgatory: Purgatory[DelayedOperation] = Purgatory("Produce")
        self.fetch_purgatory: Purgatory[DelayedOperation] = Purgatory("Fetch")
        self.delete_records_purgatory: Purgatory[Partition] = Purgatory("DeleteRecords")
        self.expired_fetches = {"consumer": 0, "follower": 0}
        self.clock = clock
        self._disk = disk
        self._config = config
        self._actions = ActionQueue()
        self._fetchers = fetchers or NoFetchers()
        self._group_commit = GroupCommit(self._actions, is_fenced)
        self._tasks = BackgroundTasks("replica-manager")
        self._hosted = HostedPartitions(
            local_broker_id=local_broker_id,
            log_manager=log_manager,
            metadata_cache=metadata_cache,
            topic_stats=self.topic_stats,
            before_stop=self._group_commit.commit_partition,
            fetchers=self._fetchers,
        )
        self.remote_offset_lookups = RemoteOffsetLookups(
            remote_log,
            lookup_error=self.lookup_error,
            timeout_ms=lambda: config.current.remote_list_offsets_request_timeout_ms,
        )
        self._reader = FetchReader(self._hosted, disk, replica_selector, is_fenced, answer_budget, remote_log)
        self.remote_fetches = RemoteFetches(
            remote_log, self._reader, self._actions, max_wait_ms=lambda: config.current.remote_fetch_max_wait_ms
        )
        self.context = PartitionContext(
            local_broker_id=local_broker_id,
            config=config,
            metadata_cache=metadata_cache,
            alter_partition_manager=alter_partition_manager,
            create_log=self._hosted.create_log,
            monotonic_ms=monotonic_ms,
            broker_epoch=broker_epoch,
            on_delete_records_progress=self._on_delete_records_progress,
        )

    # Which partitions are here

    def partitions(self) -> Iterator[Partition]:
        return iter(self._hosted)

    def hosted_partition(self, topic_partition: TopicPartition) -> Partition | None:
        """The partition if a replica of it is here, leader or not, its directory online or not."""
        return self._hosted.get(topic_partition)

    def partition(self, topic_partition: TopicPartition) -> Partition:
        """The partition that is here and has its log.  KafkaError: 56 offline, 6 elsewhere, 3 unknown."""
        return self._hosted.partition(topic_partition)

    def lookup_error(self, topic_partition: TopicPartition) -> ErrorCode:
        """What to answer about a partition that is not usable here; `none` for one that is."""
        return self._hosted.lookup_error(topic_partition)

    def leader_hint(self, topic_partition: TopicPartition) -> LeaderHint:
        """Who leads, for a client that asked the wrong broker (KIP-951)."""
        return self._hosted.leader_hint(topic_partition)

    def add_partition_listener(self, topic_partition: TopicPartition, listener: PartitionListener) -> bool:
        """Follow a partition until it leaves; False when it is not here (Kafka's maybeAddListener)."""
        partition = self._hosted.get(topic_partition)
        if partition is None or partition.is_offline:
            return False
        partition.add_listener(listener)
        return True

    def remove_partition_listener(self, topic_partition: TopicPartition, listener: PartitionListener) -> None:
        partition = self._hosted.get(topic_partition)
        if partition is not None:
            partition.remove_listener(listener)

    # What is measured

    @property
    def isr_stats(self) -> IsrStats:
        return self.context.isr_stats

    @property
    def purgatories(self) -> tuple[Purgatory[Any], ...]:
        return (
            self.produce_purgatory,
            self.fetch_purgatory,
            self.delete_records_purgatory,
            self.remote_fetches.purgatory,
            self.remote_offset_lookups.purgatory,
        )

    @property
    def topic_counts(self) -> Mapping[str, TopicStats]:
        """Counts by topic; what was asked for topics that are not here stands under the empty name."""
        return {**self.topic_stats.topics, "": self.topic_stats.unknown}

    # Produce

    def append_records(self, request: AppendRequest, entries: Sequence[tuple[TopicPartition, RecordBatch]]) -> None:
        """Append one batch to each partition and answer as the request demands, results in the order of entries.

        The bytes of the batches must be owned by the caller and are patched in place; small ones are written at the
        end of this turn of the loop, together with all others of their partition, and `on_complete` is called after
        that.
        """
        if not entries:
            request.on_complete([])
            return
        request.begin(len(entries), self._on_appended)
        find, stage = self._hosted.get, self._group_commit.append
        are_acks_valid = request.required_acks in VALID_ACKS
        for index, (topic_partition, batch) in enumerate(entries):
            partition = find(topic_partition)
            if (
                partition is None
                or partition.is_offline
                or topic_partition.topic in INTERNAL_TOPICS
                or not are_acks_valid
            ):
                refusal = self._append_refusal(request, topic_partition, partition)
                if refusal or partition is None:
                    request.refuse_one(index, topic_partition, refusal)
                    continue
            stage(partition, batch, request, index)

    def _append_refusal(
        self, request: AppendRequest, topic_partition: TopicPartition, partition: Partition | None
    ) -> ErrorCode:
        if request.required_acks not in VALID_ACKS:
            return ErrorCode.invalid_required_acks
        if topic_partition.topic in INTERNAL_TOPICS and not request.allows_internal_topics:
            return ErrorCode.invalid_topic_exception
        if partition is None or partition.is_offline:
            self.topic_stats.find(topic_partition.topic).total_produce_requests += 1
            return self.lookup_error(topic_partition)
        return ErrorCode.none

    def _on_appended(self, request: AppendRequest) -> None:
        """Everything is written or refused: answer, or wait for the high watermarks."""
        results, on_complete = request.results, request.on_complete
        if request.required_acks != ACKS_ALL:
            on_complete(results)
            return
        unsettled = []
        for index, partition in enumerate(request.partitions):
            if partition is None:
                continue
            if not partition.is_leader or partition.local_log is None:  # lost since its own append of this turn
                lost = self.lookup_error(partition.topic_partition)
                results[index].error = lost or ErrorCode.not_leader_or_follower
            elif partition.local_log.high_watermark < results[index].required_offset:
                unsettled.append(index)
        if not unsettled:
            on_complete(results)
            return
        operation = DelayedProduce(results, unsettled, on_complete, self._complete_produce_later)
        for index in unsettled:
            partition = request.partitions[index]
            assert partition is not None
            partition.park_append(results[index].required_offset, operation, index)
        self.produce_purgatory.complete_or_park(operation, (operation,), request.timeout_ms)

    def _complete_produce_later(self, operation: DelayedProduce) -> None:
        self._actions.add(lambda: self.produce_purgatory.check(operation))

    def append_now(
        self,
        topic_partition: TopicPartition,
        batch: MutableBuffer,
        origin: AppendOrigin = AppendOrigin.COORDINATOR,
        *,
        required_acks: int = ACKS_ALL,
    ) -> LogAppendResult:
        """Append one batch before returning; whether it is committed is for the high watermark to tell.

        KafkaError when the partition cannot take it; what the log says about the batch is in the result.
        """
        partition = self.partition(topic_partition)
        if partition.staged:
            self._group_commit.commit_partition(partition)
        if not partition.is_leader:
            raise NotLeaderOrFollowerError(f"Broker is not the leader of {topic_partition}")
        if required_acks == ACKS_ALL and partition.is_under_min_isr:
            raise NotEnoughReplicasError(
                f"The in-sync replicas of {topic_partition}, {list(partition.isr)}, are fewer than min.insync.replicas "
                f"{partition.effective_min_isr}"
            )
        size_bytes = len(batch)
        result = partition.append_records_to_leader((RecordBatch.parse(batch),), origin)[0]
        if result.error is None:
            stats = partition.topic_stats
            stats.bytes_in += size_bytes
            stats.messages_in += result.last_offset - result.base_offset + 1
        return result

    # Fetch

    def fetch(
        self,
        params: FetchParams,
        partitions: FetchSource | list[FetchPartition],
        on_complete: OnFetched,
    ) -> DelayedFetch | DelayedRemoteFetch | None:
        """Read, and answer now or once there is enough to answer; returns the operation when it is parked."""
        source = RequestedPartitions(partitions) if isinstance(partitions, list) else partitions
        results, remote = self._reader.locate(params, source.partitions_to_read(), is_first_read=True)
        if remote is not None and remote.results:
            return self.remote_fetches.begin(results, remote, on_complete)
        if params.max_wait_ms <= 0 or self._can_answer(params, source, results):
            self._answer(results, on_complete)
            return None
        operation = DelayedFetch(
            params,
            source,
            on_ready=self._complete_fetch_later,
            read_again=lambda parked, expired: self._read_again(parked, expired, on_complete),
            held_back=() if remote is None else remote.held_back,
        )
        operation.start_from(results)
        source.park(operation)
        wait_ms = parking_ms(params, results, self._config.current.remote_wal_fetch_lag_wait_ms)
        self.fetch_purgatory.complete_or_park(operation, (operation,), wait_ms)
        return operation

    def _can_answer(self, params: FetchParams, source: FetchSource, results: Sequence[FetchPartitionResult]) -> bool:
        left_bytes = self._reader.left_bytes(params)
        min_bytes = params.min_bytes
        if min_bytes > left_bytes:  # waiting would not bring more; and for nothing at all nobody is answered
            min_bytes = max(left_bytes, 1)
        size_bytes = unresolved = 0
        for result in results:
            if result.completes_fetch:
                return True
            size_bytes += result.size_bytes
            unresolved += result.is_unresolved
        return size_bytes >= min_bytes or unresolved == len(source)

    def _complete_fetch_later(self, operation: DelayedFetch) -> None:
        self._actions.add(lambda: self.fetch_purgatory.check(operation))

    def _read_again(self, operation: DelayedFetch, expired: bool, on_complete: OnFetched) -> None:
        if expired:
            self.expired_fetches["follower" if operation.params.is_from_follower else "consumer"] += 1
        results, _ = self._reader.locate(operation.params, operation.source.partitions_to_read(), is_first_read=False)
        self._answer(results, on_complete)

    def _answer(self, results: list[FetchPartitionResult], on_complete: OnFetched) -> None:
        self._reader.read_bytes(results, on_complete)

    def count_bytes_out(self, results: Sequence[FetchPartitionResult], replica_id: int) -> None:
        """Count what is about to be sent to a follower, or to a consumer (a negative id)."""
        for result in results:
            partition = result.request.hosted
            if partition is not None and result.size_bytes:
                if replica_id >= 0:
                    partition.followers.count_sent(replica_id, result.size_bytes)
                else:
                    partition.topic_stats.bytes_out += result.size_bytes

    def cancel_fetch(self, operation: DelayedFetch | DelayedRemoteFetch) -> None:
        """The client has gone."""
        if isinstance(operation, DelayedRemoteFetch):
            self.remote_fetches.cancel(operation)
            return
        operation.is_completed = True
        operation.source.unpark(operation)
        self.fetch_purgatory.cancel(operation)

    # Offsets

    def list_offset(self, topic_partition: TopicPartition, query: OffsetQuery) -> ListedOffset | RemoteOffsetLookup:
        """The answer, or what `remote_offset_lookups` is to wait for.  KafkaError."""
        return list_offset(self.partition(topic_partition), query)

    def last_offset_for_leader_epoch(
        self, topic_partition: TopicPartition, leader_epoch: int, *, current_leader_epoch: int, replica_id: int
    ) -> EpochEnd:
        return last_offset_for_leader_epoch(
            self.partition(topic_partition),
            leader_epoch,
            current_leader_epoch=current_leader_epoch,
            replica_id=replica_id,
        )

    # DeleteRecords

    def delete_records(self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int, on_complete: OnDeleted) -> None:
        """Move log start offsets up, then answer when every alive replica has followed."""
        results = [self._delete_records_of(topic_partition, offset) for topic_partition, offset in offsets.items()]
        operation = DelayedDeleteRecords(results, on_complete, self.lookup_error)
        keys = [result.partition for result in results if result.partition is not None]
        self.delete_records_purgatory.complete_or_park(operation, keys, timeout_ms)

    def _delete_records_of(self, topic_partition: TopicPartition, offset: int) -> DeleteRecordsResult:
        try:
            if topic_partition.topic in INTERNAL_TOPICS:
                raise InvalidTopicError(f"Cannot delete records of internal topic {topic_partition.topic}")
            partition = self.partition(topic_partition)
            if not partition.leader_log().config.is_delete:
                raise PolicyViolationError(f"Cannot delete records of {topic_partition}: its cleanup.policy is compact")
            required_offset = partition.delete_records_on_leader(offset)
        except KafkaError as error:
            return DeleteRecordsResult(topic_partition, error.code)
        return DeleteRecordsResult(topic_partition, partition=partition, required_offset=required_offset)

    def _on_delete_records_progress(self, partition: Partition) -> None:
        self._actions.add(lambda: self.delete_records_purgatory.check(partition))

    # Descriptions

    def describe_logs(self) -> Iterator[LogDescription]:
        """Every online log with its size and how far its high watermark is behind (DescribeLogDirs)."""
        for partition in self._hosted:
            local = partition.local_log
            if local is not None:
                lag = max(local.log_end_offset - local.high_watermark, 0)
                yield LogDescription(partition.topic_partition, local.size_bytes, lag)

    def active_producers(self, topic_partition: TopicPartition) -> list[ActiveProducer]:
        """The producers a leader knows (DescribeProducers).  KafkaError."""
        return self.partition(topic_partition).leader_log().active_producers()

    @property
    def log_directory(self) -> Path:
        """The directory in full, as clients are told of it."""
        return self._config.current.log_dir.absolute()

    async def volume_bytes(self) -> tuple[int, int]:
        """Size of the volume under the log directory, and what is free on it.  StorageFailure."""
        return await self._disk.run(_volume_bytes, self.log_directory)

    # Metadata

    def apply_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Become leader or follower, and drop what has left, as a delta says.  `image` is already published."""
        self._hosted.apply(delta, image, self.context)
        if delta.changed_brokers and len(self.delete_records_purgatory):
            for partition in self._hosted:
                if partition.delete_records_waiting:  # a replica that died is not waited for any longer
                    self._on_delete_records_progress(partition)

    def set_stray_logs_aside(self, image: MetadataImage) -> None:
        """Set the logs of partitions aside that the cluster no longer places here: once, at start, with an image that
        is not behind what this broker had seen before."""
        self._hosted.set_stray_logs_aside(image)

    # Tasks

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ReplicaManager"]:
        """Owns the ISR timer, and the one that tries offline partitions again."""
        async with self._tasks:
            self._tasks.start("isr-expiration", self._shrink_isrs_regularly())
            self._tasks.start("reopen-offline", self._reopen_offline_regularly())
            yield self

    async def _reopen_offline_regularly(self) -> None:
        while True:
            await asyncio.sleep(REOPEN_OFFLINE_SECONDS)
            self.reopen_offline()

    def reopen_offline(self) -> None:
        """Try again to open the partitions whose logs the disk refused."""
        self._hosted.reopen_offline(self.context.metadata_cache.image, self.context)
        self._fetchers.retry_failed()

    async def _shrink_isrs_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._config.current.replica_lag_time_max_ms / 2 / 1000)
            self.maybe_shrink_isrs()

    def maybe_shrink_isrs(self) -> None:
        for partition in list(self._hosted):
            if partition.remote_replicas and not partition.is_offline:
                partition.maybe_shrink_isr()


def _volume_bytes(directory: Path) -> tuple[int, int]:
    try:
        usage = shutil.disk_usage(directory)
    except OSError as error:
        raise StorageFailure(f"{directory}: {error.strerror or error}") from error
    return usage.total, usage.free
