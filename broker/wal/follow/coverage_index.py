"""CoverageIndex: which offsets of a partition the buckets hold, when nobody needs the single slices any more."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final, NamedTuple

from broker.wal.follow.lineage import Lineage
from broker.wal.objects.wal_entry import WalEntry

EXPIRY_GRANULARITY_MS: Final = 60_000  # slices that expire in the same minute count as one, so runs stay few


class CoverageRun(NamedTuple):
    """Offsets, `end_offset` exclusive, of batches of one epoch, in one bucket until about the same time."""

    start_offset: int
    end_offset: int
    epoch: int
    bucket: str
    expires_ms: int


class OffsetRange(NamedTuple):
    """`end_offset` is exclusive."""

    start_offset: int
    end_offset: int


class CoverageIndex:
    """Runs ascending by start; those of the same epoch, bucket and minute of expiry are merged.

    A new leader asks it what it must upload again.
    """

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[CoverageRun] = []

    @property
    def runs(self) -> tuple[CoverageRun, ...]:
        return tuple(self._runs)

    def add(self, entry: WalEntry, keep_ms: int) -> None:
        """The entry's object stays for `keep_ms` after it was announced."""
        expires_ms = (entry.event_timestamp_ms + keep_ms) // EXPIRY_GRANULARITY_MS * EXPIRY_GRANULARITY_MS
        for run in entry.epoch_runs():
            self._add(CoverageRun(run.start_offset, run.end_offset, run.epoch, entry.bucket, expires_ms))

    def drop_below(self, offset: int) -> None:
        """The log starts at `offset`."""
        kept = [
            run._replace(start_offset=max(run.start_offset, offset)) for run in self._runs if run.end_offset > offset
        ]
        self._runs = sorted(kept)

    def drop_expired(self, now_ms: int) -> None:
        self._runs = [run for run in self._runs if run.expires_ms > now_ms]

    def clear(self) -> None:
        self._runs.clear()

    def valid_ranges(self, lineage: Lineage, unreachable: frozenset[str], now_ms: int) -> list[OffsetRange]:
        """What of the runs is in the leader's log and can be fetched."""
        return [
            OffsetRange(run.start_offset, min(run.end_offset, end))
            for run in self._runs
            if run.bucket not in unreachable
            and run.expires_ms > now_ms
            and (end := _end_in(lineage, run.epoch)) > run.start_offset
        ]

    def _add(self, merged: CoverageRun) -> None:
        touching = [
            run
            for run in self._runs[: bisect_left(self._runs, (merged.end_offset + 1,))]
            if run[2:] == merged[2:] and run.end_offset >= merged.start_offset
        ]
        for run in touching:
            self._runs.remove(run)
            merged = merged._replace(
                start_offset=min(run.start_offset, merged.start_offset),
                end_offset=max(run.end_offset, merged.end_offset),
            )
        insort(self._runs, merged)


def gaps(start_offset: int, end_offset: int, covered: Iterable[OffsetRange]) -> list[OffsetRange]:
    """What of [start, end) no range covers."""
    missing: list[OffsetRange] = []
    position = start_offset
    for one in sorted(covered):
        if one.end_offset <= max(position, one.start_offset):
            continue
        if one.start_offset >= end_offset:
            break
        if one.start_offset > position:
            missing.append(OffsetRange(position, one.start_offset))
        position = one.end_offset
    if position < end_offset:
        missing.append(OffsetRange(position, end_offset))
    return missing


def _end_in(lineage: Lineage, epoch: int) -> int:
    end = lineage.end_of(epoch)
    return -1 if end is None else end
