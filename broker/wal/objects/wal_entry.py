"""WalEntry: what a broker knows of one slice in a bucket: one value, whichever event told it."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from broker.common.identifiers import NO_OFFSET, TopicIdPartition
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.schemas.remote_wal_metadata import (
    RemoteWalCombinedLogSegmentMetadataRecord,
    RemoteWalLogSegmentMetadataRecord,
    SegmentLeaderEpochEntry,
)


class EpochRun(NamedTuple):
    """Consecutive offsets, `end_offset` exclusive, that batches of one leader epoch hold."""

    epoch: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class WalEntry:
    """One slice.  `end_offset` is inclusive; `leader_epoch` is the publisher's, `leader_epochs` the batches' own.

    `metadata_offset` is where its event stands in the metadata topic.
    """

    partition: TopicIdPartition
    slice_id: UUID
    combined_segment_id: UUID
    broker_id: int
    leader_epoch: int
    start_offset: int
    end_offset: int
    leader_epochs: tuple[EpochEntry, ...]
    bucket: str
    object_key: str
    position: int
    size: int
    crc32c: int
    event_timestamp_ms: int
    state: int
    metadata_offset: int = NO_OFFSET

    @property
    def key(self) -> tuple[int, int, UUID]:
        """Tells entries of one partition apart: no two leaders make the same slice."""
        return self.start_offset, self.leader_epoch, self.slice_id

    @property
    def next_offset(self) -> int:
        return self.end_offset + 1

    @property
    def object_end(self) -> int:
        """Where its bytes end in the object, exclusive."""
        return self.position + self.size

    def epoch_runs(self) -> Iterator[EpochRun]:
        """The slice cut at changes of the batches' epoch, ascending."""
        for index, (epoch, start_offset) in enumerate(self.leader_epochs):
            is_last = index + 1 == len(self.leader_epochs)
            end_offset = self.next_offset if is_last else self.leader_epochs[index + 1].start_offset
            yield EpochRun(epoch, start_offset, end_offset)

    def is_plausible(self) -> bool:
        """Whether the numbers agree with each other; what an event says is not believed unseen."""
        epochs = self.leader_epochs
        return (
            0 <= self.start_offset <= self.end_offset
            and self.position >= 0
            and self.size > 0
            and len(epochs) > 0
            and epochs[0].start_offset == self.start_offset
            and epochs[-1].start_offset <= self.end_offset
            and epochs[0].epoch >= 0
            and epochs[-1].epoch <= self.leader_epoch
            and all(
                one.epoch < other.epoch and one.start_offset < other.start_offset
                for one, other in itertools.pairwise(epochs)
            )
        )


def entry_of(record: RemoteWalLogSegmentMetadataRecord, metadata_offset: int = NO_OFFSET) -> WalEntry:
    """The slice of a slice event."""
    slice_id = record.remote_log_segment_id
    return WalEntry(
        partition=slice_id.topic_id_partition.topic_id_partition,
        slice_id=slice_id.id,
        combined_segment_id=record.combined_segment_id,
        broker_id=record.broker_id,
        leader_epoch=record.leader_epoch,
        start_offset=record.start_offset,
        end_offset=record.end_offset,
        leader_epochs=_epochs(record.segment_leader_epochs),
        bucket=record.bucket,
        object_key=record.object_key,
        position=record.position_in_object,
        size=record.segment_size_in_bytes,
        crc32c=record.slice_crc32c,
        event_timestamp_ms=record.event_timestamp_ms,
        state=record.remote_log_segment_state,
        metadata_offset=metadata_offset,
    )


def entries_of(
    record: RemoteWalCombinedLogSegmentMetadataRecord, metadata_offset: int = NO_OFFSET
) -> tuple[WalEntry, ...]:
    """The slices of a combined event, in the order of the object."""
    return tuple(
        WalEntry(
            partition=entry.remote_log_segment_id.topic_id_partition.topic_id_partition,
            slice_id=entry.remote_log_segment_id.id,
            combined_segment_id=record.combined_segment_id,
            broker_id=record.broker_id,
            leader_epoch=entry.leader_epoch,
            start_offset=entry.start_offset,
            end_offset=entry.end_offset,
            leader_epochs=_epochs(entry.segment_leader_epochs),
            bucket=record.bucket,
            object_key=record.object_key,
            position=entry.position_in_object,
            size=entry.size_in_bytes,
            crc32c=entry.slice_crc32c,
            event_timestamp_ms=record.event_timestamp_ms,
            state=record.state,
            metadata_offset=metadata_offset,
        )
        for entry in record.slices
    )


def _epochs(entries: tuple[SegmentLeaderEpochEntry, ...]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(entry.leader_epoch, entry.offset) for entry in entries)
