"""LocalLog: the segments of one partition on this disk: read, roll, cut, delete (Kafka's class of that name)."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import structlog

from broker.common.errors import OffsetOutOfRangeError, StorageFailure
from broker.common.identifiers import TopicPartition
from broker.config.topic_config import TopicConfig
from broker.log.log_append import LogRead
from broker.log.log_environment import LogEnvironment
from broker.log.log_segment import LogSegment, TimestampAndOffset
from broker.log.log_segments import LogSegments
from broker.log.transaction_index import AbortedTransaction

log = structlog.get_logger(__name__)

NO_DOUBT: Final = sys.maxsize


def segment_jitter_ms(environment: LogEnvironment, config: TopicConfig) -> int:
    """How much earlier than segment.ms a segment rolls, so that partitions do not roll all at once."""
    jitter_max_ms = config.random_segment_jitter_max_ms
    return environment.chance.below(jitter_max_ms) if jitter_max_ms > 0 else 0


class LocalLog:
    """The segments and where they end.  It knows nothing of producers, epochs or watermarks."""

    __slots__ = (
        "_environment",
        "config",
        "directory",
        "doubtful_from",
        "has_unfinished_swap",
        "log_end_offset",
        "recovery_point",
        "segments",
        "topic_partition",
        "unsynced_directory",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        directory: Path,
        topic_partition: TopicPartition,
        config: TopicConfig,
        segments: LogSegments,
        *,
        recovery_point: int,
        log_end_offset: int,
    ) -> None:
        self._environment = environment
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.segments = segments  # never empty
        self.recovery_point = recovery_point  # everything below it is on the device
        self.log_end_offset = log_end_offset  # where the next record goes
        self.doubtful_from = NO_DOUBT  # the offset of a segment whose flush failed
        self.has_unfinished_swap = False  # until the next start: files of a compacted segment could not be renamed
        self.unsynced_directory = True  # names were made or removed that the device may not have

    @property
    def is_in_doubt(self) -> bool:
        """A flush has failed: only the next start can tell what the device has, and later flushes say nothing."""
        return self.doubtful_from != NO_DOUBT

    def create_segment(self, base_offset: int) -> LogSegment:
        """An empty segment, not yet among the others.  StorageFailure."""
        return new_segment(self._environment, self.directory, base_offset, self.config)

    # -- read ------------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, size_max: int, upper_bound_offset: int, *, min_one_batch: bool, with_aborted: bool
    ) -> LogRead:
        """Whole batches from the one with `offset` on, all below `upper_bound_offset`, from one segment."""
        segments = self.segments
        active = segments.active
        segment = active if offset >= active.base_offset else segments.floor(offset)
        if segment is None or offset > self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"Received request for offset {offset} for partition {self.topic_partition}, but we only have log "
                f"segments upto {self.log_end_offset}."
            )
        if offset < min(upper_bound_offset, self.log_end_offset):
            while segment is not None:
                max_position = self._max_position(segment, upper_bound_offset)
                found = segment.read(offset, size_max, max_position, min_one_batch=min_one_batch)
                if found is not None:
                    aborted = None
                    if with_aborted:
                        aborted = self._collect_aborted(segment, offset, found.position, found.size)
                    if found.size == 0:
                        return LogRead(offset, None, aborted, first_entry_incomplete=True)
                    return LogRead(offset, found, aborted)
                if max_position < segment.size_bytes:
                    break
                segment = segments.higher(segment.base_offset)
        return LogRead(offset, None, () if with_aborted else None)

    def _max_position(self, segment: LogSegment, upper_bound_offset: int) -> int:
        if upper_bound_offset >= self.log_end_offset:
            return segment.size_bytes
        if segment is not self.segments.active:
            following = self.segments.higher(segment.base_offset)
            if following is not None and following.base_offset <= upper_bound_offset:
                return segment.size_bytes
        position = segment.position_of(upper_bound_offset)
        return segment.size_bytes if position is None else position

    def _collect_aborted(
        self, segment: LogSegment, offset: int, position: int, size: int
    ) -> tuple[AbortedTransaction, ...]:
        following = self.segments.higher(segment.base_offset)
        upper_bound = segment.fetch_upper_bound_offset(position, size)
        if upper_bound is None:
            upper_bound = self.log_end_offset if following is None else following.base_offset
        return tuple(self.collect_aborted(offset, upper_bound))

    def collect_aborted(self, offset: int, upper_bound_offset: int) -> Iterable[AbortedTransaction]:
        """The aborted transactions with records in [offset, upper_bound_offset), each once."""
        found: list[AbortedTransaction] = []
        for segment in self.segments.from_offset(offset):
            part = segment.collect_aborted(offset, upper_bound_offset)
            found += part.transactions
            if part.is_complete:
                break
        return found

    def batch_start(self, offset: int) -> int:
        """Where the batch begins that holds `offset`; `offset` itself when none does.  StorageFailure."""
        segment = self.segments.floor(offset)
        return offset if segment is None else segment.batch_start(offset)

    def find_offset_by_timestamp(self, timestamp: int, starting_offset: int) -> TimestampAndOffset | None:
        """The first record at or after `starting_offset` that is not older than `timestamp`."""
        for segment in self.segments:
            if segment.max_timestamp_so_far.timestamp >= timestamp:
                found = segment.find_offset_by_timestamp(timestamp, starting_offset)
                if found is not None:
                    return found
        return None

    def find_max_timestamp(self) -> TimestampAndOffset | None:
        """The first record with the largest timestamp of all; None in an empty log."""
        best: LogSegment | None = None
        for segment in self.segments:
            largest = segment.max_timestamp_so_far.timestamp
            if largest >= 0 and (best is None or largest > best.max_timestamp_so_far.timestamp):
                best = segment
        if best is None:
            return None
        return best.find_offset_by_timestamp(best.max_timestamp_so_far.timestamp, best.base_offset)

    # -- change ----------------------------------------------------------------------------------------------------

    def roll(self, expected_base_offset: int) -> LogSegment:
        """Seal the active segment and start a new one at the log's end, or at `expected_base_offset` if that is later.

        StorageFailure, and nothing has changed, when the new file cannot be made.
        """
        base_offset = max(expected_base_offset, self.log_end_offset)
        active = self.segments.active
        if active.base_offset == base_offset and active.size_bytes == 0:
            return active
        assert base_offset > active.base_offset, f"{self.topic_partition}: cannot roll at {base_offset}"
        segment = self.create_segment(base_offset)
        active.seal()
        self.segments.add(segment)
        self.unsynced_directory = True
        self._environment.metrics.rolls.increment()
        return segment

    def delete_segments(self, segments: Iterable[LogSegment], *, delay_ms: int | None = None) -> list[Path]:
        """Take segments out of the log and set their files aside; returns the set-aside files.

        A name the disk refuses to change stays, and is found again, below the log start, at the next start.
        """
        paths: list[Path] = []
        for segment in segments:
            self.segments.remove(segment.base_offset)
            try:
                paths += segment.rename_deleted()
            except StorageFailure as failure:
                log.warning("segment_rename_failed", segment=str(segment.records.path), error=str(failure))
            self._environment.metrics.deleted_segments.increment()
        self.unsynced_directory = True
        return paths

    def truncate_to(self, offset: int) -> list[Path]:
        """Cut everything from `offset` on, the whole batch that holds it included; returns set-aside files."""
        now_ms = self._environment.clock.now_ms()
        beyond = [segment for segment in self.segments if segment.base_offset > offset]
        target = self.segments.floor(offset)
        assert target is not None, f"{self.topic_partition}: cut at {offset}, below {self.segments.first.base_offset}"
        target.truncate_to(offset, now_ms)
        paths = self.delete_segments(reversed(beyond))
        if target.is_sealed:
            target.unseal()
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        return paths

    def truncate_fully_and_start_at(self, offset: int) -> list[Path]:
        """Drop every batch; the log is empty and begins at `offset`.  Returns set-aside files."""
        now_ms = self._environment.clock.now_ms()
        kept = self.segments.get(offset)
        if kept is None:
            kept = self.create_segment(offset)
            self.segments.add(kept)
        else:
            kept.truncate_to(offset, now_ms)
        gone = [segment for segment in self.segments if segment is not kept]
        paths = self.delete_segments(reversed(gone))  # a power cut leaves the beginning of the log
        if kept.is_sealed:
            kept.unseal()
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        return paths


def new_segment(
    environment: LogEnvironment, directory: Path, base_offset: int, config: TopicConfig, *, may_replace: bool = True
) -> LogSegment:
    """An empty segment with its file.  StorageFailure."""
    return LogSegment.create(
        environment.file_system,
        environment.segment_cache,
        directory,
        base_offset,
        index_size_max=config.segment_index_bytes,
        created_ms=environment.clock.now_ms(),
        index_interval_bytes=config.index_interval_bytes,
        roll_jitter_ms=segment_jitter_ms(environment, config),
        may_replace=may_replace,
    )
