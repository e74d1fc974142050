"""LogSegment: one `.log` file with its offset, time and transaction index (Kafka's class of that name)."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from broker.common.buffers import Buffer
from broker.common.errors import CorruptMessageError, InvalidRecordError, StorageFailure
from broker.common.file_system import FileSystem
from broker.common.identifiers import NO_TIMESTAMP
from broker.log.abstract_index import RELATIVE_OFFSET_MAX, CorruptIndexError
from broker.log.file_records import LOCATE_BYTES, FileRecords, FileSlice, OpenFile
from broker.log.log_file_names import DELETED_SUFFIX, segment_paths
from broker.log.offset_index import OffsetIndex
from broker.log.producer_state_entry import CompletedTxn
from broker.log.segment_cache import SegmentCache
from broker.log.time_index import TimeIndex, TimestampOffset
from broker.log.transaction_index import AbortedTransaction, AbortedTransactions, TransactionIndex
from broker.records.record_batch import RecordBatch

log = structlog.get_logger(__name__)

UNKNOWN: Final = -2  # a timestamp not yet looked up in the file
TIMESTAMP_MAX: Final = (1 << 63) - 1
NO_ROOM: Final = -1

OnBatch = Callable[[RecordBatch], list[tuple[CompletedTxn, int]]]


class TimestampAndOffset(NamedTuple):
    """A record found by its timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int


class LogSegment:
    """The batches of offsets from `base_offset` to the next segment's.

    Only the last segment of a log is appended to; the others are sealed: they live in the cache's bounds, losing
    descriptor and index memory when unused, and getting them back at the next read.
    """

    __slots__ = (
        "_bytes_since_last_index_entry",
        "_cache",
        "_file_system",
        "_first_append_timestamp",
        "_is_prepared",
        "_last_append_offset",
        "_last_append_position",
        "_max_timestamp",
        "_max_timestamp_offset",
        "base_offset",
        "created_ms",
        "index_interval_bytes",
        "is_flushed",
        "is_sealed",
        "offset_index",
        "records",
        "roll_jitter_ms",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        file_system: FileSystem,
        cache: SegmentCache,
        base_offset: int,
        records: FileRecords,
        indexes: tuple[OffsetIndex, TimeIndex, TransactionIndex],
        *,
        created_ms: int,
        index_interval_bytes: int,
        roll_jitter_ms: int = 0,
    ) -> None:
        self._file_system = file_system
        self._cache = cache
        self.base_offset = base_offset
        self.records = records
        self.offset_index, self.time_index, self.transaction_index = indexes
        self.created_ms = created_ms
        self.index_interval_bytes = index_interval_bytes
        self.roll_jitter_ms = roll_jitter_ms
        self.is_sealed = False
        self.is_flushed = False  # all four files, as sealed, are on the device
        self._is_prepared = False
        self._bytes_since_last_index_entry = 0
        self._last_append_offset = -1  # base offset and position of the newest batch: tail readers want just that
        self._last_append_position = 0
        is_empty = records.size_bytes == 0
        self._max_timestamp = NO_TIMESTAMP if is_empty else UNKNOWN
        self._max_timestamp_offset = base_offset
        self._first_append_timestamp = NO_TIMESTAMP if is_empty else UNKNOWN

    @classmethod
    def create(
        cls,
        file_system: FileSystem,
        cache: SegmentCache,
        directory: Path,
        base_offset: int,
        *,
        index_size_max: int,
        created_ms: int,
        index_interval_bytes: int,
        roll_jitter_ms: int = 0,
        may_replace: bool = True,
        suffix: str = "",
    ) -> "LogSegment":
        """An empty segment with its file, in place of files of that name.  StorageFailure, and nothing is there.

        Without `may_replace` the caller knows that there are no index files of that name.
        """
        log_path, index_path, time_index_path, transaction_index_path = segment_paths(directory, base_offset, suffix)
        records = FileRecords.create(file_system, log_path)
        if may_replace:
            for path in (index_path, time_index_path, transaction_index_path):
                file_system.remove(path)
        indexes = (
            OffsetIndex(file_system, index_path, base_offset, index_size_max),
            TimeIndex(file_system, time_index_path, base_offset, index_size_max),
            TransactionIndex(file_system, transaction_index_path, base_offset),
        )
        return cls(
            file_system,
            cache,
            base_offset,
            records,
            indexes,
            created_ms=created_ms,
            index_interval_bytes=index_interval_bytes,
            roll_jitter_ms=roll_jitter_ms,
        )

    @property
    def size_bytes(self) -> int:
        return self.records.size_bytes

    @property
    def memory_bytes(self) -> int:
        return self.offset_index.memory_bytes + self.time_index.memory_bytes

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of its records in ms; of a segment without any, when its file was last changed."""
        if self._max_timestamp == UNKNOWN:
            self._load_max_timestamp()
        if self._max_timestamp >= 0:
            return self._max_timestamp
        return self._file_system.modified_ms(self.records.path)

    @property
    def first_batch_timestamp(self) -> int:
        """The largest timestamp of its first batch; -1 without batches."""
        if self._first_append_timestamp == UNKNOWN:
            self.use_file()
            first = next(self.records.batches(), None)
            self._first_append_timestamp = NO_TIMESTAMP if first is None else first[1].max_timestamp
        return self._first_append_timestamp

    @property
    def max_timestamp_so_far(self) -> TimestampOffset:
        """The largest timestamp and the last offset of its batch; (-1, base offset) when there is none."""
        if self._max_timestamp == UNKNOWN:
            self._load_max_timestamp()
        return TimestampOffset(self._max_timestamp, self._max_timestamp_offset)

    # -- append ----------------------------------------------------------------------------------------------------

    def should_roll(
        self, size: int, max_timestamp: int, last_offset: int, now_ms: int, segment_bytes: int, segment_ms: int
    ) -> bool:
        """Whether a batch must go to a new segment instead, for one of the limits of `room`."""
        size_max, max_timestamp_max, last_offset_max = self.room(now_ms, segment_bytes, segment_ms)
        return size > size_max or max_timestamp > max_timestamp_max or last_offset > last_offset_max

    def room(self, now_ms: int, segment_bytes: int, segment_ms: int) -> tuple[int, int, int]:
        """What batches may have that go to this segment: together so many bytes, each a largest timestamp and a last
        offset of at most so much.  Beyond it the log rolls: for size, time, a full index, or offsets too far from the
        base.  Time is the records' own (KIP-32), so old records do not roll."""
        if not self._is_prepared:
            self._prepare_append()
        size_bytes = self.records.size_bytes
        size_max, max_timestamp_max = segment_bytes - size_bytes, TIMESTAMP_MAX
        if (
            self.offset_index.count >= self.offset_index.entries_max  # loaded: `_prepare_append`
            or self.time_index.count >= self.time_index.entries_max - 1
        ):
            size_max = NO_ROOM
        elif size_bytes:
            first, wait_ms_max = self._first_append_timestamp, segment_ms - self.roll_jitter_ms
            if first >= 0:
                max_timestamp_max = first + wait_ms_max
            elif now_ms - self.created_ms > wait_ms_max:
                size_max = NO_ROOM
        return size_max, max_timestamp_max, self.base_offset + RELATIVE_OFFSET_MAX

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Put whole batches at the end of the file; they count once `accept`ed.  StorageFailure: nothing changed."""
        self.records.write(buffers)

    def accept(self, batches: Sequence[RecordBatch]) -> None:
        """Written batches, in the order of the write, are part of the log now."""
        if not self._is_prepared:
            self._prepare_append()
        records, bytes_since_last_index_entry = self.records, self._bytes_since_last_index_entry
        end = records.size_bytes
        if end == 0:
            self._first_append_timestamp = batches[0].max_timestamp
        for batch in batches:
            position = end
            end += batch.size_bytes
            if batch.max_timestamp > self._max_timestamp:
                self._max_timestamp = batch.max_timestamp
                self._max_timestamp_offset = batch.base_offset + batch.last_offset_delta
            if bytes_since_last_index_entry > self.index_interval_bytes:
                if not self.offset_index.is_full:
                    self.offset_index.append(batch.base_offset + batch.last_offset_delta, position)
                self.time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)
                bytes_since_last_index_entry = 0
            bytes_since_last_index_entry += batch.size_bytes
        self._bytes_since_last_index_entry = bytes_since_last_index_entry
        self._last_append_offset = batch.base_offset
        self._last_append_position = position
        records.size_bytes = end

    def add_aborted(self, completed: CompletedTxn, last_stable_offset: int) -> None:
        """Index a transaction whose ABORT marker was just accepted here."""
        self.transaction_index.append(
            AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset)
        )

    # -- read ------------------------------------------------------------------------------------------------------

    def position_of(self, offset: int) -> int | None:
        """Where the first batch begins that has `offset` or a later one; None when there is none."""
        if offset == self._last_append_offset:
            return self._last_append_position
        if self.is_sealed:
            self._cache.touch(self)
        start, following = self.offset_index.positions_around(offset)
        # Large batches mostly have an entry each: then it is the following one, whose last offset is beyond.
        if (
            following is not None
            and following - start > LOCATE_BYTES
            and self.records.base_offset_at(following) <= offset
        ):
            return following
        return self.records.find(offset, start)

    def batch_start(self, offset: int) -> int:
        """The base offset of the batch that holds `offset`; `offset` itself when none does."""
        position = self.position_of(offset)
        return offset if position is None else min(offset, self.records.base_offset_at(position))

    def read(self, offset: int, size_max: int, max_position: int, *, min_one_batch: bool) -> FileSlice | None:
        """Whole batches from the one with `offset` on, not beyond `max_position` (a batch start or the end).

        None when nothing is there.  With `min_one_batch` the first batch comes even if it is larger (KIP-74);
        without, the slice may be of size 0.  The slice may end up to an index interval earlier than it could.
        """
        start = self.position_of(offset)
        if start is None or start >= max_position:
            return None
        return self.records.slice(start, self._end_of_read(start, size_max, max_position, min_one_batch) - start)

    def _end_of_read(self, start: int, size_max: int, max_position: int, min_one_batch: bool) -> int:
        limit = start + size_max
        if limit >= max_position:
            return max_position
        boundary = self.offset_index.position_at_or_before(limit)
        if boundary > start:
            return boundary
        end = start
        for batch in self.records.batch_positions(start, max_position):
            next_end = batch.position + batch.size
            if next_end > limit and not (min_one_batch and end == start):
                break
            end = next_end
            if end >= limit:
                break
        return end

    def use_file(self) -> OpenFile:
        """The log file, for who reads all of it; a sealed one is in the cache's bounds from now on."""
        if self.is_sealed:
            self._cache.touch(self)
        return self.records.file

    def fetch_upper_bound_offset(self, position: int, size: int) -> int | None:
        """An offset at or above the end of that range; None when it reaches past the last index entry."""
        return self.offset_index.fetch_upper_bound(position, size)

    def collect_aborted(self, fetch_offset: int, upper_bound_offset: int) -> AbortedTransactions:
        return self.transaction_index.collect(fetch_offset, upper_bound_offset)

    def find_offset_by_timestamp(self, timestamp: int, starting_offset: int) -> TimestampAndOffset | None:
        """The first record at or after `starting_offset` whose timestamp is not smaller.  Decodes records."""
        if self.is_sealed:
            self._cache.touch(self)
        entry = self.time_index.lookup(timestamp)
        position = self.offset_index.lookup(max(entry.offset, starting_offset)).position
        for _, batch in self.records.batches(position):
            if batch.max_timestamp < timestamp or batch.last_offset < starting_offset:
                continue
            for record in batch.records():
                if record.timestamp >= timestamp and record.offset >= starting_offset:
                    return TimestampAndOffset(record.timestamp, record.offset, batch.partition_leader_epoch)
        return None

    def read_next_offset(self) -> int:
        """The offset after the last batch; the base offset when there is none."""
        next_offset = self.base_offset
        start = self.offset_index.lookup(self.offset_index.last_offset).position
        for batch in self.records.batch_positions(start):
            next_offset = batch.last_offset + 1
        return next_offset

    # -- life cycle ------------------------------------------------------------------------------------------------

    def seal(self) -> None:
        """No longer the active segment: the last time entry is added and the indexes are written.

        A full disk does not stop it: what could not be written is written by the flush.
        """
        self.add_last_time_entry()
        try:
            self.write_indexes()
        except StorageFailure as failure:
            log.warning("index_write_failed", path=str(self.offset_index.path), error=str(failure))
        self.is_sealed = True
        self._cache.touch(self)

    def unseal(self) -> None:
        """The active segment again, after what followed was truncated."""
        self._cache.forget(self)
        self.is_sealed = False
        self.is_flushed = False

    def add_last_time_entry(self) -> None:
        if self.records.size_bytes:
            largest = self.max_timestamp_so_far
            self.time_index.maybe_append(largest.timestamp, largest.offset, skip_full_check=True)

    def write_indexes(self) -> None:
        """Bring the index files up to date without waiting for the device.  StorageFailure: try again later.

        A segment without records needs none: a start finds it empty by itself.
        """
        for index in (self.offset_index, self.time_index):
            if self.records.size_bytes or index.has_file:
                index.write()
        self.transaction_index.write()

    def unload(self) -> None:
        self.records.release()
        self.offset_index.unload()
        self.time_index.unload()
        self.transaction_index.unload()
        self._is_prepared = False

    @property
    def paths(self) -> tuple[Path, Path, Path, Path]:
        """Log file, offset index, time index, transaction index; one that has nothing to say may not exist."""
        return self.records.path, self.offset_index.path, self.time_index.path, self.transaction_index.path

    def index_paths(self) -> list[Path]:
        """The index files that exist, in the order they are flushed."""
        paths = [index.path for index in (self.offset_index, self.time_index) if index.has_file]
        if not self.transaction_index.is_empty:
            paths.append(self.transaction_index.path)
        return paths

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Cut at the batch that holds `offset`, or the first one after it: the whole batch goes."""
        position = self.position_of(offset)
        if position is not None:
            self.records.truncate_to(position)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        if self.records.size_bytes == 0:
            self.created_ms = now_ms
            self._max_timestamp = self._first_append_timestamp = NO_TIMESTAMP
        else:
            self._max_timestamp = UNKNOWN
        self._max_timestamp_offset = self.base_offset
        self._bytes_since_last_index_entry = 0
        self._last_append_offset = -1
        self._is_prepared = False
        self.is_flushed = False

    def recover(self, on_batch: OnBatch) -> int:
        """Read the whole file, rebuild the three indexes, cut what is not a whole valid batch.

        `on_batch` sees each batch and answers the aborted transactions it ended, with the stable offset each left
        behind.  Returns the bytes that were cut.  Files the disk refuses to write are written by a later flush.
        """
        self._reset_for_recovery()
        file_size = self.records.size_bytes
        self.records.size_bytes = 0
        next_offset = self.base_offset
        try:
            for _, batch in self.records.batches(0, file_size):
                batch.ensure_valid()
                if not next_offset <= batch.base_offset <= batch.last_offset <= self.base_offset + RELATIVE_OFFSET_MAX:
                    raise CorruptMessageError(f"offsets {batch.base_offset}..{batch.last_offset} at {next_offset}")
                aborted = on_batch(batch)
                self.accept((batch,))
                for completed, last_stable_offset in aborted:
                    self.add_aborted(completed, last_stable_offset)
                next_offset = batch.next_offset
        except (CorruptMessageError, InvalidRecordError) as error:
            log.warning(
                "invalid_batch_cut", path=str(self.records.path), position=self.records.size_bytes, error=str(error)
            )
        cut = file_size - self.records.size_bytes
        if cut:
            self.records.abandon()
        self.add_last_time_entry()
        try:
            self.write_indexes()
        except StorageFailure as failure:
            log.warning("index_write_failed", path=str(self.offset_index.path), error=str(failure))
        return cut

    def sanity_check(self) -> None:
        """CorruptIndexError when the indexes on disk cannot be this segment's."""
        self.transaction_index.sanity_check()
        if not self.is_sealed:
            self.offset_index.sanity_check()
            entry = self.offset_index.lookup(self.offset_index.last_offset)
            if entry.position > self.records.size_bytes:
                raise CorruptIndexError(f"{self.offset_index.path}: {entry} is beyond the end of the log file")

    def rename_deleted(self) -> list[Path]:
        """Set the files aside as `.deleted`; returns their new paths for removal.  Reads under way go on."""
        self._cache.forget(self)
        self.records.release()
        return self.rename(DELETED_SUFFIX)

    def rename(self, suffix: str) -> list[Path]:
        """Give the files their names with `suffix` behind; returns those that exist.  StorageFailure: some have it."""
        renamed = []
        targets = iter(segment_paths(self.records.path.parent, self.base_offset, suffix))
        for part in (self.records, self.offset_index, self.time_index, self.transaction_index):
            target = next(targets)
            with contextlib.suppress(FileNotFoundError):
                self._file_system.rename(part.path, target)
                renamed.append(target)
            part.path = target
        return renamed

    def moved_to(self, directory: Path) -> None:
        """The directory got another name."""
        self.records.path = directory / self.records.path.name
        for index in (self.offset_index, self.time_index, self.transaction_index):
            index.path = directory / index.path.name

    def close(self) -> None:
        """Give back descriptor and memory for good."""
        self._cache.forget(self)
        self.unload()

    def _reset_for_recovery(self) -> None:
        self.offset_index.reset()
        self.time_index.reset()
        self.transaction_index.reset()
        self._max_timestamp = self._first_append_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self._bytes_since_last_index_entry = 0
        self._is_prepared = True

    def _prepare_append(self) -> None:
        """Before the first append after a load: what an empty segment knows by itself."""
        if self._max_timestamp == UNKNOWN:
            self._load_max_timestamp()
        _ = self.first_batch_timestamp  # looked up for `room`
        for index in (self.offset_index, self.time_index):
            if not index.is_loaded:
                index.load()
        self._is_prepared = True

    def _load_max_timestamp(self) -> None:
        """The last time entry, or a larger timestamp in the batches after it."""
        if self.is_sealed:
            self._cache.touch(self)
        largest, offset = self.time_index.last_entry
        for _, batch in self.records.batches(self.offset_index.lookup(offset).position):
            if batch.max_timestamp > largest:
                largest, offset = batch.max_timestamp, batch.last_offset
        self._max_timestamp, self._max_timestamp_offset = largest, offset
