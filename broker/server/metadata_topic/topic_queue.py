"""TopicQueue: what waits to be appended to one partition of a metadata topic, in order."""

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from typing import Final

from broker.records.compression import CompressionType
from broker.records.memory_records_builder import MemoryRecordsBuilder
from broker.replication.replica_fetcher_manager import LeaderAddress

# Uncompressed; one append that is larger travels alone.  Below what the topic takes, and quickly made.
BATCH_BYTES_MAX: Final = 256 * 1024
_RECORD_OVERHEAD: Final = 24

LINGER_SECONDS: Final = 0.5  # of what may: it then goes along with others; readers look for it twice a second as well
RETRY_SECONDS: Final = 0.05
RETRY_SECONDS_MAX: Final = 1.0


class TopicAppend:
    """The values of one append, and whoever waits for the offset of the last of them."""

    __slots__ = ("acknowledged", "size_bytes", "values")

    def __init__(self, values: Sequence[bytes], acknowledged: "asyncio.Future[int]") -> None:
        self.values = values
        self.size_bytes = sum(map(len, values)) + _RECORD_OVERHEAD * len(values)
        self.acknowledged = acknowledged


class TopicQueue:
    """One batch is on its way at most: so the order is kept whatever becomes of it."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.size_bytes = 0
        self.retry_at = 0.0  # loop time before which nothing is sent, after a failure
        self._send_at = math.inf  # loop time at which what waits need not wait longer
        self.sent_to: LeaderAddress | None = None
        self._waiting: deque[TopicAppend] = deque()
        self._under_way: list[TopicAppend] = []
        self._retry_seconds = RETRY_SECONDS

    def __len__(self) -> int:
        return len(self._waiting) + len(self._under_way)

    @property
    def is_ready(self) -> bool:
        """Whether there is something to send and nothing on its way."""
        return bool(self._waiting) and not self._under_way

    @property
    def under_way_bytes(self) -> int:
        """Uncompressed."""
        return sum(append.size_bytes for append in self._under_way)

    @property
    def due_at(self) -> float:
        """When it must be sent; loop time.  Sooner is as good, but not before `retry_at`."""
        return max(self.retry_at, self._send_at)

    def add(self, append: TopicAppend, now: float, *, may_linger: bool = False) -> None:
        self._waiting.append(append)
        self.size_bytes += append.size_bytes
        is_full = self.size_bytes >= BATCH_BYTES_MAX
        self._send_at = min(self._send_at, now + LINGER_SECONDS if may_linger and not is_full else now)

    def take(self, leader: LeaderAddress, now_ms: int) -> bytearray | None:
        """The next batch, stamped with that wall time; None when nobody waits any more."""
        assert not self._under_way
        self.sent_to = leader
        size = 0
        while self._waiting and (not size or size + self._waiting[0].size_bytes <= BATCH_BYTES_MAX):
            append = self._waiting.popleft()
            if append.acknowledged.cancelled():
                self.size_bytes -= append.size_bytes
                continue
            self._under_way.append(append)
            size += append.size_bytes
        self._send_at = 0.0 if self._waiting else math.inf
        if not self._under_way:
            return None
        builder = MemoryRecordsBuilder(compression=CompressionType.LZ4)
        for append in self._under_way:
            for value in append.values:
                builder.append(now_ms, None, value)
        return builder.build()

    def succeeded(self, base_offset: int) -> None:
        """What was taken is acknowledged, and begins there."""
        next_offset = base_offset
        for append in self._end():
            next_offset += len(append.values)
            if not append.acknowledged.done():
                append.acknowledged.set_result(next_offset - 1)
        self._retry_seconds = RETRY_SECONDS
        self.retry_at = 0.0

    def refused(self, error: Exception) -> None:
        """What was taken will never be acknowledged."""
        for append in self._end():
            if not append.acknowledged.done():
                append.acknowledged.set_exception(error)

    def failed(self, now: float) -> None:
        """What was taken goes back to the front; it is sent again after a while."""
        self._waiting.extendleft(reversed(self._under_way))
        self._under_way.clear()
        self._send_at = 0.0
        self.retry_at = now + self._retry_seconds
        self._retry_seconds = min(2 * self._retry_seconds, RETRY_SECONDS_MAX)

    def close(self, error: Exception) -> None:
        """Nothing of it is acknowledged any more."""
        self._under_way.extend(self._waiting)
        self._waiting.clear()
        self.refused(error)

    def _end(self) -> list[TopicAppend]:
        ended, self._under_way = self._under_way, []
        self.size_bytes -= sum(append.size_bytes for append in ended)
        return ended
