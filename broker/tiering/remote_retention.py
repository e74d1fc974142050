"""Which remote segments have expired, and where the log begins without them (Kafka: RLMExpirationTask).

It differs from Kafka where Kafka takes more than retention.bytes allows, or moves the log start for a copy that was
never finished: duplicates and unfinished copies count for nothing.

Plain decisions: whoever carries them out moves the log start offset first and deletes objects after that, so that a
reader is told "out of range" and does not miss an object.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from broker.common.identifiers import NO_EPOCH
from broker.schemas.remote_log_metadata import RemoteLogSegmentState
from broker.tiering.leader_epochs import LeaderEpochs
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata
from broker.tiering.segment_lineage import SegmentLineage

_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


@dataclass(frozen=True, slots=True)
class RetainedLog:
    """The leader's log as of the decision.

    `leader_epochs` are its epoch cache's; `only_local_size_bytes` is of the segments above the highest remote offset,
    so that nothing counts in both tiers.  A retention of -1 is none.
    """

    leader_epochs: LeaderEpochs
    log_start_offset: int
    log_end_offset: int
    only_local_size_bytes: int
    retention_ms: int
    retention_bytes: int


@dataclass(frozen=True, slots=True)
class RemoteExpiration:
    """`segments` are to be deleted, each once, after the log start offset was raised to `log_start_offset`.

    None when it stays.
    """

    segments: tuple[RemoteLogSegmentMetadata, ...]
    log_start_offset: int | None

    @property
    def size_in_bytes(self) -> int:
        return sum(segment.segment_size_in_bytes for segment in self.segments)


class RemoteLogTotals(NamedTuple):
    """What Kafka's gauges RemoteLogMetadataCount and RemoteLogSizeBytes say of a partition."""

    segments: int
    size_in_bytes: int


def remote_log_totals(segments: Iterable[RemoteLogSegmentMetadata]) -> RemoteLogTotals:
    """Of all that are known, in any lineage; copies that were not finished have no bytes for sure."""
    sizes = [0 if segment.state is _STARTED else segment.segment_size_in_bytes for segment in segments]
    return RemoteLogTotals(len(sizes), sum(sizes))


def only_local_size(segments: Iterable[tuple[int, int]], highest_remote_offset: int) -> int:
    """The bytes of local segments, as (base offset, size), that begin above the highest remote offset, inclusive."""
    return sum(size for base_offset, size in segments if base_offset > highest_remote_offset)


def remote_log_size(segments: Iterable[RemoteLogSegmentMetadata], retained: RetainedLog) -> int:
    """The bytes that retention.bytes counts in remote storage: finished copies that are a part of this log.

    What a longer copy has too does not count, nor what is wholly below the log start offset and on its way out: were
    they counted, retention would leave less than the limit.
    """
    return sum(segment.segment_size_in_bytes for segment in _counted(segments, retained))


def expired_segments(
    segments: Collection[RemoteLogSegmentMetadata], being_copied: Set[UUID], retained: RetainedLog, now_ms: int
) -> RemoteExpiration:
    """What to delete of `segments`, which are all of the partition that are known, in any state.

    A segment that is being copied is left alone, and so is whatever comes after it.  Deletions that were begun are
    repeated.  Copies that were not finished, or that a longer one has replaced, go with the records they are of.
    """
    expiry = _Expiry(retained, _counted(segments, retained), now_ms)
    idle = [segment for segment in segments if segment.segment_id not in being_copied]
    for segment in idle:
        if segment.state is _DELETING:
            expiry.delete(segment)
    for segment in _longest_first(segments):
        if segment.segment_id in being_copied or not expiry.goes_on_after(segment):
            break
    expiry.delete_other_copies_of_what_goes(idle)
    expiry.delete_what_is_of_older_epochs(idle)
    return RemoteExpiration(tuple(expiry.deleted.values()), expiry.log_start_offset)


def _longest_first(segments: Iterable[RemoteLogSegmentMetadata]) -> list[RemoteLogSegmentMetadata]:
    """In order of their start offsets, each before those that lie within it."""
    return sorted(segments, key=lambda segment: (segment.start_offset, -segment.end_offset))


def _counted(segments: Iterable[RemoteLogSegmentMetadata], retained: RetainedLog) -> list[RemoteLogSegmentMetadata]:
    """Those that hold the log's remote part, in order of their offsets: none of them lies within another."""
    lineage = SegmentLineage(retained.leader_epochs, retained.log_end_offset)
    counted = []
    reached = retained.log_start_offset - 1
    for segment in _longest_first(segments):
        if segment.is_readable and segment.end_offset > reached and segment in lineage:
            counted.append(segment)
            reached = segment.end_offset
    return counted


def _bytes_left_by_segment(counted: Sequence[RemoteLogSegmentMetadata], only_local_size_bytes: int) -> dict[UUID, int]:
    """The bytes that both tiers have, at least, from the end of each segment on.

    A leader cuts segments elsewhere than the one before it did, and both may have copied the same records: of segments
    that overlap only those count which do not.
    """
    starts = [segment.start_offset for segment in counted]
    from_here = [only_local_size_bytes] * (len(counted) + 1)
    left: dict[UUID, int] = {}
    for index in reversed(range(len(counted))):
        segment = counted[index]
        bytes_left = left[segment.segment_id] = from_here[bisect_left(starts, segment.next_offset)]
        from_here[index] = max(from_here[index + 1], bytes_left + segment.segment_size_in_bytes)
    return left


class _Expiry:
    """One round: what is to be deleted so far."""

    def __init__(self, retained: RetainedLog, counted: Iterable[RemoteLogSegmentMetadata], now_ms: int) -> None:
        self._retained = retained
        self._lineage = SegmentLineage(retained.leader_epochs, retained.log_end_offset)
        self._bytes_left = _bytes_left_by_segment(list(counted), retained.only_local_size_bytes)
        self._expires_up_to_ms = now_ms - retained.retention_ms if retained.retention_ms >= 0 else None
        self.deleted: dict[UUID, RemoteLogSegmentMetadata] = {}
        self.log_start_offset: int | None = None

    def delete(self, segment: RemoteLogSegmentMetadata) -> None:
        self.deleted[segment.segment_id] = segment

    def goes_on_after(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Deletes the segment if it is due.  False when it is of this log and stays: then all that follow stay."""
        if segment.segment_id in self.deleted:
            return True
        is_within = segment in self._lineage
        if self._is_below_log_start(segment, is_within):
            self.delete(segment)
        elif is_within and (self._is_old(segment) or self._is_excess(segment)):
            self.delete(segment)
            if segment.is_readable:
                self.log_start_offset = max(segment.next_offset, self.log_start_offset or 0)
        else:
            return segment.segment_id not in self._bytes_left
        return True

    def delete_other_copies_of_what_goes(self, idle: Iterable[RemoteLogSegmentMetadata]) -> None:
        """Nothing of them could be read once the log start has moved."""
        for segment in idle:
            is_below = self.log_start_offset is not None and segment.next_offset <= self.log_start_offset
            if is_below and segment in self._lineage:
                self.delete(segment)

    def delete_what_is_of_older_epochs(self, idle: Iterable[RemoteLogSegmentMetadata]) -> None:
        """What an unclean election, or a log start moved far, has left behind: nothing leads there any more.

        A log that does not know its first epochs does not know that.
        """
        epochs = self._retained.leader_epochs
        earliest = epochs[0].epoch if epochs and epochs[0].start_offset <= self._retained.log_start_offset else NO_EPOCH
        for segment in idle:
            if segment.segment_leader_epochs[-1].epoch < earliest:
                self.delete(segment)

    def _is_below_log_start(self, segment: RemoteLogSegmentMetadata, is_within: bool) -> bool:
        epochs = self._lineage.epochs
        if not epochs or segment.end_offset >= self._retained.log_start_offset:
            return False
        return is_within or segment.segment_leader_epochs[-1].epoch <= epochs[0].epoch

    def _is_old(self, segment: RemoteLogSegmentMetadata) -> bool:
        """As old as retention.ms by its newest record: Kafka keeps local segments a millisecond longer."""
        return self._expires_up_to_ms is not None and segment.max_timestamp_ms <= self._expires_up_to_ms

    def _is_excess(self, segment: RemoteLogSegmentMetadata) -> bool:
        bytes_left = self._bytes_left.get(segment.segment_id)
        return bytes_left is not None and 0 <= self._retained.retention_bytes <= bytes_left
