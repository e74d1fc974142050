"""SliceGets: the slices that followers of this broker want, and the GETs that bring them: as few as possible."""

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, Protocol

from broker.common.buffers import Buffer
from broker.wal.follow.follower_term import FollowerTicket
from broker.wal.objects.object_ranges import ObjectRange, plan_ranges
from broker.wal.objects.wal_entry import WalEntry

# A bucket that does not answer holds each GET until its deadline; those to other buckets find the rest of them free.
FAILING_BUCKET_GETS: Final = 4


class SliceReceiver(Protocol):
    """Who wants a slice."""

    def wants(self, wanted: "WantedSlice") -> bool:
        """Whether it would still be of use; once False, for ever False."""

    def arrived(self, wanted: "WantedSlice", data: memoryview) -> None:
        """Its bytes, unverified; the whole answer lives as long as they do."""

    def came_wrong(self, wanted: "WantedSlice", error: Exception) -> None:
        """The object is shorter than announced, or the answer is."""

    def gone(self, wanted: "WantedSlice") -> None:
        """There is no such object."""

    def unreachable(self, wanted: "WantedSlice", until_ms: int) -> None:
        """The bucket did not answer: others first until then, by the wall clock."""


@dataclass(eq=False, slots=True)
class WantedSlice:
    """One wish of one follower.  `is_alone`: in a GET of its own, for it came wrong among others."""

    entry: WalEntry
    receiver: SliceReceiver
    ticket: FollowerTicket
    is_alone: bool = False


@dataclass(eq=False, slots=True)
class SliceGet:
    """One GET that is under way.  Who wants a slice that is in it anyway joins those who wait for it."""

    object_range: ObjectRange
    wanted: list[WantedSlice] = field(default_factory=list)

    @property
    def size(self) -> int:
        return self.object_range.size

    def covers(self, entry: WalEntry) -> bool:
        return _covers(self.object_range, entry)

    def bytes_of(self, wanted: WantedSlice, data: Buffer) -> memoryview:
        """CorruptSliceError when the answer is not all that was asked for."""
        return self.object_range.bytes_of(wanted.entry, data)


ObjectName = tuple[str, str]  # bucket, key


class _Queue:
    """Objects of one bucket of which slices are wanted; the oldest comes first."""

    __slots__ = ("_ages", "_wanted")

    def __init__(self) -> None:
        self._wanted: dict[str, list[WantedSlice]] = {}
        self._ages: list[tuple[int, str]] = []  # a heap: event timestamp and key

    def __bool__(self) -> bool:
        return bool(self._ages)

    def add(self, wanted: WantedSlice) -> None:
        key = wanted.entry.object_key
        if key not in self._wanted:
            self._wanted[key] = []
            heappush(self._ages, (wanted.entry.event_timestamp_ms, key))
        self._wanted[key].append(wanted)

    def pop(self) -> list[WantedSlice]:
        return self._wanted.pop(heappop(self._ages)[1])

    def clear(self) -> list[WantedSlice]:
        found = [wanted for each in self._wanted.values() for wanted in each]
        self._wanted.clear()
        self._ages.clear()
        return found


class SliceGets:
    """Wishes wait by object.  Buckets take turns, and of one bucket the oldest object comes first: a partition that
    has no slice in the older ones must not have a younger one got for itself alone, when the others are about to want
    theirs of it.

    Followers have a bounded number of wishes each, so what waits is bounded by the partitions followed.
    """

    def __init__(self, gets_max: int) -> None:
        self.gets_max = gets_max
        self.under_way_count = 0
        self._waiting: dict[str, _Queue] = {}  # by bucket, the one whose turn it is first
        self._under_way: dict[ObjectName, list[SliceGet]] = {}
        self._gets_of: dict[str, int] = {}  # under way, by bucket
        self._failures: dict[str, int] = {}  # in a row, by bucket

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def is_failing(self, bucket: str) -> bool:
        return bucket in self._failures

    def add(self, wanted: WantedSlice) -> None:
        """A GET under way that covers the slice brings it, else one that is yet to be made."""
        bucket = wanted.entry.bucket
        if not wanted.is_alone:
            for each in self._under_way.get((bucket, wanted.entry.object_key), ()):
                if each.covers(wanted.entry):
                    each.wanted.append(wanted)
                    return
        queue = self._waiting.get(bucket)
        if queue is None:
            queue = self._waiting[bucket] = _Queue()
        queue.add(wanted)

    def next(self) -> SliceGet | None:
        """The next one to make, which is under way from now on; None when nothing is to be made now."""
        if self.under_way_count >= self.gets_max:
            return None
        for bucket in list(self._waiting):
            if self.is_failing(bucket) and self._gets_of.get(bucket, 0) >= FAILING_BUCKET_GETS:
                continue
            queue = self._waiting.pop(bucket)
            while queue:
                alive = [wanted for wanted in queue.pop() if wanted.receiver.wants(wanted)]
                if not alive:
                    continue
                get, rest = self._begin(alive)
                for wanted in rest:
                    queue.add(wanted)
                if queue:
                    self._waiting[bucket] = queue
                return get
        return None

    def answered(self, get: SliceGet) -> None:
        """The bucket said something."""
        self._end(get)
        self._failures.pop(get.object_range.bucket, None)

    def unanswered(self, get: SliceGet) -> int:
        """The bucket could not be reached; how often in a row now."""
        self._end(get)
        bucket = get.object_range.bucket
        self._failures[bucket] = failures = self._failures.get(bucket, 0) + 1
        return failures

    def take_back(self, bucket: str) -> list[WantedSlice]:
        """All that waits for that bucket: it waits no longer."""
        queue = self._waiting.pop(bucket, None)
        return [] if queue is None else queue.clear()

    def _begin(self, alive: list[WantedSlice]) -> tuple[SliceGet, list[WantedSlice]]:
        """A GET of what one object has for these, and whom it brings nothing."""
        first = alive[0]
        if first.is_alone:
            (object_range,) = plan_ranges([first.entry])
            members = [first]
        else:
            entries = {wanted.entry.key: wanted.entry for wanted in alive if not wanted.is_alone}
            ranges = plan_ranges(entries.values())
            object_range = next(each for each in ranges if each.start <= first.entry.position < each.end)
            members = [wanted for wanted in alive if not wanted.is_alone and _covers(object_range, wanted.entry)]
        rest: list[WantedSlice] = []
        if len(members) < len(alive):
            chosen = set(members)
            rest = [wanted for wanted in alive if wanted not in chosen]
        get = SliceGet(object_range, members)
        bucket = object_range.bucket
        self._under_way.setdefault((bucket, object_range.object_key), []).append(get)
        self._gets_of[bucket] = self._gets_of.get(bucket, 0) + 1
        self.under_way_count += 1
        return get, rest

    def _end(self, get: SliceGet) -> None:
        bucket, object_key = get.object_range.bucket, get.object_range.object_key
        same = self._under_way[bucket, object_key]
        same.remove(get)
        if not same:
            del self._under_way[bucket, object_key]
        self.under_way_count -= 1
        self._gets_of[bucket] -= 1
        if not self._gets_of[bucket]:
            del self._gets_of[bucket]


def _covers(object_range: ObjectRange, entry: WalEntry) -> bool:
    return object_range.start <= entry.position and entry.object_end <= object_range.end
