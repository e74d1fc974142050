"""TimeIndex: from a timestamp to an offset before which nothing is younger (Kafka's `.timeindex` files)."""

import struct
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Final, NamedTuple

from broker.common.buffers import Buffer
from broker.common.file_system import FileSystem
from broker.common.identifiers import NO_TIMESTAMP
from broker.log.abstract_index import RELATIVE_OFFSET_MAX, AbstractIndex, CorruptIndexError

_ENTRY: Final = struct.Struct(">qi")


class TimestampOffset(NamedTuple):
    """The largest timestamp so far (ms), and the last offset of the batch that has it."""

    timestamp: int
    offset: int


class TimeIndex(AbstractIndex):
    """Entries (largest timestamp so far, last offset of its batch), increasing in both.

    An entry is 12 bytes: int64 timestamp, int32 offset relative to the segment's base.
    """

    __slots__ = ("_offsets", "_timestamps")

    ENTRY_SIZE = 12

    def __init__(
        self, file_system: FileSystem, path: Path, base_offset: int, size_max: int, *, exists: bool = False
    ) -> None:
        super().__init__(file_system, path, base_offset, size_max, exists=exists)
        self._timestamps = array("q")
        self._offsets = array("i")

    @property
    def is_full(self) -> bool:
        """One slot is kept for the last entry, added when the segment is rolled or closed."""
        return self.entry_count >= self.entries_max - 1

    @property
    def last_entry(self) -> TimestampOffset:
        """(-1, base offset) when there is none."""
        if not self.entry_count:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(self._timestamps[-1], self.base_offset + self._offsets[-1])

    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> None:
        """Add an entry if `timestamp` is larger than the last one; equal or smaller is no news."""
        if not self._loaded:
            self.load()
        if timestamp < 0 or (self.count and timestamp <= self._timestamps[-1]):
            return
        if not skip_full_check and self.is_full:
            return
        relative = offset - self.base_offset
        assert 0 <= relative <= RELATIVE_OFFSET_MAX, f"{self.path}: offset {offset} does not fit"
        assert not self.count or relative >= self._offsets[-1], f"{self.path}: offset {offset} goes back"
        self._timestamps.append(timestamp)
        self._offsets.append(relative)
        self._appended()

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The greatest entry at or below `timestamp`; (-1, base offset) when there is none."""
        if not self._loaded:
            self.load()
        slot = bisect_right(self._timestamps, timestamp) - 1
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(self._timestamps[slot], self.base_offset + self._offsets[slot])

    def truncate_to(self, offset: int) -> None:
        """Drop every entry with an offset at or above `offset`."""
        if not self._loaded:
            self.load()
        self._keep(bisect_left(self._offsets, offset - self.base_offset))

    def entries(self) -> list[TimestampOffset]:
        if not self._loaded:
            self.load()
        return [
            TimestampOffset(timestamp, self.base_offset + relative)
            for timestamp, relative in zip(self._timestamps, self._offsets, strict=True)
        ]

    def sanity_check(self) -> None:
        """CorruptIndexError when timestamps or offsets go back."""
        self.load(strict=True)
        if self.count and (
            self._offsets[0] < 0
            or any(map(int.__ge__, self._timestamps, self._timestamps[1:]))
            or any(map(int.__gt__, self._offsets, self._offsets[1:]))
        ):
            raise CorruptIndexError(f"{self.path}: entries are not increasing")

    def _decode(self, data: Buffer) -> None:
        timestamps, offsets = array("q"), array("i")
        for timestamp, relative in _ENTRY.iter_unpack(data):
            if timestamp == 0 and relative == 0 and timestamps:
                break  # a tail of zeros: preallocated by another broker that did not stop cleanly
            timestamps.append(timestamp)
            offsets.append(relative)
        if len(timestamps) == 1 and timestamps[0] == 0 and offsets[0] == 0 and len(data) > self.ENTRY_SIZE:
            timestamps, offsets = array("q"), array("i")
        self._timestamps, self._offsets = timestamps, offsets
        self.count = len(timestamps)

    def _encode(self, start: int, end: int) -> bytes:
        pack = _ENTRY.pack
        return b"".join(map(pack, self._timestamps[start:end], self._offsets[start:end]))

    def _clear(self) -> None:
        self._timestamps, self._offsets = array("q"), array("i")

    def _drop_from(self, count: int) -> None:
        del self._timestamps[count:]
        del self._offsets[count:]
