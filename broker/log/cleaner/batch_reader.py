"""BatchReader: the batches and records of a segment, read by the disk executor and decoded in slices of the loop.

Decoding is Python, and would hold the interpreter lock in a thread as well; so it is done in the loop, a millisecond
or so at a time, and requests get their turns in between.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Final

from broker.common.buffers import Buffer
from broker.common.disk import DiskExecutor
from broker.common.errors import CorruptMessageError
from broker.log.cleaner.io_throttle import IoThrottle
from broker.log.file_records import OpenFile
from broker.log.log_segment import LogSegment
from broker.records.compression import CompressionType, decompress
from broker.records.record import Record
from broker.records.record_batch import BATCH_HEADER_SIZE, LOG_OVERHEAD, RecordBatch, batches

CHUNK_BYTES: Final = 1 << 20  # one read; larger batches get one of their own
SLICE_COST: Final = 250  # records, at three or four microseconds each, between two turns of the others
BATCH_COST: Final = 3  # what a batch costs beside its records, in records
BYTES_PER_COST: Final = 16 * 1024  # likewise: its CRC is computed
INLINE_DECOMPRESSION_MAX: Final = 4096  # bytes: beyond it a hop to a thread costs less than it spares the loop


class BatchReader:
    """Reads for one pass at a time; `bytes_read` is what it has read since it was made."""

    def __init__(self, disk: DiskExecutor, throttle: IoThrottle) -> None:
        self._disk = disk
        self._throttle = throttle
        self._cost_left = SLICE_COST
        self.bytes_read = 0

    async def batches(self, segment: LogSegment, end_offset: int, position: int = 0) -> AsyncIterator[RecordBatch]:
        """The batches of a segment from `position`, the start of one, to its end now; `end_offset` is where it ends.

        CorruptMessageError when they are not whole, valid and in order; StorageFailure.
        """
        file, end, next_offset = segment.use_file(), segment.size_bytes, segment.base_offset
        while position < end:
            chunk = await self._read(file, position, min(CHUNK_BYTES, end - position))
            size = _first_size(chunk, end - position)
            if size > len(chunk):
                chunk = await self._read(file, position, size)
            start = position
            for batch in batches(chunk):
                batch.ensure_valid()
                if not next_offset <= batch.base_offset <= batch.last_offset < end_offset:
                    raise CorruptMessageError(f"{file.path}: {batch} at {next_offset}, position {position}")
                await self.spend(BATCH_COST + batch.size_bytes // BYTES_PER_COST)
                yield batch
                position += batch.size_bytes
                next_offset = batch.next_offset
            if position == start:
                raise CorruptMessageError(f"{file.path}: no whole batch at position {position} of {end}")

    async def records(self, batch: RecordBatch) -> AsyncIterator[list[Record]]:
        """The records of a batch, some at a time.  InvalidRecordError."""
        codec = batch.compression
        decoded: Iterator[Record]
        if codec is CompressionType.NONE or batch.size_bytes <= INLINE_DECOMPRESSION_MAX:
            decoded = batch.records()
        else:
            payload = memoryview(batch.buffer)[BATCH_HEADER_SIZE:]
            decoded = batch.records_in(await self._disk.run(decompress, codec, payload))
        while part := list(islice(decoded, SLICE_COST)):
            yield part
            await self.spend(len(part))

    async def spend(self, cost: int) -> None:
        """Let others run if enough was done since they last did; `cost` is in records."""
        self._cost_left -= cost
        if self._cost_left <= 0:
            self._cost_left = SLICE_COST
            await asyncio.sleep(0)

    async def _read(self, file: OpenFile, position: int, size: int) -> Buffer:
        data = await self._disk.run(file.read_at, position, size)
        self.bytes_read += len(data)
        await self._throttle.spend(len(data))
        return data


def _first_size(chunk: Buffer, available: int) -> int:
    """How many bytes the first batch says it has; what cannot be is left to be found out by `batches`."""
    size = int.from_bytes(chunk[8:LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
    return size if size <= available else 0
