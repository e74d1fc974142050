"""RemoteLogReader: reads records of remote segments (Kafka: RemoteLogManager.read and lookupTimestamp)."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from broker.common.disk import DiskExecutor
from broker.common.errors import CorruptMessageError, InvalidRecordError, OffsetOutOfRangeError
from broker.log.log_segment import TimestampAndOffset
from broker.log.transaction_index import AbortedTransaction
from broker.records.record_batch import BATCH_HEADER_SIZE, HEADER, LOG_OVERHEAD, MAGIC, RecordBatch, batches
from broker.tiering.errors import RemoteStorageError
from broker.tiering.remote_index_cache import RemoteIndexCache
from broker.tiering.remote_log_chunks import RemoteLogChunks
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata

SEGMENTS_PER_TURN: Final = 100  # that are looked through for aborted transactions before others get their turn


class SegmentPart(NamedTuple):
    """What a remote segment has of a log: the records below `end_offset`, exclusive, and not those after it.

    After an unclean election a segment may go on with what an earlier leader wrote, and this log does not have.
    """

    segment: RemoteLogSegmentMetadata
    end_offset: int

    @property
    def is_whole(self) -> bool:
        return self.end_offset >= self.segment.next_offset


class ReadableLog(Protocol):
    """What a read asks about the log it reads."""

    async def segment_at(self, offset: int) -> SegmentPart | None:
        """The remote segment that has `offset`, in the epoch that offset has in the log, with that record at least;
        None when there is none."""

    def local_aborted(self, fetch_offset: int, upper_bound_offset: int) -> Iterable[AbortedTransaction]:
        """Aborted transactions in [fetch_offset, upper_bound_offset) whose markers are in local segments."""


@dataclass(frozen=True, slots=True)
class RemoteRead:
    """Whole batches of one segment; the first of them has the offset that was asked for, or a later one.

    `aborted` is None unless only committed records were asked for.  `next_offset`: no remote segment has a record from
    the offset asked for up to there, and none has that one.
    """

    records: bytes = b""
    aborted: list[AbortedTransaction] | None = field(default=None)
    next_offset: int | None = None


class _BatchHeader(NamedTuple):
    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int

    @property
    def end(self) -> int:
        return self.position + self.size_bytes


_NOTHING: Final = RemoteRead()


class RemoteLogReader:
    """Keeps nothing of its own: indexes come from the cache, bytes from the chunks.

    Bytes of a bucket may be wrong: CRCs are checked here, and what is wrong is not kept.
    """

    def __init__(self, indexes: RemoteIndexCache, chunks: RemoteLogChunks, disk: DiskExecutor) -> None:
        self._indexes = indexes
        self._chunks = chunks
        self._disk = disk

    async def read(
        self,
        log: ReadableLog,
        offset: int,
        size_max: int,
        upper_bound_offset: int,
        *,
        min_one_message: bool,
        only_committed: bool,
    ) -> RemoteRead:
        """Records from `offset` on and below `upper_bound_offset`, out of one segment.

        A first batch larger than `size_max` comes whole with `min_one_message`, else nothing comes (KIP-74; what
        Fetch before version 3 did, which cut it, is not done).  OffsetOutOfRangeError when no remote segment has the
        offset; RemoteStorageError.
        """
        part = await log.segment_at(offset)
        if part is None:
            raise OffsetOutOfRangeError(f"no remote segment has offset {offset}")
        while part is not None:
            first = await self._first_batch(part.segment, offset)
            if first is not None and first.base_offset < part.end_offset:
                if first.size_bytes > size_max and not min_one_message:
                    return _NOTHING
                return await self._read_from(log, part, first, size_max, upper_bound_offset, only_committed)
            offset = part.end_offset  # batches at its end may have been compacted
            part = await log.segment_at(offset)
        return RemoteRead(next_offset=offset)

    async def find_offset_by_timestamp(
        self, segment: RemoteLogSegmentMetadata, timestamp: int, starting_offset: int, end_offset: int | None = None
    ) -> TimestampAndOffset | None:
        """The segment's first record at or after `starting_offset` whose timestamp is not smaller.

        With an `end_offset`, where batches begin and end, it is below that.  RemoteStorageError.
        """
        indexes = await self._indexes.indexes(segment)
        known = max(indexes.time_index.lookup(timestamp).offset, starting_offset)
        position = indexes.offset_index.lookup(known).position
        while (batch := await self._batch_at(segment, position)) is not None:
            if end_offset is not None and batch.base_offset >= end_offset:
                return None
            if batch.max_timestamp >= timestamp and batch.last_offset >= starting_offset:
                data = await self._chunks.read(segment, position, batch.size_bytes)
                try:
                    # Off the loop: it decompresses and decodes a whole batch.
                    found = await self._disk.run(_first_record, data, timestamp, starting_offset)
                except (CorruptMessageError, InvalidRecordError) as error:
                    raise self._wrong(segment, position, str(error)) from error
                if found is not None:
                    return found
            position = batch.end
        return None

    async def _first_batch(self, segment: RemoteLogSegmentMetadata, offset: int) -> _BatchHeader | None:
        """The batch that has `offset`, or the first one after it; None when the segment ends before."""
        indexes = await self._indexes.indexes(segment)
        position = indexes.offset_index.lookup(offset).position
        while (batch := await self._batch_at(segment, position)) is not None:
            if batch.last_offset >= offset:
                return batch
            position = batch.end
        return None

    async def _read_from(
        self,
        log: ReadableLog,
        part: SegmentPart,
        first: _BatchHeader,
        size_max: int,
        upper_bound_offset: int,
        only_committed: bool,
    ) -> RemoteRead:
        segment = part.segment
        size_bytes = max(size_max, first.size_bytes)
        data = await self._chunks.read(segment, first.position, size_bytes, read_ahead=True)
        end_offset = min(part.end_offset, upper_bound_offset)
        records = data[: self._checked_size(segment, first.position, data, end_offset)]
        if not only_committed or not records:
            return RemoteRead(records)
        indexes = await self._indexes.indexes(segment)
        upper_bound = indexes.offset_index.fetch_upper_bound(first.position, len(records))
        if upper_bound is None or upper_bound > end_offset:
            upper_bound = min(segment.next_offset, end_offset)
        return RemoteRead(records, await self._aborted(log, part, first.base_offset, upper_bound))

    async def _aborted(
        self, log: ReadableLog, first: SegmentPart, first_offset: int, upper_bound: int
    ) -> list[AbortedTransaction]:
        """Those that touch [first_offset, upper_bound): their markers may be in any later segment, or in the local
        log.  A transaction may be told of twice where segments overlap."""
        found: dict[AbortedTransaction, None] = {}
        part: SegmentPart | None = first
        looked_at = 0
        while part is not None:
            looked_at += 1
            if looked_at % SEGMENTS_PER_TURN == 0:
                await asyncio.sleep(0)
            if not part.segment.is_txn_index_empty:
                index = (await self._indexes.indexes(part.segment)).transaction_index
                touching, is_complete = index.collect(first_offset, upper_bound)
                found.update(dict.fromkeys(each for each in touching if each.last_offset < part.end_offset))
                if is_complete and part.is_whole:
                    return list(found)
            part = await log.segment_at(part.end_offset)
        found.update(dict.fromkeys(log.local_aborted(first_offset, upper_bound)))
        return list(found)

    async def _batch_at(self, segment: RemoteLogSegmentMetadata, position: int) -> _BatchHeader | None:
        """None at the end of the log."""
        if position >= segment.segment_size_in_bytes:
            return None
        data = await self._chunks.read(segment, position, BATCH_HEADER_SIZE)
        if len(data) < BATCH_HEADER_SIZE:
            raise self._wrong(segment, position, f"{len(data)} bytes are no batch")
        base_offset, length, _, magic, _, _, last_offset_delta, _, max_timestamp, *_ = HEADER.unpack(data)
        size_bytes = length + LOG_OVERHEAD
        if magic != MAGIC or not BATCH_HEADER_SIZE <= size_bytes <= segment.segment_size_in_bytes - position:
            raise self._wrong(segment, position, f"no batch of format {magic} and {size_bytes} bytes can be there")
        if not segment.start_offset <= base_offset <= base_offset + last_offset_delta <= segment.end_offset:
            raise self._wrong(segment, position, f"a batch at offset {base_offset} cannot be there")
        return _BatchHeader(position, size_bytes, base_offset, base_offset + last_offset_delta, max_timestamp)

    def _checked_size(self, segment: RemoteLogSegmentMetadata, position: int, data: bytes, end_offset: int) -> int:
        """Of the whole batches at the front, below `end_offset`.  No CRC covers base offsets, so those are looked at
        as well."""
        size_bytes, next_offset = 0, segment.start_offset
        try:
            for batch in batches(data):
                batch.ensure_valid()
                if not next_offset <= batch.base_offset <= batch.last_offset <= segment.end_offset:
                    raise CorruptMessageError(f"a batch at offset {batch.base_offset} cannot be there")
                if batch.next_offset > end_offset:
                    break
                size_bytes, next_offset = size_bytes + batch.size_bytes, batch.next_offset
        except CorruptMessageError as error:
            raise self._wrong(segment, position + size_bytes, str(error)) from error
        return size_bytes

    def _wrong(self, segment: RemoteLogSegmentMetadata, position: int, reason: str) -> RemoteStorageError:
        self._chunks.forget(segment)
        return RemoteStorageError(f"remote segment {segment.segment_id} is corrupt at {position}: {reason}")


def _first_record(data: bytes, timestamp: int, starting_offset: int) -> TimestampAndOffset | None:
    batch = RecordBatch.parse(data)
    batch.ensure_valid()
    for record in batch.records():
        if record.timestamp >= timestamp and record.offset >= starting_offset:
            return TimestampAndOffset(record.timestamp, record.offset, batch.partition_leader_epoch)
    return None
