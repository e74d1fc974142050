"""LogCompaction: one pass over one log (Kafka: Cleaner).

First the newest offset of each key of the dirty part is noted, then all segments up to there are written anew, a group
of them at a time, without the records that are not the newest.  The log goes on meanwhile: nothing is locked, and
before the new segment takes its place the old ones must still be there, untouched.
"""

from collections.abc import Sequence
from typing import Final

from broker.common.buffers import Buffer
from broker.common.disk import DiskExecutor
from broker.common.errors import CorruptMessageError, InvalidRecordError, StorageFailure
from broker.log.abstract_index import CorruptIndexError
from broker.log.cleaner.batch_reader import SLICE_COST, BatchReader
from broker.log.cleaner.cleanable_log import CleanableLog
from broker.log.cleaner.cleaned_segment import CleanedSegment
from broker.log.cleaner.cleaned_transactions import CleanedTransactions
from broker.log.cleaner.io_throttle import IoThrottle
from broker.log.cleaner.last_batches import LastBatches
from broker.log.cleaner.offset_map import OffsetMap
from broker.log.cleaner.record_filter import RecordFilter, RetainedBatch
from broker.log.cleaner.segment_groups import group_segments
from broker.log.cleaner.segment_swap import are_in_place, swap
from broker.log.log_environment import LogEnvironment
from broker.log.log_segment import LogSegment
from broker.records.compression import CompressionType
from broker.records.record_batch import RecordBatch

WRITE_BYTES: Final = 1 << 20  # what stays is written when it is as much as this,
WRITE_BATCHES_MAX: Final = 500  # or as many batches: each gets a look at the indexes, in one go
INLINE_COMPRESSION_MAX: Final = 4096  # bytes: beyond it a hop to a thread costs less than it spares the loop


class LogChangedError(Exception):
    """The log was closed, cut or deleted from meanwhile, or is not to be compacted any more: look at it again."""


class UncleanableLogError(Exception):
    """It cannot be compacted, now or later: a batch or an index is damaged, a flush has failed, or a swap could not be
    finished."""


class LogCompaction:
    """Made for one pass; `run` returns the offset below which the log is compacted now.

    LogChangedError, UncleanableLogError, StorageFailure: the groups done so far are done, and the pass begins anew.
    """

    def __init__(
        self,
        target: CleanableLog,
        producers: LastBatches,
        offset_map: OffsetMap,
        environment: LogEnvironment,
        disk: DiskExecutor,
        throttle: IoThrottle,
    ) -> None:
        self._target = target
        self._producers = producers  # the last batches of which the device has
        self._log = target.log
        self._map = offset_map
        self._environment = environment
        self._disk = disk
        self._throttle = throttle
        self._reader = BatchReader(disk, throttle)
        self._now_ms = environment.clock.now_ms()
        self.bytes_read = 0
        self.bytes_written = 0

    async def run(self) -> int:
        try:
            await self._fill_map()
            end_offset = self._map.latest_offset + 1
            sources = self._sources(0, end_offset)
            if not sources:
                raise LogChangedError(f"{self._log.topic_partition}: all that was to be compacted is deleted")
            filtered = self._filter()
            config = self._log.config
            for group in group_segments(
                sources,
                self._target.end_offset,
                size_max=config.segment_bytes,
                index_size_max=config.segment_index_bytes,
            ):
                await self._clean(group, *filtered)
            # What says that it is compacted must not be on the device before the names are.
            await self._disk.run(self._environment.file_system.sync_directory, self._log.directory)
            self._ensure_unchanged(())
        except (CorruptMessageError, InvalidRecordError, CorruptIndexError) as error:
            self._ensure_unchanged(())
            raise UncleanableLogError(str(error)) from error
        except FileNotFoundError as error:
            raise LogChangedError(str(error)) from error
        except StorageFailure:
            self._ensure_unchanged(())
            raise
        return end_offset

    def _filter(self) -> tuple[CleanedTransactions, RecordFilter]:
        transactions = CleanedTransactions()
        return transactions, RecordFilter(
            self._map,
            transactions,
            self._producers,
            now_ms=self._now_ms,
            delete_retention_ms=self._log.config.delete_retention_ms,
        )

    def _sources(self, offset: int, end_offset: int) -> list[LogSegment]:
        """The segments from that with `offset` on that begin below `end_offset`."""
        return [segment for segment in self._log.segments.from_offset(offset) if segment.base_offset < end_offset]

    def _end_of(self, segment: LogSegment) -> int:
        following = self._log.segments.higher(segment.base_offset)
        if following is None:
            raise LogChangedError(f"{self._log.topic_partition}: nothing follows segment {segment.base_offset}")
        return following.base_offset

    def _ensure_unchanged(self, sources: Sequence[LogSegment]) -> None:
        if not are_in_place(self._log, sources, self._target.truncation_count):
            raise LogChangedError(f"{self._log.topic_partition} changed while it was compacted")

    # -- the newest offset of each key -----------------------------------------------------------------------------

    async def _fill_map(self) -> None:
        start, end_offset = self._target.first_dirty_offset, self._target.end_offset
        sources = self._sources(start, end_offset)
        transactions = CleanedTransactions()
        transactions.add_aborted(self._log.local_log.collect_aborted(start, end_offset))
        self._map.reach(start - 1)
        self._ensure_unchanged(sources)
        for segment in sources:
            following = self._end_of(segment)
            position = segment.position_of(start) if start > segment.base_offset else 0
            if position is not None:
                async for batch in self._reader.batches(segment, following, position):
                    if not await self._note(batch, start, transactions):
                        return
            self._map.reach(following - 1)

    async def _note(self, batch: RecordBatch, start: int, transactions: CleanedTransactions) -> bool:
        """Put the keys of a batch into the map; returns whether they had room."""
        if batch.is_control:
            transactions.saw_control(batch)
        elif not transactions.saw_batch(batch):
            async for records in self._reader.records(batch):
                for record in records:
                    if record.key is None or record.offset < start:
                        continue
                    if not self._map.put(record.key, record.offset):
                        return False
        self._map.reach(batch.last_offset)
        return True

    # -- the segments anew -----------------------------------------------------------------------------------------

    async def _clean(
        self, sources: Sequence[LogSegment], transactions: CleanedTransactions, record_filter: RecordFilter
    ) -> None:
        self._ensure_unchanged(sources)
        log, environment = self._log, self._environment
        cleaned = await CleanedSegment.create(log, sources[0].base_offset, environment, self._disk, self._throttle)
        try:
            for source in sources:
                self._ensure_unchanged(sources)
                aborted = log.local_log.collect_aborted(source.base_offset, self._end_of(source))
                transactions.add_aborted(aborted)
                await self._copy(source, cleaned, record_filter)
            await cleaned.finish(transactions.take_index(), sources[-1].records.path)
            self._ensure_unchanged(sources)
            self.bytes_read += sum(source.size_bytes for source in sources)
            self.bytes_written += cleaned.segment.size_bytes
            is_complete = swap(log, cleaned.segment, sources, environment)
        except BaseException:
            cleaned.discard()
            raise
        if not is_complete:
            raise UncleanableLogError("files could not be renamed")

    async def _copy(self, source: LogSegment, cleaned: CleanedSegment, record_filter: RecordFilter) -> None:
        pending: list[RecordBatch] = []
        pending_bytes = 0
        async for batch in self._reader.batches(source, self._end_of(source)):
            retained = record_filter.begin(batch)
            if retained is None:
                continue
            outcome = await self._outcome(retained)
            if outcome is None:
                continue
            pending.append(RecordBatch.parse(bytes(outcome)))  # a copy: a view would keep all that was read with it
            pending_bytes += len(outcome)
            if pending_bytes >= WRITE_BYTES or len(pending) >= WRITE_BATCHES_MAX:
                await cleaned.write(pending)
                pending, pending_bytes = [], 0
        if pending:
            await cleaned.write(pending)

    async def _outcome(self, retained: RetainedBatch) -> Buffer | None:
        if not retained.drops_records:
            async for records in self._reader.records(retained.batch):
                retained.take(records)
        builder = retained.builder()
        if builder is None:
            return retained.original() or retained.empty()
        kept = retained.kept
        for start in range(0, len(kept), SLICE_COST):
            part = kept[start : start + SLICE_COST]
            for record in part:
                builder.append(record.timestamp, record.key, record.value, record.headers, offset=record.offset)
            await self._reader.spend(len(part))
        builder.override_last_offset(retained.batch.last_offset)
        if (
            retained.batch.compression is not CompressionType.NONE
            and builder.size_bytes_estimate > INLINE_COMPRESSION_MAX
        ):
            return await self._disk.run(builder.build)
        return builder.build()
