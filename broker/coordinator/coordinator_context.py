"""CoordinatorContext: one shard with its log position, its timers and the answers that wait for it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import structlog

from broker.common.clock import Clock
from broker.common.errors import KafkaError, NotCoordinatorError
from broker.common.identifiers import NO_PRODUCER_ID, TopicPartition
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.coordinator.coordinator_errors import coordinator_error
from broker.coordinator.coordinator_shard import CoordinatorShard
from broker.coordinator.coordinator_timer import CoordinatorTimer
from broker.coordinator.deferred_replies import DeferredReplies
from broker.coordinator.partition_writer import PartitionWriter
from broker.coordinator.shard_state import VALID_PREVIOUS, ShardState
from broker.records.compression import CompressionType
from broker.records.memory_records_builder import records_batch

log = structlog.get_logger(__name__)

S = TypeVar("S", bound=CoordinatorShard[Any])

RECORD_OVERHEAD_BYTES: Final = 32  # lengths, deltas and the record's share of the batch header, rounded up
BATCH_FILL: Final = 0.5  # split batches stay well below the limit: the estimate is rough and nothing is gained above


class CoordinatorContext(Generic[S]):
    """The `ShardLog` of its shard.

    `epoch` is the leader epoch in which we coordinate.  Invariant while active: the log ends at
    `last_written_offset`, because nobody else appends; an append that finds otherwise asks for a reload.
    `loaded_offset` is where the log ended when it was loaded, and `log_bytes` what the next load has to read, from the
    log start on.  `on_lost` is called when there is no replica here any more for a reason no election tells.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        writer: PartitionWriter,
        clock: Clock,
        config: ConfigHolder[BrokerConfig],
        create_shard: Callable[["CoordinatorContext[S]"], S],
        on_diverged: Callable[["CoordinatorContext[S]"], None],
        on_lost: Callable[["CoordinatorContext[S]"], None],
    ) -> None:
        self.topic_partition = topic_partition
        self.epoch = -1
        self.state = ShardState.INITIAL
        self.timer = CoordinatorTimer()
        self.deferred = DeferredReplies()
        self.last_written_offset = 0
        self.loaded_offset = 0
        self.log_bytes = 0
        self.load_failure_count = 0
        self._writer = writer
        self._clock = clock
        self._config = config
        self._create_shard = create_shard
        self._on_diverged = on_diverged
        self._on_lost = on_lost
        self._is_appending = False
        self._is_listening = False
        self._high_watermark = 0
        self.shard = create_shard(self)

    def transition_to(self, state: ShardState) -> None:
        assert self.state in VALID_PREVIOUS[state], f"{self.topic_partition}: {self.state} cannot become {state}"
        self.state = state

    def begin_loading(self) -> None:
        """Start from nothing; requests are refused with COORDINATOR_LOAD_IN_PROGRESS from now on."""
        self.transition_to(ShardState.LOADING)
        self.deferred = DeferredReplies()
        self.shard = self._create_shard(self)
        self._high_watermark = 0
        if not self._is_listening:
            self._writer.register_listener(self.topic_partition, self._on_high_watermark, self._on_replica_lost)
            self._is_listening = True
        self._on_high_watermark(self._writer.high_watermark(self.topic_partition))

    def activate(self, log_end_offset: int, log_bytes: int) -> None:
        """The log has been replayed to its end: requests are served, and members' timers run."""
        self.last_written_offset = self.loaded_offset = log_end_offset
        self.log_bytes = log_bytes
        self.load_failure_count = 0
        self.transition_to(ShardState.ACTIVE)
        self.shard.on_loaded()

    def unload(self, state: ShardState) -> None:
        """Become `state`, FAILED or CLOSED, and answer everybody who waits with NOT_COORDINATOR."""
        self.transition_to(state)
        if self._is_listening:
            self._writer.unregister_listener(self.topic_partition, self._on_high_watermark)
            self._is_listening = False
        self.timer.cancel_all()
        self.deferred.fail_all(NotCoordinatorError(f"{self.topic_partition} has another coordinator"))
        self.shard.on_unloaded()
        self.timer.cancel_all()  # groups that were told of the failed writes have set new ones

    def append(self, records: Sequence[Any], *, is_replayed: bool = True) -> int:
        if self.state is not ShardState.ACTIVE:
            raise NotCoordinatorError(f"{self.topic_partition} is {self.state.value}")
        now_ms = self._clock.now_ms()
        batch = records_batch(
            *((now_ms, *self.shard.encode(record)) for record in records),
            compression=CompressionType(self._config.current.offsets_topic_compression_codec),
        )
        size_bytes = len(batch)
        base_offset = self._append_batch(batch, len(records))
        self.log_bytes += size_bytes
        if is_replayed:
            self._replay(base_offset, records)
        self._apply_high_watermark()
        return base_offset + len(records)

    def append_split(self, records: Sequence[Any], *, is_replayed: bool = True) -> int:
        limit_bytes = self._writer.config(self.topic_partition).max_message_bytes * BATCH_FILL
        part: list[Any] = []
        part_bytes = 0
        end_offset = self.last_written_offset
        for record in records:
            key, value = self.shard.encode(record)
            record_bytes = len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES
            if part and part_bytes + record_bytes > limit_bytes:
                end_offset = self.append(part, is_replayed=is_replayed)
                part, part_bytes = [], 0
            part.append(record)
            part_bytes += record_bytes
        return self.append(part, is_replayed=is_replayed) if part else end_offset

    def when_committed(self, end_offset: int, on_committed: Callable[[KafkaError | None], None]) -> None:
        self.deferred.add(end_offset, self._config.current.offsets_commit_timeout_ms, on_committed)

    async def wait_committed(self, end_offset: int) -> None:
        if end_offset <= self.deferred.committed_offset:
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def release(error: KafkaError | None) -> None:
            if waiting.done():
                return
            if error is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(error)

        self.when_committed(end_offset, release)
        await waiting

    def _append_batch(self, batch: bytearray, record_count: int) -> int:
        self._is_appending = True
        try:
            end_offset = self._writer.append(self.topic_partition, batch)
        except KafkaError as error:
            self._is_appending = False
            self._apply_high_watermark()
            raise coordinator_error(error) from error
        self._is_appending = False
        base_offset = end_offset - record_count
        if base_offset != self.last_written_offset:
            log.warning(
                "coordinator_log_diverged",
                partition=str(self.topic_partition),
                expected=self.last_written_offset,
                base_offset=base_offset,
            )
            self._on_diverged(self)
            raise NotCoordinatorError(f"{self.topic_partition} was appended to by somebody else")
        self.last_written_offset = end_offset
        return base_offset

    def _replay(self, base_offset: int, records: Sequence[Any]) -> None:
        try:
            for index, record in enumerate(records):
                self.shard.replay(base_offset + index, NO_PRODUCER_ID, record)
        except Exception:  # the log has the records and memory has some of them: only the log can be believed
            self._on_diverged(self)
            raise

    def _on_high_watermark(self, offset: int) -> None:
        self._high_watermark = max(self._high_watermark, offset)
        if not self._is_appending:  # in the middle of an append its records are not in memory yet
            self._apply_high_watermark()

    def _on_replica_lost(self) -> None:
        self._is_listening = False
        self._on_lost(self)

    def _apply_high_watermark(self) -> None:
        if self.state in (ShardState.LOADING, ShardState.ACTIVE):
            self.shard.on_committed(self._high_watermark)
        self.deferred.commit(self._high_watermark)
