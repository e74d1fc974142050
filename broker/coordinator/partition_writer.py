"""PartitionWriter: what a coordinator wants from the replica of its partition of an internal topic."""

from collections.abc import Callable
from typing import Protocol

from broker.common.buffers import Buffer
from broker.common.identifiers import TopicPartition
from broker.config.topic_config import TopicConfig

HighWatermarkListener = Callable[[int], None]
LossListener = Callable[[], None]


class PartitionWriter(Protocol):
    """The log below a coordinator (Kafka's PartitionWriter and CoordinatorLoader).

    Everything but `append`'s result is in offsets of that log.  All methods raise KafkaError: NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR and what an append can be refused for.
    """

    def append(self, topic_partition: TopicPartition, batch: bytearray) -> int:
        """Append one batch as its leader and return the next offset.  Raising means that nothing was appended."""

    async def read(self, topic_partition: TopicPartition, offset: int, size_max: int) -> Buffer:
        """Whole batches from the one holding `offset` on, up to the log end; the first is whole even above the size."""

    def log_start_offset(self, topic_partition: TopicPartition) -> int: ...

    def log_end_offset(self, topic_partition: TopicPartition) -> int: ...

    def high_watermark(self, topic_partition: TopicPartition) -> int: ...

    def config(self, topic_partition: TopicPartition) -> TopicConfig: ...

    def register_listener(
        self, topic_partition: TopicPartition, listener: HighWatermarkListener, on_lost: LossListener
    ) -> None:
        """Call `listener` with the new high watermark whenever it moves, also within `append`.

        `on_lost` is called once, and ends it, when the replica goes: deleted, or the disk has refused it.
        """

    def unregister_listener(self, topic_partition: TopicPartition, listener: HighWatermarkListener) -> None: ...

    async def delete_records_before(self, topic_partition: TopicPartition, offset: int) -> None:
        """Make everything from `offset` on durable, then move the log start offset there.

        The order matters: what is deleted may have been durable, so what replaces it must be durable first.
        """
