"""A RemoteLogMetadataManager that knows everything at once."""

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager

from broker.common.identifiers import TopicIdPartition
from broker.tiering.remote_log_metadata_manager import RemoteLogMetadataManager
from broker.tiering.remote_log_segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)
from broker.tiering.remote_partition_metadata_store import RemotePartitionMetadataStore


class MemoryRemoteLogMetadataManager(RemoteLogMetadataManager):
    """`asked` counts questions; partitions are known as soon as they are led or followed."""

    def __init__(self, partitions: Iterable[TopicIdPartition] = ()) -> None:
        self.store = RemotePartitionMetadataStore()
        self.asked = 0
        self.on_partition_leadership_changes(list(partitions), [])

    async def add_remote_log_segment_metadata(self, segment: RemoteLogSegmentMetadata) -> None:
        self.store.apply(segment)

    async def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        self.store.apply(update)

    async def put_remote_partition_delete_metadata(self, deletion: RemotePartitionDeleteMetadata) -> None:
        self.store.apply(deletion)

    async def remote_log_segment_metadata(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        self.asked += 1
        return self.store.remote_log_segment_metadata(partition, epoch, offset)

    async def highest_offset_for_epoch(self, partition: TopicIdPartition, epoch: int) -> int | None:
        self.asked += 1
        return self.store.highest_offset_for_epoch(partition, epoch)

    async def list_remote_log_segments(
        self, partition: TopicIdPartition, epoch: int | None = None
    ) -> Sequence[RemoteLogSegmentMetadata]:
        self.asked += 1
        return self.store.list_remote_log_segments(partition, epoch)

    async def remote_log_size(self, partition: TopicIdPartition, epoch: int) -> int:
        self.asked += 1
        return self.store.remote_log_size(partition, epoch)

    def on_partition_leadership_changes(
        self, leaders: Collection[TopicIdPartition], followers: Collection[TopicIdPartition]
    ) -> None:
        self.store.assign([*leaders, *followers])
        for partition in (*leaders, *followers):
            self.store.mark_initialized(partition)

    def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:
        self.store.unassign(partitions)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return self.store.is_initialized(partition)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["MemoryRemoteLogMetadataManager"]:
        yield self
