"""Which segments of a log are copied to remote storage, and what is told of them (Kafka: RLMCopyTask)."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from broker.common.identifiers import TopicIdPartition
from broker.tiering.leader_epochs import LeaderEpochs, epochs_between
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata


class LocalSegment(NamedTuple):
    """What is to be known of a segment on the local disk; `size_in_bytes` is that of the log file."""

    base_offset: int
    size_in_bytes: int
    max_timestamp_ms: int
    is_txn_index_empty: bool = False


class CopyCandidate(NamedTuple):
    """A closed segment, and where the next one begins."""

    segment: LocalSegment
    next_base_offset: int

    @property
    def end_offset(self) -> int:
        """Inclusive."""
        return self.next_base_offset - 1


class CopyLag(NamedTuple):
    """What could be copied and is not yet, the active segment aside."""

    size_in_bytes: int
    segments: int


def copy_candidates(
    segments: Sequence[LocalSegment], *, copied_offset: int, log_start_offset: int, last_stable_offset: int
) -> list[CopyCandidate]:
    """What to copy next, oldest first: closed segments whose every record is below the last stable offset.

    `segments` are all of the local log, ascending, the active one last; `copied_offset` is inclusive, NO_OFFSET when
    nothing was copied.  A segment that was copied in part, cut otherwise by an earlier leader, is copied whole.
    """
    from_offset = max(copied_offset + 1, log_start_offset)
    return [
        CopyCandidate(segment, following.base_offset)
        for segment, following in itertools.pairwise(segments)
        if from_offset < following.base_offset <= last_stable_offset
    ]


def copy_lag(segments: Sequence[tuple[int, int]], highest_remote_offset: int) -> CopyLag:
    """Of local segments as (base offset, size), ascending, the active one last.

    `highest_remote_offset` is inclusive, NO_OFFSET when nothing was copied.
    """
    waiting = [size for base_offset, size in segments[:-1] if base_offset > highest_remote_offset]
    return CopyLag(sum(waiting), len(waiting))


def segment_to_copy(
    candidate: CopyCandidate,
    partition: TopicIdPartition,
    segment_id: UUID,
    leader_epochs: LeaderEpochs,
    *,
    broker_id: int,
    now_ms: int,
) -> RemoteLogSegmentMetadata:
    """What is told of a segment before its first byte is copied; `segment_id` is new with each attempt.

    `leader_epochs` are those of the whole log.  ValueError when they say nothing about the segment: without record
    batches of format 2, whose headers name epochs, nothing can be copied.
    """
    segment = candidate.segment
    return RemoteLogSegmentMetadata(
        partition=partition,
        segment_id=segment_id,
        start_offset=segment.base_offset,
        end_offset=candidate.end_offset,
        broker_id=broker_id,
        max_timestamp_ms=segment.max_timestamp_ms,
        event_timestamp_ms=now_ms,
        segment_leader_epochs=epochs_between(leader_epochs, segment.base_offset, candidate.next_base_offset),
        segment_size_in_bytes=segment.size_in_bytes,
        is_txn_index_empty=segment.is_txn_index_empty,
    )
