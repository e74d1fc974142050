"""MemoryPartitionWriter: the logs below a coordinator, in memory, with everything that can go wrong."""

import asyncio

from broker.common.buffers import Buffer
from broker.common.errors import KafkaError, NotLeaderOrFollowerError
from broker.common.identifiers import CONSUMER_OFFSETS_TOPIC, TopicPartition
from broker.config.topic_config import TopicConfig
from broker.coordinator.partition_writer import HighWatermarkListener, LossListener
from broker.records.record import Record
from broker.records.record_batch import RecordBatch, batches


class MemoryLog:
    """One partition.  `commits_at_once`: the high watermark moves within the append, as without followers."""

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        self.batches: list[bytes] = []
        self.log_start_offset = 0
        self.high_watermark = 0
        self.commits_at_once = True
        self.append_error: KafkaError | None = None
        self.read_error: KafkaError | None = None
        self.read_gate: asyncio.Event | None = None  # reads wait for it
        self.listeners: dict[HighWatermarkListener, LossListener] = {}

    @property
    def log_end_offset(self) -> int:
        return RecordBatch.parse(self.batches[-1]).next_offset if self.batches else self.log_start_offset

    def append(self, batch: bytearray) -> int:
        if self.append_error is not None:
            raise self.append_error
        RecordBatch.parse(batch).set_base_offset_and_epoch(self.log_end_offset, 1)
        self.batches.append(bytes(batch))
        if self.commits_at_once:
            self.commit()
        return self.log_end_offset

    def commit(self, offset: int | None = None) -> None:
        """Move the high watermark, to the log end without an offset."""
        self.high_watermark = self.log_end_offset if offset is None else offset
        for listener in list(self.listeners):
            listener(self.high_watermark)

    def lose(self) -> None:
        """The disk has refused the replica."""
        listeners, self.listeners = self.listeners, {}
        for on_lost in listeners.values():
            on_lost()

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in RecordBatch.parse(batch).records()]


class MemoryPartitionWriter:
    """The PartitionWriter port over `MemoryLog`s, which appear when they are first asked for."""

    def __init__(self, config: TopicConfig | None = None) -> None:
        self._config = TopicConfig({}) if config is None else config
        self.logs: dict[TopicPartition, MemoryLog] = {}
        self.is_leader = True

    def log(self, partition: int, topic: str = CONSUMER_OFFSETS_TOPIC) -> MemoryLog:
        return self._log(TopicPartition(topic, partition))

    def _log(self, topic_partition: TopicPartition) -> MemoryLog:
        if not self.is_leader:
            raise NotLeaderOrFollowerError(str(topic_partition))
        log = self.logs.get(topic_partition)
        if log is None:
            log = self.logs[topic_partition] = MemoryLog(self._config)
        return log

    def append(self, topic_partition: TopicPartition, batch: bytearray) -> int:
        return self._log(topic_partition).append(batch)

    async def read(self, topic_partition: TopicPartition, offset: int, size_max: int) -> Buffer:
        log = self._log(topic_partition)
        if log.read_gate is not None:
            await log.read_gate.wait()
        if log.read_error is not None:
            raise log.read_error
        found = bytearray()
        for batch in log.batches:
            if RecordBatch.parse(batch).next_offset <= offset:
                continue
            if found and len(found) + len(batch) > size_max:
                break
            found += batch
        return bytes(found)

    def log_start_offset(self, topic_partition: TopicPartition) -> int:
        return self._log(topic_partition).log_start_offset

    def log_end_offset(self, topic_partition: TopicPartition) -> int:
        return self._log(topic_partition).log_end_offset

    def high_watermark(self, topic_partition: TopicPartition) -> int:
        return self._log(topic_partition).high_watermark

    def config(self, topic_partition: TopicPartition) -> TopicConfig:
        return self._log(topic_partition).config

    def register_listener(
        self, topic_partition: TopicPartition, listener: HighWatermarkListener, on_lost: LossListener
    ) -> None:
        self._log(topic_partition).listeners[listener] = on_lost

    def unregister_listener(self, topic_partition: TopicPartition, listener: HighWatermarkListener) -> None:
        log = self.logs.get(topic_partition)
        if log is not None:
            log.listeners.pop(listener, None)

    async def delete_records_before(self, topic_partition: TopicPartition, offset: int) -> None:
        log = self._log(topic_partition)
        assert offset <= log.high_watermark, f"{offset} is not committed"
        log.log_start_offset = offset
        log.batches = [batch for batch in log.batches if RecordBatch.parse(batch).next_offset > offset]


def whole_log(log: MemoryLog) -> list[RecordBatch]:
    return list(batches(b"".join(log.batches)))
