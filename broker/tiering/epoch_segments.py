"""EpochSegments: the remote segments that have records of one leader epoch (Kafka: RemoteLogLeaderEpochState)."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple
from uuid import UUID


class _Copy(NamedTuple):
    """A finished segment and the offsets, inclusive, that it has of the epoch."""

    start_offset: int
    end_offset: int
    segment_id: UUID


_START: Final = attrgetter("start_offset")
_END: Final = attrgetter("end_offset")


class EpochSegments:
    """Which finished segment an offset of the epoch is in, and which others there are that are not asked for records.

    Those are `unreferenced`: being copied, being deleted, or within a longer one, which has all they have of the epoch.
    With the longer one deleted they are asked again: they are whole, and its records may be nowhere else.

    So an offset is found as long as any finished segment has it.  In Kafka the one that finishes last hides what
    begins with it, also what reaches further: the copy of a leader that was paused may hide records that have left the
    disks.
    """

    __slots__ = ("_covered", "_referenced", "_unreferenced", "highest_offset")

    def __init__(self) -> None:
        self._referenced: list[_Copy] = []  # none within another: their first and their last offsets ascend
        self._covered: list[_Copy] = []  # each within a referenced one; sorted
        self._unreferenced: dict[UUID, None] = {}  # a set that keeps its order
        self.highest_offset: int | None = None
        """The highest offset of the epoch that was ever copied; it never falls, whatever is deleted."""

    @property
    def referenced(self) -> tuple[UUID, ...]:
        """In order of their offsets."""
        return tuple(copy.segment_id for copy in self._referenced)

    @property
    def unreferenced(self) -> tuple[UUID, ...]:
        return tuple(self._unreferenced)

    def __iter__(self) -> Iterator[UUID]:
        """All of them."""
        yield from self.referenced
        yield from self._unreferenced

    def floor(self, offset: int) -> UUID | None:
        """The one that may have `offset`: of those asked for records that begin, for this epoch, at `offset` or before,
        the one that reaches furthest."""
        slot = bisect_right(self._referenced, offset, key=_START)
        return self._referenced[slot - 1].segment_id if slot else None

    def copy_started(self, segment_id: UUID) -> None:
        self._unreferenced[segment_id] = None

    def copy_finished(self, start_offset: int, end_offset: int, segment_id: UUID) -> None:
        """The segment has the epoch's records from `start_offset` to `end_offset`, inclusive; none if that is lower.

        A new leader may copy again what the old one copied, cut otherwise, and the old one may finish after it.
        """
        self.highest_offset = end_offset if self.highest_offset is None else max(self.highest_offset, end_offset)
        if start_offset <= end_offset:
            self._refer_to(_Copy(start_offset, end_offset, segment_id))
        else:
            self._unreferenced[segment_id] = None

    def delete_started(self, start_offset: int, end_offset: int, segment_id: UUID) -> None:
        """Whether or not its copy had finished; the offsets are those of `copy_finished`."""
        copy = _Copy(start_offset, end_offset, segment_id)
        self._unreferenced[segment_id] = None
        if not _take(copy, self._covered) and _take(copy, self._referenced):
            self._uncover(copy)

    def delete_finished(self, segment_id: UUID) -> None:
        self._unreferenced.pop(segment_id, None)

    def _refer_to(self, copy: _Copy) -> None:
        """Ask it for records from now on, and those within it no more; unless it is within a longer one.

        Of two with the same offsets the later one is asked, as in Kafka.
        """
        if self._is_covered(copy):
            self._cover(copy)
            return
        first = bisect_left(self._referenced, copy.start_offset, key=_START)
        last = bisect_right(self._referenced, copy.end_offset, key=_END)
        for within in self._referenced[first:last]:
            self._cover(within)
        self._referenced[first:last] = [copy]
        self._unreferenced.pop(copy.segment_id, None)

    def _is_covered(self, copy: _Copy) -> bool:
        slot = bisect_right(self._referenced, copy.start_offset, key=_START)
        if not slot:
            return False
        start_offset, end_offset, _ = self._referenced[slot - 1]
        is_same = (start_offset, end_offset) == (copy.start_offset, copy.end_offset)
        return end_offset >= copy.end_offset and not is_same

    def _cover(self, copy: _Copy) -> None:
        insort(self._covered, copy)
        self._unreferenced[copy.segment_id] = None

    def _uncover(self, gone: _Copy) -> None:
        """Those within it that are within no other."""
        first = bisect_left(self._covered, gone.start_offset, key=_START)
        last = bisect_right(self._covered, gone.end_offset, key=_START)
        for copy in self._covered[first:last]:
            if not self._is_covered(copy):
                _take(copy, self._covered)
                self._refer_to(copy)


def _take(copy: _Copy, copies: list[_Copy]) -> bool:
    """Out of sorted ones; whether it was there."""
    slot = bisect_left(copies, copy)
    is_there = slot < len(copies) and copies[slot] == copy
    if is_there:
        del copies[slot]
    return is_there
