"""RemoteLogChunks: bytes of remote logs, fetched in chunks that next reads find in memory."""

import asyncio
from typing import Final, NamedTuple
from uuid import UUID

from broker.common.tasks import BackgroundTasks
from broker.tiering.errors import RemoteStorageError, reading_remote_storage
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata
from broker.tiering.remote_storage_manager import RemoteStorageManager
from broker.tiering.single_flight import SingleFlight

# One request brings what a consumer fetches of a partition in twice (max.partition.fetch.bytes is 1 MiB).
CHUNK_BYTES: Final = 2 << 20
CACHE_BYTES: Final = 32 << 20  # the chunk of now and the one after it for eight partitions that are read at once
READ_AHEAD_CHUNKS: Final = 2  # a store that answers in 40 ms then gives a reader 100 MB/s
READ_AHEADS_MAX: Final = 8  # at once: what is read ahead must not make those wait who read now
ABANDONED_SECONDS: Final = 10.0  # a chunk that nobody asked for in that time has no reader any more


class _ChunkKey(NamedTuple):
    segment_id: UUID
    number: int  # from 0; all but a log's last chunk have the same size


class _Chunk(NamedTuple):
    data: bytes
    used_s: float  # by the loop's time


class RemoteLogChunks:
    """A bounded cache.  Many who want the same chunk cause one request.

    What was read to its end goes first, then what was unused for longest.  Nothing is read ahead where something that
    is being read would have to go for it: too many partitions at once are read without.  In memory are at most the
    cache and one chunk for each read and read-ahead under way.
    """

    def __init__(
        self,
        storage: RemoteStorageManager,
        tasks: BackgroundTasks,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        cache_bytes: int = CACHE_BYTES,
        read_ahead_chunks: int = READ_AHEAD_CHUNKS,
    ) -> None:
        """`tasks` are cancelled when their owner ends, and fetches with them."""
        self._storage = storage
        self._chunk_bytes = chunk_bytes
        self._cache_bytes = cache_bytes
        self.read_ahead_chunks = read_ahead_chunks
        self._flights: SingleFlight[_ChunkKey, bytes] = SingleFlight(tasks)
        self._live: dict[_ChunkKey, _Chunk] = {}  # the one used longest ago comes first
        self._spent: dict[_ChunkKey, _Chunk] = {}  # read to the end, or abandoned; likewise
        self._read_aheads: dict[_ChunkKey, None] = {}
        self._spent_bytes = 0
        self.cached_bytes = 0
        self.fetches = 0

    async def read(
        self, segment: RemoteLogSegmentMetadata, position: int, size_bytes: int, *, read_ahead: bool = False
    ) -> bytes:
        """Up to `size_bytes` of the log from `position` on; short only at its end.  RemoteStorageError.

        With `read_ahead` the reader is about to go on from there: the next chunks are fetched in the background.
        """
        end = min(position + size_bytes, segment.segment_size_in_bytes)
        if position >= end:
            return b""
        parts = []
        first, last = position // self._chunk_bytes, (end - 1) // self._chunk_bytes
        for number in range(first, last + 1):
            start = number * self._chunk_bytes
            chunk = memoryview(await self._chunk(segment, number))
            parts.append(chunk[max(position - start, 0) : end - start])
        if read_ahead:
            for number in range(first, end // self._chunk_bytes):
                self._spend(_ChunkKey(segment.segment_id, number))
            for number in range(last + 1, last + 1 + self.read_ahead_chunks):
                self._read_ahead(segment, number)
        return b"".join(parts)

    def forget(self, segment: RemoteLogSegmentMetadata) -> None:
        """What was read of it was wrong: the next read fetches it again."""
        for key in [key for key in (*self._live, *self._spent) if key.segment_id == segment.segment_id]:
            self._pop(key)

    async def _chunk(self, segment: RemoteLogSegmentMetadata, number: int) -> bytes:
        key = _ChunkKey(segment.segment_id, number)
        is_spent = key in self._spent  # and stays it: whoever goes on to the next chunk looks back for a batch
        chunk = self._pop(key)
        if chunk is None:
            return await self._flights.run(key, lambda: self._fetch(segment, key))
        self._keep(key, chunk.data)
        if is_spent:
            self._spend(key)
        return chunk.data

    def _read_ahead(self, segment: RemoteLogSegmentMetadata, number: int) -> None:
        key = _ChunkKey(segment.segment_id, number)
        is_beyond = number * self._chunk_bytes >= segment.segment_size_in_bytes
        if is_beyond or key in self._live or key in self._spent or key in self._flights or not self._has_room():
            return
        self._read_aheads[key] = None
        landing = self._flights.start(key, lambda: self._fetch(segment, key))
        landing.add_done_callback(lambda _: self._read_aheads.pop(key))

    def _has_room(self) -> bool:
        """For one more chunk that is read ahead."""
        abandoned_s = asyncio.get_running_loop().time() - ABANDONED_SECONDS
        while self._live and self._live[oldest := next(iter(self._live))].used_s < abandoned_s:
            self._spend(oldest)
        live_bytes = self.cached_bytes - self._spent_bytes
        reserved_bytes = (len(self._read_aheads) + 1) * self._chunk_bytes
        return len(self._read_aheads) < READ_AHEADS_MAX and live_bytes + reserved_bytes <= self._cache_bytes

    async def _fetch(self, segment: RemoteLogSegmentMetadata, key: _ChunkKey) -> bytes:
        self.fetches += 1
        start = key.number * self._chunk_bytes
        end = min(start + self._chunk_bytes, segment.segment_size_in_bytes)
        with reading_remote_storage(f"remote segment {segment.segment_id} at {start}"):
            pieces = [piece async for piece in self._storage.fetch_log_segment(segment, start, end - 1)]
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if len(data) != end - start:
            raise RemoteStorageError(
                f"remote segment {segment.segment_id}: {len(data)} bytes at {start} where {end - start} were expected"
            )
        self._keep(key, data)
        while self.cached_bytes > self._cache_bytes:
            self._pop(next(iter(self._spent or self._live)))
        return data

    def _keep(self, key: _ChunkKey, data: bytes) -> None:
        self._live[key] = _Chunk(data, asyncio.get_running_loop().time())
        self.cached_bytes += len(data)

    def _pop(self, key: _ChunkKey) -> _Chunk | None:
        chunk = self._live.pop(key, None)
        if chunk is None and (chunk := self._spent.pop(key, None)) is not None:
            self._spent_bytes -= len(chunk.data)
        if chunk is not None:
            self.cached_bytes -= len(chunk.data)
        return chunk

    def _spend(self, key: _ChunkKey) -> None:
        chunk = self._live.pop(key, None)
        if chunk is not None:
            self._spent[key] = chunk
            self._spent_bytes += len(chunk.data)
