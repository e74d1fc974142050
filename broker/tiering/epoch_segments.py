"""EpochSegments: the remote segments that have records of one leader epoch (Kafka: RemoteLogLeaderEpochState)."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from uuid import UUID


class EpochSegments:
    """Which finished segment an offset of the epoch is in, and which others there are that are not asked for records.

    Those are `unreferenced`: being copied, being deleted, or replaced by another that reaches further.
    """

    __slots__ = ("_ids", "_starts", "_unreferenced", "highest_offset")

    def __init__(self) -> None:
        self._starts: list[int] = []  # first offsets of the epoch within finished segments, ascending
        self._ids: dict[int, UUID] = {}
        self._unreferenced: dict[UUID, None] = {}  # a set that keeps its order
        self.highest_offset: int | None = None
        """The highest offset of the epoch that was ever copied; it never falls, whatever is deleted."""

    @property
    def referenced(self) -> tuple[UUID, ...]:
        """In order of their offsets."""
        return tuple(self._ids[start] for start in self._starts)

    @property
    def unreferenced(self) -> tuple[UUID, ...]:
        return tuple(self._unreferenced)

    def __iter__(self) -> Iterator[UUID]:
        """All of them."""
        yield from self.referenced
        yield from self._unreferenced

    def floor(self, offset: int) -> UUID | None:
        """The finished segment that begins, for this epoch, last of those that begin at `offset` or before."""
        slot = bisect_right(self._starts, offset)
        return self._ids[self._starts[slot - 1]] if slot else None

    def copy_started(self, segment_id: UUID) -> None:
        self._unreferenced[segment_id] = None

    def copy_finished(self, start_offset: int, end_offset: int, segment_id: UUID) -> None:
        """The segment has the epoch's records from `start_offset` to `end_offset`, inclusive.

        A new leader may copy again what the old one copied, cut otherwise: what begins later, or with it, and reaches
        no further is replaced.
        """
        if self.highest_offset is None or self.highest_offset <= end_offset:
            while self._starts and self._starts[-1] > start_offset:
                self._unreferenced[self._ids.pop(self._starts.pop())] = None
        replaced = self._ids.get(start_offset)
        if replaced is None:
            insort(self._starts, start_offset)
        else:
            self._unreferenced[replaced] = None  # Kafka lists it no more, so retention never finds it
        self._ids[start_offset] = segment_id
        self._unreferenced.pop(segment_id, None)
        self.highest_offset = end_offset if self.highest_offset is None else max(self.highest_offset, end_offset)

    def delete_started(self, start_offset: int, segment_id: UUID) -> None:
        if self._ids.get(start_offset) == segment_id:
            del self._ids[start_offset]
            del self._starts[bisect_left(self._starts, start_offset)]
        self._unreferenced[segment_id] = None

    def delete_finished(self, segment_id: UUID) -> None:
        self._unreferenced.pop(segment_id, None)
