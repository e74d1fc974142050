"""SegmentCache: which sealed segments keep a descriptor open and their indexes in memory."""

from collections import OrderedDict
from typing import Final, Protocol

SEGMENTS_MAX: Final = 4_000  # beside 10,000 active segments this stays well under 20,000 descriptors
INDEX_BYTES_MAX: Final = 128 * 1024 * 1024  # a full 1 GiB segment has 2 to 5 MiB of entries


class Unloadable(Protocol):
    @property
    def memory_bytes(self) -> int: ...

    def unload(self) -> None:
        """Give back descriptor and memory; they return at the next use."""


class SegmentCache:
    """Least recently used segments are unloaded first.  Active segments are not in it."""

    def __init__(self, segments_max: int = SEGMENTS_MAX, index_bytes_max: int = INDEX_BYTES_MAX) -> None:
        self._segments_max = segments_max
        self._index_bytes_max = index_bytes_max
        self._segments: OrderedDict[Unloadable, int] = OrderedDict()
        self._index_bytes = 0

    def touch(self, segment: Unloadable) -> None:
        """`segment` was just used."""
        known = self._segments.get(segment)
        size = segment.memory_bytes
        if known is None:
            self._segments[segment] = size
            self._index_bytes += size
        else:
            self._segments.move_to_end(segment)
            if known != size:
                self._segments[segment] = size
                self._index_bytes += size - known
        while len(self._segments) > 1 and (
            len(self._segments) > self._segments_max or self._index_bytes > self._index_bytes_max
        ):
            oldest, oldest_size = self._segments.popitem(last=False)
            self._index_bytes -= oldest_size
            oldest.unload()

    def forget(self, segment: Unloadable) -> None:
        """`segment` is active again, or gone."""
        self._index_bytes -= self._segments.pop(segment, 0)

    @property
    def index_bytes(self) -> int:
        return self._index_bytes

    def __len__(self) -> int:
        return len(self._segments)
