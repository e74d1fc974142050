"""A RemoteLogMetadataManager that knows everything at once."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager

from broker.common.identifiers import TopicIdPartition
from broker.tiering.remote_log_metadata_events import RemoteLogMetadataEvent
from broker.tiering.remote_log_metadata_manager import RemoteLogMetadataManager
from broker.tiering.remote_log_segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)
from broker.tiering.remote_partition_metadata_store import OnLost, RemotePartitionMetadataStore


class MemoryRemoteLogMetadataManager(RemoteLogMetadataManager):
    """`asked` counts questions; all that was told of a partition is known as soon as it is led or followed."""

    def __init__(self, partitions: Iterable[TopicIdPartition] = ()) -> None:
        self.store = RemotePartitionMetadataStore()
        self.asked = 0
        self._events: list[RemoteLogMetadataEvent] = []
        self._held: list[tuple[RemoteLogMetadataEvent, asyncio.Future[None]]] | None = None
        self.on_partition_leadership_changes(list(partitions), [])

    async def add_remote_log_segment_metadata(self, segment: RemoteLogSegmentMetadata) -> None:
        await self._tell(segment)

    async def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        await self._tell(update)

    async def put_remote_partition_delete_metadata(self, deletion: RemotePartitionDeleteMetadata) -> None:
        await self._tell(deletion)

    def lose(self, partition: TopicIdPartition) -> None:
        """What was told of it is not in the topic any more, and the topic is read anew."""
        self._events = [event for event in self._events if event.partition != partition]
        self.store.unassign([partition])
        self.on_partition_leadership_changes([partition], [])

    def hold_back(self) -> None:
        """What is told from now on is on its way; it arrives also when nobody waits for it any more."""
        self._held = []

    def deliver(self) -> None:
        """What was held back arrives now, and what comes after it is known at once."""
        held, self._held = self._held or [], None
        for event, arrived in held:
            self._arrive(event)
            if not arrived.done():
                arrived.set_result(None)

    async def _tell(self, event: RemoteLogMetadataEvent) -> None:
        if self._held is None:
            self._arrive(event)
            return
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append((event, arrived))
        await arrived

    def _arrive(self, event: RemoteLogMetadataEvent) -> None:
        self._events.append(event)
        self.store.apply(event)

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
        new = {*leaders, *followers} - self.store.partitions
        self.store.assign([*leaders, *followers])
        for event in self._events:
            if event.partition in new:
                self.store.apply(event)
        for partition in (*leaders, *followers):
            self.store.mark_initialized(partition)

    def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:
        self.store.unassign(partitions)

    def watch_losses(self, on_lost: OnLost) -> None:
        self.store.watch_losses(on_lost)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return self.store.is_initialized(partition)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["MemoryRemoteLogMetadataManager"]:
        yield self
