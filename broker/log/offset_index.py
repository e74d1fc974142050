"""OffsetIndex: from an offset to the position of a batch at or before it (Kafka's `.index` files)."""

import sys
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import NamedTuple

from broker.common.buffers import Buffer
from broker.common.file_system import FileSystem
from broker.log.abstract_index import RELATIVE_OFFSET_MAX, AbstractIndex, CorruptIndexError


class OffsetPosition(NamedTuple):
    """The last offset of a batch, and where in the log file that batch starts."""

    offset: int
    position: int


class OffsetIndex(AbstractIndex):
    """Sparse entries (last offset of a batch, position of its start), strictly increasing in offset.

    An entry is 8 bytes: int32 offset relative to the segment's base, int32 position.
    """

    __slots__ = ("_offsets", "_positions")

    ENTRY_SIZE = 8

    def __init__(
        self, file_system: FileSystem, path: Path, base_offset: int, size_max: int, *, exists: bool = False
    ) -> None:
        super().__init__(file_system, path, base_offset, size_max, exists=exists)
        self._offsets = array("i")
        self._positions = array("i")

    @property
    def is_full(self) -> bool:
        return self.entry_count >= self.entries_max

    @property
    def last_offset(self) -> int:
        """The last entry's offset; the base offset when there is none."""
        return self.base_offset + self._offsets[-1] if self.entry_count else self.base_offset

    def append(self, offset: int, position: int) -> None:
        """Add an entry.  The caller keeps offsets increasing and within 2^31 of the base."""
        relative = offset - self.base_offset
        if not self._loaded:
            self.load()
        assert 0 <= relative <= RELATIVE_OFFSET_MAX, f"{self.path}: offset {offset} does not fit"
        assert not self.count or relative > self._offsets[-1], f"{self.path}: offset {offset} is not increasing"
        self._offsets.append(relative)
        self._positions.append(position)
        self._appended()

    def lookup(self, offset: int) -> OffsetPosition:
        """The greatest entry at or below `offset`; (base offset, 0) when there is none."""
        if not self._loaded:
            self.load()
        slot = bisect_right(self._offsets, offset - self.base_offset) - 1
        if slot < 0:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(self.base_offset + self._offsets[slot], self._positions[slot])

    def positions_around(self, offset: int) -> tuple[int, int | None]:
        """Where the greatest entry at or below `offset` points (0 when there is none), and the entry after it."""
        if not self._loaded:
            self.load()
        following = bisect_right(self._offsets, offset - self.base_offset)
        positions = self._positions
        return positions[following - 1] if following else 0, positions[following] if following < self.count else None

    def fetch_upper_bound(self, position: int, size: int) -> int | None:
        """An offset no batch of that range passes: the first entry at or after its end; None when past the last."""
        if not self._loaded:
            self.load()
        slot = bisect_left(self._positions, position + size)
        return self.base_offset + self._offsets[slot] if slot < self.count else None

    def position_at_or_before(self, position: int) -> int:
        """The greatest known start of a batch that is not after `position`."""
        if not self._loaded:
            self.load()
        slot = bisect_right(self._positions, position) - 1
        return self._positions[slot] if slot >= 0 else 0

    def truncate_to(self, offset: int) -> None:
        """Drop every entry with an offset at or above `offset`."""
        if not self._loaded:
            self.load()
        self._keep(bisect_left(self._offsets, offset - self.base_offset))

    def entries(self) -> list[OffsetPosition]:
        if not self._loaded:
            self.load()
        return [
            OffsetPosition(self.base_offset + relative, position)
            for relative, position in zip(self._offsets, self._positions, strict=True)
        ]

    def sanity_check(self) -> None:
        """CorruptIndexError when the entries are not increasing from the base on."""
        self.load(strict=True)
        if self.count and (self._offsets[0] < 0 or any(map(int.__ge__, self._offsets, self._offsets[1:]))):
            raise CorruptIndexError(f"{self.path}: offsets are not increasing")

    def _decode(self, data: Buffer) -> None:
        pairs = array("i")
        pairs.frombytes(data)
        if sys.byteorder == "little":
            pairs.byteswap()
        offsets, positions = pairs[0::2], pairs[1::2]
        count = len(offsets)
        while count and offsets[count - 1] == 0 and (count > 1 or positions[0] == 0):
            count -= 1  # a tail of zeros: preallocated by another broker that did not stop cleanly
        self._offsets, self._positions = offsets[:count], positions[:count]
        self.count = count

    def _encode(self, start: int, end: int) -> bytes:
        pairs = array("i", bytes((end - start) * 8))
        pairs[0::2] = self._offsets[start:end]
        pairs[1::2] = self._positions[start:end]
        if sys.byteorder == "little":
            pairs.byteswap()
        return pairs.tobytes()

    def _clear(self) -> None:
        self._offsets, self._positions = array("i"), array("i")

    def _drop_from(self, count: int) -> None:
        del self._offsets[count:]
        del self._positions[count:]
