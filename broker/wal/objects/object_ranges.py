"""Which ranges of which objects to get for the slices a follower wants: as few requests as possible."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from broker.common.buffers import Buffer
from broker.wal.objects.slice_verifier import CorruptSliceError
from broker.wal.objects.wal_entry import WalEntry

# Bytes between two slices that are fetched along rather than asking twice.  A request costs as much as some hundred
# kilobytes; but slices known one by one arrive one by one, and what lies between them may be wanted by nobody here.
COMBINED_EVENT_GAP_MAX: Final = 64 * 1024
SLICE_EVENT_GAP_MAX: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class ObjectRange:
    """One ranged GET, and the slices that are in it in the order of the object.  `end` is exclusive."""

    bucket: str
    object_key: str
    start: int
    end: int
    entries: tuple[WalEntry, ...]

    @property
    def size(self) -> int:
        return self.end - self.start

    def bytes_of(self, entry: WalEntry, data: Buffer) -> memoryview:
        """The slice's bytes in the answer to this GET.  CorruptSliceError when the answer is not all that was asked."""
        if len(data) != self.size:
            raise CorruptSliceError(f"{len(data)} bytes of {self.object_key} instead of {self.size}")
        return memoryview(data)[entry.position - self.start : entry.object_end - self.start]


def plan_ranges(entries: Iterable[WalEntry], gap_max: int = COMBINED_EVENT_GAP_MAX) -> list[ObjectRange]:
    """The GETs for these slices: one per object, unless more than `gap_max` unwanted bytes lie between two of them.

    Objects come in the order in which their first slice does.
    """
    by_object: dict[tuple[str, str], list[WalEntry]] = {}
    for entry in entries:
        by_object.setdefault((entry.bucket, entry.object_key), []).append(entry)
    ranges: list[ObjectRange] = []
    for wanted in by_object.values():
        ranges += _merge(sorted(wanted, key=lambda entry: entry.position), gap_max)
    return ranges


def _merge(ordered: list[WalEntry], gap_max: int) -> list[ObjectRange]:
    ranges: list[ObjectRange] = []
    members: list[WalEntry] = []
    end = 0
    for entry in ordered:
        if members and entry.position - end > gap_max:
            ranges.append(_range(members, end))
            members = []
        end = max(end, entry.object_end) if members else entry.object_end
        members.append(entry)
    ranges.append(_range(members, end))
    return ranges


def _range(members: list[WalEntry], end: int) -> ObjectRange:
    first = members[0]
    return ObjectRange(first.bucket, first.object_key, first.position, end, tuple(members))
