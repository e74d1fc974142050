"""CoordinatorRuntime: a shard per partition of an internal topic that this broker leads."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

import structlog

from broker.common.clock import Clock
from broker.common.errors import CoordinatorLoadInProgressError, NotCoordinatorError
from broker.common.identifiers import TopicPartition
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.coordinator.coordinator_context import CoordinatorContext
from broker.coordinator.coordinator_loader import CoordinatorLoader
from broker.coordinator.coordinator_shard import CoordinatorShard
from broker.coordinator.partition_writer import PartitionWriter
from broker.coordinator.shard_state import ShardState
from broker.coordinator.snapshot_writer import LOG_BYTES_MAX, SnapshotWriter

log = structlog.get_logger(__name__)

S = TypeVar("S", bound=CoordinatorShard[Any])

# A load that failed is tried again here, because on one node no other broker will be elected.  The first retry comes
# after a disk's hiccup; the cap keeps an unreadable log from being read all day.
LOAD_RETRY_FIRST_MS: Final = 10_000
LOAD_RETRY_MAX_MS: Final = 300_000


class RuntimeMetrics(Protocol):
    """What the runtime reports."""

    def partition_loaded(self, seconds: float) -> None: ...


class CoordinatorRuntime(Generic[S]):
    """Loads shards on election, unloads them on resignation, and finds the one for a request.

    Everything a shard does happens in one run of the event loop, so its operations, timers and elections follow one
    another by themselves.  Only loading and snapshots wait, and they look again after every wait.
    """

    def __init__(
        self,
        topic: str,
        writer: PartitionWriter,
        clock: Clock,
        config: ConfigHolder[BrokerConfig],
        create_shard: Callable[[CoordinatorContext[S]], S],
        metrics: RuntimeMetrics,
        *,
        log_bytes_max: int = LOG_BYTES_MAX,
    ) -> None:
        self._topic = topic
        self._writer = writer
        self._clock = clock
        self._config = config
        self._create_shard = create_shard
        self._metrics = metrics
        self._contexts: dict[int, CoordinatorContext[S]] = {}
        self._loader = CoordinatorLoader(writer, config)
        self._snapshots: SnapshotWriter[S] = SnapshotWriter(writer, log_bytes_max)
        self._tasks = BackgroundTasks(f"coordinator-{topic}")

    def shard(self, partition: int) -> S:
        """The active shard; NotCoordinatorError or CoordinatorLoadInProgressError otherwise."""
        context = self._contexts.get(partition)
        if context is None or context.state not in (ShardState.ACTIVE, ShardState.LOADING):
            raise NotCoordinatorError(f"not the coordinator of {self._topic}-{partition}")
        if context.state is ShardState.LOADING:
            raise CoordinatorLoadInProgressError(f"{self._topic}-{partition} is loading")
        return context.shard

    def active_shards(self) -> Iterator[S]:
        """In the order of partitions."""
        for partition in sorted(self._contexts):
            if self._contexts[partition].state is ShardState.ACTIVE:
                yield self._contexts[partition].shard

    def shards(self) -> Iterator[S]:
        """Active or loading, in the order of partitions."""
        for partition in sorted(self._contexts):
            if self._contexts[partition].state in (ShardState.ACTIVE, ShardState.LOADING):
                yield self._contexts[partition].shard

    @property
    def is_loading(self) -> bool:
        return any(context.state is ShardState.LOADING for context in self._contexts.values())

    def count(self, state: ShardState) -> int:
        """How many shards are in the state."""
        return sum(context.state is state for context in self._contexts.values())

    def on_election(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition in `leader_epoch`; older news is ignored."""
        context = self._contexts.get(partition)
        if context is None:
            context = self._contexts[partition] = CoordinatorContext(
                TopicPartition(self._topic, partition),
                self._writer,
                self._clock,
                self._config,
                self._create_shard,
                self._reload,
                self._lost,
            )
        if leader_epoch <= context.epoch:
            return
        context.epoch = leader_epoch
        if context.state in (ShardState.INITIAL, ShardState.FAILED):
            self._start_loading(context)

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None:
        """Another broker leads since `leader_epoch`; None: the partition is gone from here."""
        context = self._contexts.get(partition)
        if context is None or (leader_epoch is not None and leader_epoch <= context.epoch):
            return
        del self._contexts[partition]
        context.unload(ShardState.CLOSED)
        tell = log.info if context.last_written_offset else log.debug
        tell("coordinator_unloaded", partition=str(context.topic_partition), leader_epoch=leader_epoch)

    async def shutdown(self) -> None:
        """Unload everything; parked clients are told to find another coordinator."""
        for partition in list(self._contexts):
            self.on_resignation(partition, None)
        await self._tasks.cancel_all()

    def _start_loading(self, context: CoordinatorContext[S]) -> None:
        try:
            context.begin_loading()
        except Exception:  # the replica is not there or not readable: the same as a load that fails later
            log.exception("coordinator_load_failed", partition=str(context.topic_partition))
            self._loading_failed(context)
            return
        self._tasks.start(f"load-{context.topic_partition.partition}", self._load(context, context.shard))

    async def _load(self, context: CoordinatorContext[S], shard: S) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            progress = await self._loader.load(context, lambda: self._is_loading(context, shard))
        except Exception as error:  # a record we cannot read or the disk: this shard fails, the others live
            if self._is_loading(context, shard):
                log.error("coordinator_load_failed", partition=str(context.topic_partition), exc_info=error)
                self._loading_failed(context)
            return
        if not self._is_loading(context, shard):
            return
        context.activate(progress.end_offset, progress.size_bytes)
        self._metrics.partition_loaded(loop.time() - started)
        tell = log.info if progress.record_count else log.debug  # a new topic has fifty partitions with nothing in them
        tell(
            "coordinator_loaded",
            partition=str(context.topic_partition),
            leader_epoch=context.epoch,
            record_count=progress.record_count,
            seconds=round(loop.time() - started, 3),
        )
        self._tasks.start(f"snapshot-{context.topic_partition.partition}", self._keep_bounded(context, shard))

    async def _keep_bounded(self, context: CoordinatorContext[S], shard: S) -> None:
        await self._snapshots.run(context, lambda: self._is_active(context, shard))

    def _is_loading(self, context: CoordinatorContext[S], shard: S) -> bool:
        return context.shard is shard and context.state is ShardState.LOADING

    def _is_active(self, context: CoordinatorContext[S], shard: S) -> bool:
        return context.shard is shard and context.state is ShardState.ACTIVE

    def _loading_failed(self, context: CoordinatorContext[S]) -> None:
        context.unload(ShardState.FAILED)
        delay_ms = min(LOAD_RETRY_FIRST_MS << min(context.load_failure_count, 10), LOAD_RETRY_MAX_MS)
        context.load_failure_count += 1
        context.timer.schedule("load-retry", delay_ms, lambda: self._retry_loading(context))

    def _retry_loading(self, context: CoordinatorContext[S]) -> None:
        if context.state is ShardState.FAILED:
            self._start_loading(context)

    def _lost(self, context: CoordinatorContext[S]) -> None:
        """The replica has gone from under the shard.  If it is deleted the next image says so; if not, it may come
        back without an election, and then without us as its listeners."""
        if context.state in (ShardState.LOADING, ShardState.ACTIVE):
            log.warning("coordinator_lost_its_log", partition=str(context.topic_partition))
            self._loading_failed(context)

    def _reload(self, context: CoordinatorContext[S]) -> None:
        """Memory and log differ: only the log can be believed."""
        context.unload(ShardState.FAILED)
        self._start_loading(context)
