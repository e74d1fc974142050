"""RemotePartitionMetadataStore: the caches of all partitions that this broker has a replica of (Kafka's class)."""

from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

import structlog

from broker.common.errors import ReplicaNotAvailableError
from broker.common.identifiers import TopicIdPartition
from broker.schemas.remote_log_metadata import RemoteLogSegmentState, RemotePartitionDeleteState
from broker.tiering.remote_log_metadata_cache import EventOutcome, RemoteLogMetadataCache
from broker.tiering.remote_log_metadata_events import RemoteLogMetadataEvent
from broker.tiering.remote_log_segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)
from broker.tiering.segment_state import may_follow_deletion

log = structlog.get_logger(__name__)

OnLost = Callable[[TopicIdPartition, RemoteLogSegmentMetadata | None], None]
"""A segment of the partition may be read no more; None: what was known of it is forgotten."""


class RemotePartitionMetadataStore:
    """Fed with events in the order of their topic; answers for partitions whose past it has been told whole.

    Questions about others raise ReplicaNotAvailableError, which clients and tasks repeat: a segment that is not known
    yet must not be taken for one that is not there.

    Whoever has gone by an answer hears when it is true no more, before anything else happens (`watch_losses`).
    """

    def __init__(self) -> None:
        self._caches: dict[TopicIdPartition, RemoteLogMetadataCache] = {}
        self._initialized: set[TopicIdPartition] = set()
        self._deletions: dict[TopicIdPartition, RemotePartitionDeleteState] = {}
        self._watchers: list[OnLost] = []

    def watch_losses(self, on_lost: OnLost) -> None:
        """Tell of each loss, in the turn of the event loop in which it is known."""
        self._watchers.append(on_lost)

    @property
    def partitions(self) -> frozenset[TopicIdPartition]:
        return frozenset(self._caches)

    def assign(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Begin to take events of these; those already there stay as they are."""
        for partition in partitions:
            self._caches.setdefault(partition, RemoteLogMetadataCache(partition))

    def unassign(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Forget these."""
        for partition in partitions:
            cache = self._caches.pop(partition, None)
            self._initialized.discard(partition)
            self._deletions.pop(partition, None)
            if cache is not None:
                self._lost(partition, None)

    def mark_initialized(self, partition: TopicIdPartition) -> None:
        """All that was in the topic when the partition was assigned has been applied."""
        assert partition in self._caches, partition
        self._initialized.add(partition)

    def is_initialized(self, partition: TopicIdPartition) -> bool:
        return partition in self._initialized

    def apply(self, event: RemoteLogMetadataEvent) -> EventOutcome:
        """What the topic tells.  Events that cannot be are dropped and logged, for the topic must be read on."""
        cache = self._caches.get(event.partition)
        if cache is None:
            return EventOutcome.UNKNOWN_SEGMENT
        try:
            match event:
                case RemoteLogSegmentMetadata():
                    return cache.add(event)
                case RemoteLogSegmentMetadataUpdate():
                    return self._update(cache, event)
                case RemotePartitionDeleteMetadata():
                    return self._delete_partition(event)
        except ValueError as error:
            log.warning(
                "remote_segment_event_dropped", partition=str(event.partition.topic_partition), error=str(error)
            )
            return EventOutcome.ILLEGAL_TRANSITION
        assert_never(event)

    # Questions: as those of RemoteLogMetadataCache; ReplicaNotAvailableError

    def remote_log_segment_metadata(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        return self._cache(partition).remote_log_segment_metadata(epoch, offset)

    def highest_offset_for_epoch(self, partition: TopicIdPartition, epoch: int) -> int | None:
        return self._cache(partition).highest_offset_for_epoch(epoch)

    def list_remote_log_segments(
        self, partition: TopicIdPartition, epoch: int | None = None
    ) -> Sequence[RemoteLogSegmentMetadata]:
        return self._cache(partition).list_remote_log_segments(epoch)

    def remote_log_size(self, partition: TopicIdPartition, epoch: int) -> int:
        return self._cache(partition).remote_log_size(epoch)

    def _cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        if partition not in self._initialized:
            raise ReplicaNotAvailableError(f"Remote log metadata of {partition.topic_partition} is not known yet")
        return self._caches[partition]

    def _update(self, cache: RemoteLogMetadataCache, update: RemoteLogSegmentMetadataUpdate) -> EventOutcome:
        before = cache.segment(update.segment_id)
        outcome = cache.update(update)
        if before is not None and before.is_readable and update.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
            self._lost(update.partition, before)
        if outcome is EventOutcome.UNKNOWN_SEGMENT and update.partition in self._initialized:
            # Earlier it may be what is left of a segment whose first event has expired in the topic.
            log.warning(
                "remote_segment_update_of_unknown_segment",
                partition=str(update.partition.topic_partition),
                segment=str(update.segment_id),
                state=update.state.name,
            )
        return outcome

    def _delete_partition(self, deletion: RemotePartitionDeleteMetadata) -> EventOutcome:
        if not may_follow_deletion(self._deletions.get(deletion.partition), deletion.state):
            log.warning(
                "remote_partition_deletion_dropped",
                partition=str(deletion.partition.topic_partition),
                target=deletion.state.name,
            )
            return EventOutcome.ILLEGAL_TRANSITION
        self._deletions[deletion.partition] = deletion.state
        if deletion.state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED:
            self._caches[deletion.partition] = RemoteLogMetadataCache(deletion.partition)
            self._lost(deletion.partition, None)
        return EventOutcome.APPLIED

    def _lost(self, partition: TopicIdPartition, segment: RemoteLogSegmentMetadata | None) -> None:
        for on_lost in self._watchers:
            on_lost(partition, segment)
