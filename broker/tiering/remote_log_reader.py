"""RemoteLogReader: reads records of remote segments (Kafka: RemoteLogManager.read and lookupTimestamp)."""

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


class TieredPartition(Protocol):
    """What a read asks about the partition it reads."""

    async def segment_at(self, offset: int) -> RemoteLogSegmentMetadata | None:
        """The remote segment that has `offset`, in the epoch that offset has in the log; None when there is none."""

    def local_aborted(self, fetch_offset: int, upper_bound_offset: int) -> Iterable[AbortedTransaction]:
        """Aborted transactions in [fetch_offset, upper_bound_offset) whose markers are in local segments."""


@dataclass(frozen=True, slots=True)
class RemoteRead:
    """Whole batches of one segment; the first of them has the offset that was asked for, or a later one.

    `aborted` is None unless only committed records were asked for.
    """

    records: bytes = b""
    aborted: list[AbortedTransaction] | None = field(default=None)


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
        self, partition: TieredPartition, offset: int, size_max: int, *, min_one_message: bool, only_committed: bool
    ) -> RemoteRead:
        """Records from `offset` on, out of one segment.

        A first batch larger than `size_max` comes whole with `min_one_message`, else nothing comes (KIP-74; what
        Fetch before version 3 did, which cut it, is not done).  OffsetOutOfRangeError when no remote segment has the
        offset; RemoteStorageError.
        """
        segment = await partition.segment_at(offset)
        if segment is None:
            raise OffsetOutOfRangeError(f"no remote segment has offset {offset}")
        while segment is not None:
            first = await self._first_batch(segment, offset)
            if first is not None:
                return await self._read_from(partition, segment, first, size_max, min_one_message, only_committed)
            segment = await partition.segment_at(segment.next_offset)  # batches at its end may have been compacted
        return _NOTHING

    async def find_offset_by_timestamp(
        self, segment: RemoteLogSegmentMetadata, timestamp: int, starting_offset: int
    ) -> TimestampAndOffset | None:
        """The segment's first record at or after `starting_offset` whose timestamp is not smaller.

        RemoteStorageError.
        """
        indexes = await self._indexes.indexes(segment)
        known = max(indexes.time_index.lookup(timestamp).offset, starting_offset)
        position = indexes.offset_index.lookup(known).position
        while (batch := await self._batch_at(segment, position)) is not None:
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
        partition: TieredPartition,
        segment: RemoteLogSegmentMetadata,
        first: _BatchHeader,
        size_max: int,
        min_one_message: bool,
        only_committed: bool,
    ) -> RemoteRead:
        if first.size_bytes > size_max and not min_one_message:
            return _NOTHING
        size_bytes = max(size_max, first.size_bytes)
        data = await self._chunks.read(segment, first.position, size_bytes, read_ahead=True)
        records = data[: self._checked_size(segment, first.position, data)]
        if not only_committed:
            return RemoteRead(records)
        indexes = await self._indexes.indexes(segment)
        upper_bound = indexes.offset_index.fetch_upper_bound(first.position, len(records))
        if upper_bound is None:
            upper_bound = segment.next_offset
        return RemoteRead(records, await self._aborted(partition, segment, first.base_offset, upper_bound))

    async def _aborted(
        self, partition: TieredPartition, segment: RemoteLogSegmentMetadata, first_offset: int, upper_bound: int
    ) -> list[AbortedTransaction]:
        """Those that touch [first_offset, upper_bound): their markers may be in any later segment, or in the local
        log.  A transaction may be told of twice where segments overlap."""
        found: dict[AbortedTransaction, None] = {}
        current: RemoteLogSegmentMetadata | None = segment
        while current is not None:
            if not current.is_txn_index_empty:
                index = (await self._indexes.indexes(current)).transaction_index
                part = index.collect(first_offset, upper_bound)
                found.update(dict.fromkeys(part.transactions))
                if part.is_complete:
                    return list(found)
            current = await partition.segment_at(current.next_offset)
        found.update(dict.fromkeys(partition.local_aborted(first_offset, upper_bound)))
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

    def _checked_size(self, segment: RemoteLogSegmentMetadata, position: int, data: bytes) -> int:
        """Of the whole batches at the front.  No CRC covers base offsets, so those are looked at as well."""
        size_bytes, next_offset = 0, segment.start_offset
        try:
            for batch in batches(data):
                batch.ensure_valid()
                if not next_offset <= batch.base_offset <= batch.last_offset <= segment.end_offset:
                    raise CorruptMessageError(f"a batch at offset {batch.base_offset} cannot be there")
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
