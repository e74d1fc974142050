"""ReplicaProgress: what the retention of objects asks, answered by the replicas hosted here and the metadata."""

from collections.abc import Callable
from typing import Final

from broker.common.identifiers import NO_OFFSET, TopicIdPartition, TopicPartition
from broker.config.topic_config import TopicConfig
from broker.metadata.metadata_image import MetadataImage
from broker.replication.partition import Partition
from broker.wal.retention.object_retention import PartitionProgress
from broker.wal.tiered_offset import highest_tiered_offset

_UNLIMITED: Final = -1


class ReplicaProgress:
    def __init__(
        self,
        image: Callable[[], MetadataImage],
        hosted: Callable[[TopicPartition], Partition | None],
        topic_config: Callable[[str], TopicConfig],
    ) -> None:
        self._image = image
        self._hosted = hosted
        self._topic_config = topic_config

    def is_deleted(self, partition: TopicIdPartition) -> bool:
        """Slices are of topics this broker has led, so one that the metadata does not have was deleted."""
        image = self._image()
        return not image.is_empty and image.topics.topic_by_id(partition.topic_id) is None

    def local_retention_ms(self, partition: TopicIdPartition) -> int | None:
        """Of the topic as it is set now."""
        topic = self._image().topics.topic_by_id(partition.topic_id)
        if topic is None:
            return None
        retention_ms = self._topic_config(topic.name).local_retention_ms_effective
        return None if retention_ms == _UNLIMITED else retention_ms

    def highest_tiered_offset(self, partition: TopicIdPartition) -> int:
        replica = self._led(partition)
        return NO_OFFSET if replica is None else highest_tiered_offset(replica.log)

    def of(self, partition: TopicIdPartition) -> PartitionProgress | None:
        """None also while the log is offline."""
        replica = self._led(partition)
        if replica is None:
            return None
        ends = (each.log_end_offset for each in replica.remote_replicas.values())
        return PartitionProgress(replica.log.high_watermark, min([replica.log.log_end_offset, *ends]))

    def _led(self, partition: TopicIdPartition) -> Partition | None:
        """The replica here, if it leads and has a log."""
        replica = self._hosted(partition.topic_partition)
        if replica is None or replica.topic_id != partition.topic_id or not replica.is_leader:
            return None
        return None if replica.local_log is None else replica
