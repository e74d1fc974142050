"""What all partitions of a broker share, and who may follow a partition."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from broker.common.identifiers import TopicPartition
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.log.unified_log import UnifiedLog
from broker.metadata.metadata_cache import MetadataCache
from broker.replication.alter_partition_manager import AlterPartitionManager
from broker.replication.fetch_params import FetchPartition
from broker.replication.replication_throttle import ReplicationThrottle

if TYPE_CHECKING:
    from broker.replication.partition import Partition


class FetchWatcher(Protocol):
    """Whoever wants to know that a partition it fetches may have something new to tell."""

    def on_partition_changed(self, request: FetchPartition) -> None: ...


class PartitionListener(Protocol):
    """What other parts of the broker follow about a partition (Kafka's PartitionListener)."""

    def on_high_watermark_updated(self, topic_partition: TopicPartition, offset: int) -> None: ...
    def on_becoming_follower(self, topic_partition: TopicPartition) -> None: ...
    def on_deleted(self, topic_partition: TopicPartition) -> None: ...


class IsrStats:
    """How often ISRs changed on this broker."""

    __slots__ = ("expands", "failed_updates", "shrinks")

    def __init__(self) -> None:
        self.expands = 0
        self.shrinks = 0
        self.failed_updates = 0


class PartitionContext:
    """What all partitions of a broker share."""

    __slots__ = (
        "alter_partition_manager",
        "broker_epoch",
        "config",
        "create_log",
        "isr_stats",
        "leader_throttle",
        "local_broker_id",
        "metadata_cache",
        "monotonic_ms",
        "on_delete_records_progress",
    )

    def __init__(
        self,
        *,
        local_broker_id: int,
        config: ConfigHolder[BrokerConfig],
        metadata_cache: MetadataCache,
        alter_partition_manager: AlterPartitionManager,
        create_log: Callable[[TopicPartition, UUID], UnifiedLog],
        monotonic_ms: Callable[[], int],
        broker_epoch: Callable[[], int],
        on_delete_records_progress: "Callable[[Partition], object]",
    ) -> None:
        self.local_broker_id = local_broker_id
        self.config = config
        self.metadata_cache = metadata_cache
        self.alter_partition_manager = alter_partition_manager
        self.create_log = create_log
        self.monotonic_ms = monotonic_ms
        self.broker_epoch = broker_epoch
        self.on_delete_records_progress = on_delete_records_progress
        self.isr_stats = IsrStats()
        self.leader_throttle = ReplicationThrottle(
            local_broker_id, config, monotonic_ms, lambda current: current.leader_replication_throttled_rate
        )
