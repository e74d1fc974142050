"""WalIntervalMap: the slices of one partition that a broker knows of, and which of them to fetch next.

Entries come in any order, twice, from leaders that are deposed and from those that are not known yet.  None replaces
another: which ones count is decided when they are needed, by the lineage of that moment.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from broker.common.identifiers import NO_OFFSET
from broker.schemas.remote_wal_metadata import (
    RemoteLogSegmentState,
    RemoteWalLogSegmentMetadataUpdateRecord,
    RemoteWalPartitionInvalidateRecord,
)
from broker.wal.follow.coverage_index import CoverageIndex, OffsetRange, gaps
from broker.wal.follow.lineage import Lineage
from broker.wal.objects.wal_entry import WalEntry

ENTRIES_MAX: Final = 20_000  # minutes of slices; whoever is that far behind reads the metadata again when it gets there
_FORGOTTEN_AT_ONCE: Final = 16  # one in so many: history that is told after the present would push out one by one
# Of those that end between high watermark and log end.  A replica that loses more of its tail than this reads the
# metadata again; a high watermark may stand still for hours.
PASSED_MAX: Final = 1_000
# Objects whose slices of a partition are fetched ahead of its log.  More than there are GETs at once: partitions that
# lag then want the same objects, although not each has a slice in each, and an object is got once for all.
OBJECTS_AHEAD_MAX: Final = 32
SLICES_AHEAD_MAX: Final = 256
_DELETED_MAX: Final = 10_000  # states told before their slices; they never arrive for slices that are gone

_VOID_STATES: Final = frozenset(
    {RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED}
)


@dataclass(frozen=True, slots=True)
class PlannedSlice:
    """A slice to fetch, for its batches from `offset` on and below `valid_until`."""

    entry: WalEntry
    offset: int
    valid_until: int


@dataclass(frozen=True, slots=True)
class WalFetchPlan:
    """The slices that continue the log, in order; and the epochs to ask the leader about before more can be said.

    `is_held_back`: another slice may go on after them, but could not be fetched lately.
    """

    slices: tuple[PlannedSlice, ...]
    epochs_to_ask: frozenset[int]
    is_held_back: bool = False


class _Known:
    """An entry and what became of it."""

    __slots__ = ("entry", "fenced_in_epoch", "is_void", "key", "retry_at_ms")

    def __init__(self, entry: WalEntry) -> None:
        self.entry = entry
        self.key = entry.key
        self.is_void = False
        self.retry_at_ms = 0
        self.fenced_in_epoch = -1


def _start_of(known: _Known) -> int:
    return known.entry.start_offset


def _key_of(known: _Known) -> tuple[int, int, UUID]:
    return known.key


class WalIntervalMap:
    """Kept while this broker follows and while it leads: a new leader must know what the buckets hold.

    An entry is fetched for the log end.  It is let go when it ends below both log end and high watermark, for a
    follower may lose its tail and need what it had passed; or when there are too many of those.  Its offsets then live
    on in `coverage`.  When the log end falls below something let go, `needs_reseek` asks for the metadata of the
    partition to be read again.
    """

    def __init__(self, own_bucket: str, keep_ms: int, is_reachable: Callable[[str], bool]) -> None:
        """`keep_ms`: how long objects are kept.  `is_reachable` says of a bucket's URL whether it may be asked."""
        self.coverage = CoverageIndex()
        self.needs_reseek = False
        self.prune_mark = NO_OFFSET  # the highest offset of an entry that was let go
        self.fenced_count = 0
        self._own_bucket = own_bucket
        self._keep_ms = keep_ms
        self._is_reachable = is_reachable
        self._known: dict[tuple[int, int, UUID], _Known] = {}
        self._ahead: list[_Known] = []  # by key; they end at the log end or above
        self._passed: list[_Known] = []  # by key; they end below
        self._log_start_offset = 0
        self._log_end_offset = 0
        self._high_watermark = 0
        self._forgotten_from: int | None = None  # there were too many: none from here on is known
        self._deleted: dict[UUID, tuple[int, int]] = {}  # key 6: broker and leader epoch that said so
        self._invalid_from: dict[int, int] = {}  # key 7: offset by leader epoch

    def __len__(self) -> int:
        return len(self._known)

    @property
    def log_start_offset(self) -> int:
        """As last told by `log_start_moved`."""
        return self._log_start_offset

    @property
    def first_announced_offset(self) -> int | None:
        """The lowest offset that was ever announced, by whomever, as far as it is remembered."""
        starts = [known[0].entry.start_offset for known in (self._passed, self._ahead) if known]
        starts += [run.start_offset for run in self.coverage.runs[:1]]
        return min(starts, default=None)

    # -- what the metadata topic says -------------------------------------------------------------------------------

    def add(self, entry: WalEntry) -> bool:
        """Take note of a slice.  False when it changes nothing: known, useless, or nonsense."""
        known = _Known(entry)
        if known.key in self._known or not entry.is_plausible() or entry.end_offset < self._log_start_offset:
            return False
        if entry.state != RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            return False
        if entry.next_offset <= min(self._log_end_offset, self._high_watermark):
            self._let_go(known)
            return True
        if self._forgotten_from is not None and entry.start_offset >= self._forgotten_from:
            return False
        self._known[known.key] = known
        insort(self._list_of(known), known, key=_key_of)
        self._keep_bounds()
        return True

    def update(self, record: RemoteWalLogSegmentMetadataUpdateRecord) -> None:
        """A slice is deleted (key 6): by its publisher, or by the leader of an epoch, to whom is in that epoch."""
        if record.remote_log_segment_state in _VOID_STATES:
            self._deleted[record.remote_log_segment_id.id] = (record.broker_id, record.leader_epoch)
            if len(self._deleted) > _DELETED_MAX:
                del self._deleted[next(iter(self._deleted))]

    def invalidate(self, record: RemoteWalPartitionInvalidateRecord) -> None:
        """A leader voids what older epochs announced from an offset on (key 7).

        It counts in its own epoch alone: a later leader's log may hold what it voids.
        """
        earlier = self._invalid_from.get(record.leader_epoch, record.from_offset)
        self._invalid_from[record.leader_epoch] = min(earlier, record.from_offset)

    # -- what happens to the log ------------------------------------------------------------------------------------

    def begin_epoch(self, leader_epoch: int) -> None:
        """What was voided in older epochs is not void in this one."""
        self._invalid_from = {epoch: offset for epoch, offset in self._invalid_from.items() if epoch >= leader_epoch}

    def log_moved(self, log_end_offset: int, high_watermark: int) -> None:
        """Both may move back: a follower truncates."""
        moved_back = log_end_offset < self._log_end_offset
        self._log_end_offset = log_end_offset
        self._high_watermark = high_watermark
        if log_end_offset <= self.prune_mark or (
            self._forgotten_from is not None and log_end_offset >= self._forgotten_from
        ):
            self._ask_for_reseek()
            return
        if moved_back:
            self._ahead = sorted(self._known.values(), key=_key_of)
            self._passed = []
        self._move_passed()
        self._prune()
        self._keep_bounds()

    def log_start_moved(self, log_start_offset: int) -> None:
        """What is below has left the disk here: nobody takes it from a bucket.  It moves back when a log is begun anew
        below; what was passed over meanwhile is to be read again."""
        moved_back = log_start_offset < self._log_start_offset
        self._log_start_offset = log_start_offset
        if moved_back:
            self._ask_for_reseek()
            return
        for known in [each for each in self._known.values() if each.entry.end_offset < log_start_offset]:
            self._remove(known)
            self.prune_mark = max(self.prune_mark, known.entry.end_offset)
        self.coverage.drop_below(log_start_offset)

    def reseek_began(self) -> None:
        """The metadata of the partition is read again from the beginning."""
        self.needs_reseek = False

    def make_room(self, count: int) -> None:
        """Keep so many entries less, if possible: of those the log has passed the lowest, else those farthest ahead."""
        passed = min(count, len(self._passed))
        self._let_passed_go(passed)
        if count > passed:
            self._forget_the_last(count - passed)

    # -- what to fetch ----------------------------------------------------------------------------------------------

    def plan(self, lineage: Lineage, now_ms: int, objects_max: int = OBJECTS_AHEAD_MAX) -> WalFetchPlan:
        """Slices that continue the log from its end on, without a gap: all that are in so many objects."""
        planned: list[PlannedSlice] = []
        objects: set[tuple[str, str]] = set()
        offset = self._log_end_offset
        while len(planned) < SLICES_AHEAD_MAX:
            best = self._best(lineage, offset, now_ms)
            if best is None:
                to_ask = self._to_ask(lineage, offset, now_ms)
                return WalFetchPlan(tuple(planned), to_ask, self._is_held_back(lineage, offset, now_ms))
            name = best.entry.bucket, best.entry.object_key
            if name not in objects:
                if len(objects) == objects_max:
                    break
                objects.add(name)
            planned.append(best)
            offset = best.valid_until
        return WalFetchPlan(tuple(planned), frozenset())

    def next_start_of(self, leader_epoch: int, offset: int) -> int | None:
        """Where the next slice of that leader begins above `offset`; None when there is none."""
        for known in self._ahead[bisect_right(self._ahead, offset, key=_start_of) :]:
            if known.entry.leader_epoch == leader_epoch and not known.is_void:
                return known.entry.start_offset
        return None

    def valid_until(self, entry: WalEntry, lineage: Lineage, offset: int) -> int:
        """Up to which offset, exclusive, the batches of the entry from the one at `offset` on may be appended now.

        To be asked again when they are appended: the entry may have become void while its bytes came.
        """
        known = self._known.get(entry.key)
        if known is None or self._is_void(known, lineage) or not entry.start_offset <= offset <= entry.end_offset:
            return offset
        return self._valid_until(known, lineage, offset)

    def set_aside(self, entry: WalEntry, until_ms: int) -> None:
        """Fetching it failed: others come first until then."""
        known = self._known.get(entry.key)
        if known is not None:
            known.retry_at_ms = until_ms

    def drop(self, entry: WalEntry) -> None:
        """Its object is gone, or not what it should be.  Remembered, so that another event of it does not revive it."""
        known = self._known.get(entry.key)
        if known is not None:
            known.is_void = True

    def uncovered(self, lineage: Lineage, start_offset: int, end_offset: int, now_ms: int) -> list[OffsetRange]:
        """What of [start, end) no slice holds that a follower of this leader would use."""
        unreachable = frozenset(run.bucket for run in self.coverage.runs if not self._is_reachable(run.bucket))
        covered = self.coverage.valid_ranges(lineage, unreachable, now_ms)
        for known in self._known.values():
            if known.entry.start_offset < end_offset and self._is_usable(known, lineage, now_ms):
                first = max(known.entry.start_offset, lineage.leader_log_start_offset)
                if first <= known.entry.end_offset:
                    covered.append(OffsetRange(first, self._valid_until(known, lineage, first)))
        return gaps(start_offset, end_offset, covered)

    def _best(self, lineage: Lineage, offset: int, now_ms: int) -> PlannedSlice | None:
        """The slice of the newest leader; of those the one in the own zone's bucket, of those the one told last."""
        best: PlannedSlice | None = None
        best_rank: tuple[int, bool, int] | None = None
        for known in self._covering(offset):
            if not self._is_usable(known, lineage, now_ms):
                continue
            valid_until = self._valid_until(known, lineage, offset)
            entry = known.entry
            if valid_until <= offset:
                self._count_fenced(known, lineage, offset)
                continue
            rank = (entry.leader_epoch, entry.bucket == self._own_bucket, entry.metadata_offset)
            if best_rank is None or rank > best_rank:
                best, best_rank = PlannedSlice(entry, offset, valid_until), rank
        return best

    def _to_ask(self, lineage: Lineage, offset: int, now_ms: int) -> frozenset[int]:
        epochs = {
            epoch
            for known in self._covering(offset)
            if known.entry.leader_epoch < lineage.leader_epoch and self._is_usable(known, lineage, now_ms)
            for epoch, _, end_offset in known.entry.epoch_runs()
            if end_offset > offset
        }
        return frozenset(lineage.unknown(epochs))

    def _is_held_back(self, lineage: Lineage, offset: int, now_ms: int) -> bool:
        return any(
            not self._is_void(known, lineage)
            and not self._is_usable(known, lineage, now_ms)
            and (
                self._valid_until(known, lineage, offset) > offset
                or bool(lineage.unknown(epoch for epoch, _ in known.entry.leader_epochs))
            )
            for known in self._covering(offset)
        )

    def _covering(self, offset: int) -> Iterator[_Known]:
        for known in self._ahead[: bisect_right(self._ahead, offset, key=_start_of)]:
            if known.entry.end_offset >= offset:
                yield known

    def _is_usable(self, known: _Known, lineage: Lineage, now_ms: int) -> bool:
        return (
            known.retry_at_ms <= now_ms and not self._is_void(known, lineage) and self._is_reachable(known.entry.bucket)
        )

    def _is_void(self, known: _Known, lineage: Lineage) -> bool:
        if known.is_void:
            return True
        said_by = self._deleted.get(known.entry.slice_id)
        if said_by is None:
            return False
        broker_id, leader_epoch = said_by
        return broker_id == known.entry.broker_id or leader_epoch == lineage.leader_epoch

    def _valid_until(self, known: _Known, lineage: Lineage, offset: int) -> int:
        valid_until = lineage.valid_until(known.entry, offset)
        if known.entry.leader_epoch < lineage.leader_epoch:
            invalid_from = self._invalid_from.get(lineage.leader_epoch)
            if invalid_from is not None:
                valid_until = max(offset, min(valid_until, invalid_from))
        return valid_until

    def _count_fenced(self, known: _Known, lineage: Lineage, offset: int) -> None:
        """Of a leader whose records are not the current one's.  Once for each entry and epoch."""
        entry = known.entry
        if not lineage.is_agreed or entry.leader_epoch >= lineage.leader_epoch:
            return
        run_epoch = next(run.epoch for run in entry.epoch_runs() if run.end_offset > offset)
        if lineage.end_of(run_epoch) is not None and known.fenced_in_epoch != lineage.leader_epoch:
            known.fenced_in_epoch = lineage.leader_epoch
            self.fenced_count += 1

    # -- keeping and letting go -------------------------------------------------------------------------------------

    def _list_of(self, known: _Known) -> list[_Known]:
        return self._passed if known.entry.end_offset < self._log_end_offset else self._ahead

    def _move_passed(self) -> None:
        reach = bisect_left(self._ahead, self._log_end_offset, key=_start_of)
        passed = [known for known in self._ahead[:reach] if known.entry.end_offset < self._log_end_offset]
        if passed:
            self._ahead[:reach] = [
                known for known in self._ahead[:reach] if known.entry.end_offset >= self._log_end_offset
            ]
            for known in passed:
                insort(self._passed, known, key=_key_of)

    def _prune(self) -> None:
        floor = min(self._log_end_offset, self._high_watermark)
        reach = bisect_left(self._passed, floor, key=_start_of)
        if reach == 0:
            return
        kept: list[_Known] = []
        for known in self._passed[:reach]:
            if known.entry.end_offset < floor:
                del self._known[known.key]
                self._let_go(known)
            else:
                kept.append(known)
        self._passed[:reach] = kept

    def _let_go(self, known: _Known) -> None:
        entry = known.entry
        self.prune_mark = max(self.prune_mark, entry.end_offset)
        if not known.is_void and entry.slice_id not in self._deleted:
            self.coverage.add(entry, self._keep_ms)
        self._deleted.pop(entry.slice_id, None)

    def _remove(self, known: _Known) -> None:
        del self._known[known.key]
        self._ahead = [each for each in self._ahead if each is not known]
        self._passed = [each for each in self._passed if each is not known]

    def _keep_bounds(self) -> None:
        if len(self._passed) > PASSED_MAX:
            self._let_passed_go(len(self._passed) - PASSED_MAX)
        if len(self._known) > ENTRIES_MAX:
            self._forget_the_last(max(1, ENTRIES_MAX // _FORGOTTEN_AT_ONCE))

    def _let_passed_go(self, count: int) -> None:
        for known in self._passed[:count]:
            del self._known[known.key]
            self._let_go(known)
        del self._passed[:count]

    def _forget_the_last(self, count: int) -> None:
        """So many of those ahead, and what begins where they do.  What holds the log end would be sought again at once:
        it stays, unless there is nothing else."""
        if not self._ahead:
            return
        needed = bisect_right(self._ahead, self._log_end_offset, key=_start_of) % len(self._ahead)
        start_offset = self._ahead[max(needed, len(self._ahead) - count)].entry.start_offset
        first = bisect_left(self._ahead, start_offset, key=_start_of)
        for known in self._ahead[first:]:
            del self._known[known.key]
        del self._ahead[first:]
        self._forgotten_from = start_offset

    def _ask_for_reseek(self) -> None:
        self._known.clear()
        self._ahead.clear()
        self._passed.clear()
        self._deleted.clear()
        self.coverage.clear()
        self.prune_mark = NO_OFFSET
        self._forgotten_from = None
        self.needs_reseek = True
