"""CoordinatorLoader: replays the log of a partition into its shard."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from broker.common.errors import CorruptMessageError
from broker.common.identifiers import NO_PRODUCER_ID
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.coordinator.coordinator_context import CoordinatorContext
from broker.coordinator.partition_writer import PartitionWriter
from broker.records.control_record import EndTransactionMarker
from broker.records.record_batch import RecordBatch, batches

log = structlog.get_logger(__name__)

RECORDS_PER_TURN: Final = 500  # some 5 ms of replay, then the other connections have their turn


@dataclass(slots=True)
class LoadProgress:
    """How far a load came."""

    end_offset: int
    record_count: int = 0
    size_bytes: int = 0
    unknown_record_count: int = 0


class CoordinatorLoader:
    """Reads from the log start to the log end, also what is not committed yet (Kafka's CoordinatorLoaderImpl)."""

    def __init__(self, writer: PartitionWriter, config: ConfigHolder[BrokerConfig]) -> None:
        self._writer = writer
        self._config = config

    async def load(self, context: CoordinatorContext[Any], is_wanted: Callable[[], bool]) -> LoadProgress:
        """Replay everything; gives up early when `is_wanted` says no.  Any exception means the load has failed."""
        topic_partition = context.topic_partition
        progress = LoadProgress(self._writer.log_start_offset(topic_partition))
        while is_wanted() and progress.end_offset < self._writer.log_end_offset(topic_partition):
            buffer = await self._writer.read(
                topic_partition, progress.end_offset, self._config.current.offsets_load_buffer_size
            )
            before = progress.end_offset
            for batch in batches(buffer):
                if not is_wanted():
                    return progress
                await self._replay(context, batch, progress)
            if progress.end_offset == before:
                raise CorruptMessageError(f"{topic_partition} has no whole batch at offset {before}")
        if progress.unknown_record_count:
            log.warning(
                "coordinator_records_skipped", partition=str(topic_partition), count=progress.unknown_record_count
            )
        return progress

    async def _replay(self, context: CoordinatorContext[Any], batch: RecordBatch, progress: LoadProgress) -> None:
        if batch.next_offset <= progress.end_offset:
            return  # a read may begin with a batch that ends before the offset asked for
        batch.ensure_valid()
        if batch.is_control:
            _replay_control(context, batch)
        else:
            self._replay_data(context, batch, progress)
        turns = progress.record_count // RECORDS_PER_TURN
        progress.record_count += batch.record_count
        progress.size_bytes += batch.size_bytes
        progress.end_offset = batch.next_offset
        if progress.record_count // RECORDS_PER_TURN != turns:
            await asyncio.sleep(0)

    def _replay_data(self, context: CoordinatorContext[Any], batch: RecordBatch, progress: LoadProgress) -> None:
        shard = context.shard
        producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
        for stored in batch.records():
            if stored.offset < progress.end_offset:
                continue
            if stored.key is None:
                raise CorruptMessageError(f"{context.topic_partition} has a record without a key at {stored.offset}")
            record = shard.decode(stored.key, stored.value)
            if record is None:
                progress.unknown_record_count += 1
            else:
                shard.replay(stored.offset, producer_id, record)


def _replay_control(context: CoordinatorContext[Any], batch: RecordBatch) -> None:
    """Only the ends of transactions mean something here; a LeaderChange or a type of the future does not."""
    for stored in batch.records():
        marker = EndTransactionMarker.parse(stored)
        if marker is not None:
            context.shard.replay_end_transaction_marker(stored.offset, batch.producer_id, marker.is_commit)
