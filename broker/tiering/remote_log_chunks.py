"""RemoteLogChunks: bytes of remote logs, fetched in chunks that next reads find in memory."""

from typing import Final, NamedTuple
from uuid import UUID

from broker.common.tasks import BackgroundTasks
from broker.tiering.errors import RemoteStorageError
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata
from broker.tiering.remote_storage_manager import RemoteStorageManager
from broker.tiering.single_flight import SingleFlight

# One request brings what a consumer fetches of a partition in four times (max.partition.fetch.bytes is 1 MiB).
CHUNK_BYTES: Final = 4 << 20
CACHE_BYTES: Final = 64 << 20  # the chunk of now and the one after it for eight partitions that are read at once
READ_AHEADS_MAX: Final = 4  # at once: what is read ahead must not make those wait who read now


class _ChunkKey(NamedTuple):
    segment_id: UUID
    number: int  # from 0; all but a log's last chunk have the same size


class RemoteLogChunks:
    """A bounded cache; what was unused for longest goes.  Many who want the same chunk cause one request.

    In memory are at most the cache and one chunk for each read and read-ahead under way.
    """

    def __init__(
        self,
        storage: RemoteStorageManager,
        tasks: BackgroundTasks,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        """`tasks` are cancelled when their owner ends, and fetches with them."""
        self._storage = storage
        self._chunk_bytes = chunk_bytes
        self._cache_bytes = cache_bytes
        self._flights: SingleFlight[_ChunkKey, bytes] = SingleFlight(tasks)
        self._cache: dict[_ChunkKey, bytes] = {}  # the one used longest ago comes first
        self._read_aheads: dict[_ChunkKey, None] = {}
        self.cached_bytes = 0
        self.fetches = 0

    async def read(
        self, segment: RemoteLogSegmentMetadata, position: int, size_bytes: int, *, read_ahead: bool = False
    ) -> bytes:
        """Up to `size_bytes` of the log from `position` on; short only at its end.  RemoteStorageError.

        With `read_ahead` the next chunk is fetched in the background when the read comes near it.
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
        if read_ahead and (end - last * self._chunk_bytes) * 2 > self._chunk_bytes:
            self._read_ahead(segment, last + 1)
        return b"".join(parts)

    def forget(self, segment: RemoteLogSegmentMetadata) -> None:
        """What was read of it was wrong: the next read fetches it again."""
        for key in [key for key in self._cache if key.segment_id == segment.segment_id]:
            self.cached_bytes -= len(self._cache.pop(key))

    async def _chunk(self, segment: RemoteLogSegmentMetadata, number: int) -> bytes:
        key = _ChunkKey(segment.segment_id, number)
        chunk = self._cache.pop(key, None)
        if chunk is None:
            return await self._flights.run(key, lambda: self._fetch(segment, key))
        self._cache[key] = chunk
        return chunk

    def _read_ahead(self, segment: RemoteLogSegmentMetadata, number: int) -> None:
        key = _ChunkKey(segment.segment_id, number)
        is_beyond = number * self._chunk_bytes >= segment.segment_size_in_bytes
        if is_beyond or key in self._cache or key in self._flights or len(self._read_aheads) >= READ_AHEADS_MAX:
            return
        self._read_aheads[key] = None
        landing = self._flights.start(key, lambda: self._fetch(segment, key))
        landing.add_done_callback(lambda _: self._read_aheads.pop(key))

    async def _fetch(self, segment: RemoteLogSegmentMetadata, key: _ChunkKey) -> bytes:
        self.fetches += 1
        start = key.number * self._chunk_bytes
        end = min(start + self._chunk_bytes, segment.segment_size_in_bytes)
        pieces = [piece async for piece in self._storage.fetch_log_segment(segment, start, end - 1)]
        chunk = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if len(chunk) != end - start:
            raise RemoteStorageError(
                f"remote segment {segment.segment_id}: {len(chunk)} bytes at {start} where {end - start} were expected"
            )
        self._cache[key] = chunk
        self.cached_bytes += len(chunk)
        while self.cached_bytes > self._cache_bytes:
            oldest = next(iter(self._cache))
            self.cached_bytes -= len(self._cache.pop(oldest))
        return chunk
