"""LogSegments: the segments of one log, ordered by base offset (Kafka's class of that name)."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from broker.log.log_segment import LogSegment


class LogSegments:
    """An ordered map; the last one is the active segment."""

    __slots__ = ("_bases", "_segments", "active")

    active: LogSegment  # the last one; a log that is loaded always has one

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._segments: list[LogSegment] = []

    def add(self, segment: LogSegment) -> None:
        slot = bisect_left(self._bases, segment.base_offset)
        assert self._bases[slot : slot + 1] != [segment.base_offset], f"segment {segment.base_offset} exists"
        self._bases.insert(slot, segment.base_offset)
        self._segments.insert(slot, segment)
        self.active = self._segments[-1]

    def remove(self, base_offset: int) -> LogSegment:
        slot = bisect_left(self._bases, base_offset)
        assert self._bases[slot : slot + 1] == [base_offset], f"no segment {base_offset}"
        del self._bases[slot]
        segment = self._segments.pop(slot)
        if self._segments:
            self.active = self._segments[-1]
        return segment

    @property
    def first(self) -> LogSegment:
        return self._segments[0]

    def get(self, base_offset: int) -> LogSegment | None:
        slot = bisect_left(self._bases, base_offset)
        return self._segments[slot] if self._bases[slot : slot + 1] == [base_offset] else None

    def floor(self, offset: int) -> LogSegment | None:
        """The segment that would hold `offset`; None below the first one."""
        slot = bisect_right(self._bases, offset) - 1
        return self._segments[slot] if slot >= 0 else None

    def higher(self, base_offset: int) -> LogSegment | None:
        """The segment after the one with that base."""
        slot = bisect_right(self._bases, base_offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def from_offset(self, offset: int) -> list[LogSegment]:
        """The segment that holds `offset`, and all after it."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    @property
    def base_offsets(self) -> list[int]:
        return list(self._bases)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        """Oldest first, over the segments there are now."""
        return iter(self._segments[:])

    def __len__(self) -> int:
        return len(self._segments)
