"""RemoteLogMetadataCache: what is known of the remote segments of one partition (Kafka's class of that name)."""

import dataclasses
from collections.abc import Sequence
from enum import Enum, auto
from uuid import UUID

import structlog

from broker.common.identifiers import TopicIdPartition
from broker.schemas.remote_log_metadata import RemoteLogSegmentState
from broker.tiering.epoch_segments import EpochSegments
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate
from broker.tiering.segment_state import may_follow

log = structlog.get_logger(__name__)


class EventOutcome(Enum):
    """What became of an event."""

    APPLIED = auto()
    ILLEGAL_TRANSITION = auto()  # the state does not lead there; dropped
    UNKNOWN_SEGMENT = auto()  # an update of a segment not heard of, or forgotten; dropped


class RemoteLogMetadataCache:
    """All segments that are not wholly deleted.  Records may be read of those in COPY_SEGMENT_FINISHED alone.

    An event may come twice.  Segments number what the partition's retention keeps in remote storage, about 600 bytes
    each; nothing is evicted, for what is not here can be neither read nor deleted.
    """

    def __init__(self, partition: TopicIdPartition) -> None:
        self._partition = partition
        self._segments: dict[UUID, RemoteLogSegmentMetadata] = {}
        self._epochs: dict[int, EpochSegments] = {}

    def __len__(self) -> int:
        return len(self._segments)

    # Events

    def add(self, segment: RemoteLogSegmentMetadata) -> EventOutcome:
        """A copy begins.  ValueError for a segment in another state."""
        assert segment.partition == self._partition, (segment, self._partition)
        if segment.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            raise ValueError(f"a segment is added in COPY_SEGMENT_STARTED, not in {segment.state.name}")
        known = self._segments.get(segment.segment_id)
        if not self._is_legal(None if known is None else known.state, segment.state, segment.segment_id):
            return EventOutcome.ILLEGAL_TRANSITION
        if known is None:
            for entry in segment.segment_leader_epochs:
                self._epoch(entry.epoch).copy_started(segment.segment_id)
            # A decoded event has a copy of the partition's name and ids of its own: a quarter of all its memory.
            self._segments[segment.segment_id] = dataclasses.replace(segment, partition=self._partition)
        return EventOutcome.APPLIED

    def update(self, update: RemoteLogSegmentMetadataUpdate) -> EventOutcome:
        """A segment changes its state.  ValueError for COPY_SEGMENT_STARTED, which is for `add`."""
        if update.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            raise ValueError("an update cannot begin a copy: COPY_SEGMENT_STARTED is for segments that are added")
        known = self._segments.get(update.segment_id)
        if known is None:
            return EventOutcome.UNKNOWN_SEGMENT
        if not self._is_legal(known.state, update.state, update.segment_id):
            return EventOutcome.ILLEGAL_TRANSITION
        segment = known.updated(update)
        self._segments[segment.segment_id] = segment
        if known.state is not segment.state:  # the same event once more must not put a replaced segment back
            self._move(segment)
        return EventOutcome.APPLIED

    # Questions

    def segment(self, segment_id: UUID) -> RemoteLogSegmentMetadata | None:
        """The segment of that id, in any state."""
        return self._segments.get(segment_id)

    def remote_log_segment_metadata(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The segment to read the record of `offset` from, which was written in `epoch`; None when none has it that
        may be read."""
        segments = self._epochs.get(epoch)
        segment_id = None if segments is None else segments.floor(offset)
        if segment_id is None:
            return None
        segment = self._segments[segment_id]
        return segment if offset <= segment.end_offset_for_epoch(epoch) else None

    def highest_offset_for_epoch(self, epoch: int) -> int | None:
        """The highest offset of `epoch` that was ever copied; what was deleted since counts."""
        segments = self._epochs.get(epoch)
        return None if segments is None else segments.highest_offset

    def list_remote_log_segments(self, epoch: int | None = None) -> Sequence[RemoteLogSegmentMetadata]:
        """Those with records of `epoch`, in order of their start offsets; or all, in no order; in any state."""
        if epoch is None:
            return list(self._segments.values())
        listed = [self._segments[segment_id] for segment_id in self._epochs.get(epoch, ())]
        return sorted(listed, key=lambda segment: segment.start_offset)

    def remote_log_size(self, epoch: int) -> int:
        """The bytes of all segments listed for `epoch`."""
        return sum(segment.segment_size_in_bytes for segment in self.list_remote_log_segments(epoch))

    def _move(self, segment: RemoteLogSegmentMetadata) -> None:
        """Its state is new."""
        for entry in segment.segment_leader_epochs:
            segments, end_offset = self._epoch(entry.epoch), segment.end_offset_for_epoch(entry.epoch)
            match segment.state:
                case RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                    segments.copy_finished(entry.start_offset, end_offset, segment.segment_id)
                case RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
                    segments.delete_started(entry.start_offset, end_offset, segment.segment_id)
                case RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
                    segments.delete_finished(segment.segment_id)
        if segment.state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
            del self._segments[segment.segment_id]

    def _epoch(self, epoch: int) -> EpochSegments:
        return self._epochs.setdefault(epoch, EpochSegments())

    def _is_legal(self, state: RemoteLogSegmentState | None, target: RemoteLogSegmentState, segment_id: UUID) -> bool:
        is_legal = may_follow(state, target)
        if not is_legal:
            log.warning(
                "remote_segment_event_dropped",
                partition=str(self._partition.topic_partition),
                segment=str(segment_id),
                state=None if state is None else state.name,
                target=target.name,
            )
        return is_legal
