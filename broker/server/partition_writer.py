"""ReplicaPartitionWriter: the coordinators' PartitionWriter over the replicas of this broker."""

from broker.common.buffers import Buffer
from broker.common.disk import DiskExecutor
from broker.common.errors import KafkaError, NotLeaderOrFollowerError, StorageFailure
from broker.common.identifiers import TopicPartition
from broker.config.topic_config import TopicConfig
from broker.coordinator.partition_writer import HighWatermarkListener, LossListener
from broker.log.file_records import read, read_cached
from broker.log.unified_log import UnifiedLog
from broker.records.append_origin import AppendOrigin
from broker.replication.replica_manager import ReplicaManager

ACKS_LEADER = 1  # whether enough replicas have the batch is what the coordinator waits for, at the high watermark


class ReplicaPartitionWriter:
    """Everything is asked of the partition anew: a log may go, or be led elsewhere, between two calls."""

    def __init__(self, replicas: ReplicaManager, disk: DiskExecutor) -> None:
        self._replicas = replicas
        self._disk = disk
        self._listeners: dict[tuple[TopicPartition, HighWatermarkListener], _Listener] = {}

    def append(self, topic_partition: TopicPartition, batch: bytearray) -> int:
        result = self._replicas.append_now(topic_partition, batch, AppendOrigin.COORDINATOR, required_acks=ACKS_LEADER)
        if result.error is not None:
            raise result.error
        return result.last_offset + 1

    async def read(self, topic_partition: TopicPartition, offset: int, size_max: int) -> Buffer:
        log = self._log(topic_partition)
        found = log.read(offset, size_max, log.log_end_offset, min_one_batch=True).file_slice
        if found is None:
            return b""
        cached = read_cached(found)
        return await self._disk.run(read, found) if cached is None else cached

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
        adapter = _Listener(listener, lambda: self._lost(topic_partition, listener, on_lost))
        if not self._replicas.add_partition_listener(topic_partition, adapter):
            raise NotLeaderOrFollowerError(f"{topic_partition} is not hosted by this broker")
        self._listeners[topic_partition, listener] = adapter

    def unregister_listener(self, topic_partition: TopicPartition, listener: HighWatermarkListener) -> None:
        adapter = self._listeners.pop((topic_partition, listener), None)
        if adapter is not None:
            self._replicas.remove_partition_listener(topic_partition, adapter)

    def _lost(self, topic_partition: TopicPartition, listener: HighWatermarkListener, on_lost: LossListener) -> None:
        if self._listeners.pop((topic_partition, listener), None) is not None:
            on_lost()

    async def delete_records_before(self, topic_partition: TopicPartition, offset: int) -> None:
        log = self._log(topic_partition)
        plan = log.plan_flush()
        if plan is not None:
            try:
                await self._disk.run(plan.run)
            except StorageFailure:
                log.abandon_flush(plan)
                raise
            log.complete_flush(plan)
        if log.local_log.is_in_doubt:
            raise StorageFailure(f"{topic_partition}: a flush has failed, and what the device has is not known")
        if self._log(topic_partition) is not log:
            raise NotLeaderOrFollowerError(f"{topic_partition} has changed")
        log.delete_segments_below(offset, "superseded by a snapshot of the coordinator's state")

    def _log(self, topic_partition: TopicPartition) -> UnifiedLog:
        """The log, as long as this broker leads the partition."""
        return self._replicas.partition(topic_partition).leader_log()


class _Listener:
    """Leadership comes to coordinators from the metadata; from here only the high watermark and the replica's end."""

    def __init__(self, listener: HighWatermarkListener, on_lost: LossListener) -> None:
        self._listener = listener
        self._on_lost = on_lost

    def on_high_watermark_updated(self, topic_partition: TopicPartition, offset: int) -> None:
        self._listener(offset)

    def on_becoming_follower(self, topic_partition: TopicPartition) -> None:
        """The next image tells the coordinator."""

    def on_deleted(self, topic_partition: TopicPartition) -> None:
        self._on_lost()


class LogEndOffsets:
    """Where the partitions led by this broker end, for the lag of groups."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def __call__(self, topic: str, partition: int) -> int | None:
        try:
            return self._replicas.partition(TopicPartition(topic, partition)).leader_log().high_watermark
        except KafkaError:
            return None
