"""What is told of remote segments and partitions: the values behind the records (KIP-405's classes of those names)."""

import dataclasses
import itertools
from dataclasses import dataclass
from uuid import UUID

from broker.common.identifiers import TopicIdPartition
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.schemas.remote_log_metadata import RemoteLogSegmentState, RemotePartitionDeleteState


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadataUpdate:
    """A new state of a segment.  Custom metadata that is not None replaces what was known."""

    partition: TopicIdPartition
    segment_id: UUID
    broker_id: int
    event_timestamp_ms: int
    state: RemoteLogSegmentState
    custom_metadata: bytes | None = None


@dataclass(frozen=True, slots=True)
class RemotePartitionDeleteMetadata:
    """How far the deletion of a partition is."""

    partition: TopicIdPartition
    broker_id: int
    event_timestamp_ms: int
    state: RemotePartitionDeleteState


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadata:
    """One segment in remote storage; ValueError for one that cannot be.

    `end_offset` is inclusive; `segment_leader_epochs` ascend, the first of them from `start_offset` on, and none begins
    beyond the segment: whoever goes on where an epoch ends would go in circles;
    `segment_size_in_bytes` is the size of the log file.  Partition and `segment_id` together tell segments apart:
    each attempt to copy one has an id of its own.
    """

    partition: TopicIdPartition
    segment_id: UUID
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    segment_leader_epochs: tuple[EpochEntry, ...]
    segment_size_in_bytes: int
    state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_STARTED
    custom_metadata: bytes | None = None
    is_txn_index_empty: bool = False

    def __post_init__(self) -> None:
        if self.start_offset < 0:
            raise ValueError(f"start offset {self.start_offset} of a remote segment: it cannot be negative")
        if self.end_offset < self.start_offset:
            raise ValueError(
                f"a remote segment from {self.start_offset} to {self.end_offset}: it ends before it begins"
            )
        if not self.segment_leader_epochs:
            raise ValueError(f"a remote segment at {self.start_offset} without leader epochs")
        for one, other in itertools.pairwise(self.segment_leader_epochs):
            if one.epoch >= other.epoch:
                raise ValueError(f"leader epochs of a remote segment do not ascend: {one.epoch}, {other.epoch}")
        for epoch, start_offset in self.segment_leader_epochs:
            if start_offset > self.next_offset:
                raise ValueError(
                    f"leader epoch {epoch} of a remote segment starts at {start_offset}: it ends at {self.end_offset}"
                )

    @property
    def next_offset(self) -> int:
        return self.end_offset + 1

    @property
    def is_readable(self) -> bool:
        """Whether all of it is there, and nobody deletes it."""
        return self.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED

    def end_offset_for_epoch(self, epoch: int) -> int:
        """The last offset, inclusive, that the segment may have of `epoch`: before the next epoch's first one.

        It is below the epoch's own first offset when the epoch has no record.
        """
        for entry in self.segment_leader_epochs:
            if entry.epoch > epoch:
                return entry.start_offset - 1
        return self.end_offset

    def has(self, epoch: int, offset: int) -> bool:
        """Whether the record of `offset` was written in `epoch` and is within the segment."""
        is_begun = any(entry.epoch == epoch and entry.start_offset <= offset for entry in self.segment_leader_epochs)
        return is_begun and offset <= self.end_offset_for_epoch(epoch)

    def updated(self, update: RemoteLogSegmentMetadataUpdate) -> "RemoteLogSegmentMetadata":
        """The segment as it is after the update; ValueError when the update is about another one."""
        if (update.partition, update.segment_id) != (self.partition, self.segment_id):
            raise ValueError(f"an update of segment {update.segment_id} is none of {self.segment_id}")
        return dataclasses.replace(
            self,
            broker_id=update.broker_id,
            event_timestamp_ms=update.event_timestamp_ms,
            state=update.state,
            custom_metadata=self.custom_metadata if update.custom_metadata is None else update.custom_metadata,
        )
