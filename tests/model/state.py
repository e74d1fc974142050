"""One partition: its replicas, the controller, the objects in the buckets and the metadata topic.

Everything inside of a list is immutable, so a state is copied by copying lists, and its key is made of tuples.
"""

from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, NamedTuple

from tests.model.epoch_cache import EpochStart, assign, truncate_from_end, truncate_from_start
from tests.model.settings import Settings

NOBODY = -1
UNKNOWN = -1
NOT_RESETTING = -1


class Cell(NamedTuple):
    """One offset of a log: a batch is `width` of them in a row."""

    epoch: int
    number: int
    position: int
    width: int


class Role:
    """What a replica believes to be."""

    NONE = 0
    LEADER = 1
    FOLLOWER = 2


class Phase:
    """How far a slice is on its way."""

    EPOCH_UNKNOWN = -1
    READ = 0
    STORED = 1
    SENT = 2


class Answer(IntEnum):
    """How a fetch was answered."""

    OK = 0
    ERROR = 1
    OUT_OF_RANGE = 2
    DIVERGING = 3


class Slice(NamedTuple):
    """A range of the leader's log on its way into the bucket and the metadata topic."""

    object_id: int
    start: int
    end: int
    epoch: int
    phase: int
    released: bool
    landed: bool


class StoredObject(NamedTuple):
    """An object of the bucket; it is there once `stored`."""

    stored: bool
    cells: tuple[Cell, ...]
    zone: int


class Entry(NamedTuple):
    """An event of the metadata topic: a slice, or (no object) the invalidation of older ones from `start` on."""

    start: int
    end: int
    epoch: int
    publisher: int
    object_id: int = 0
    backfill: bool = False


class Request(NamedTuple):
    """A follower's fetch on its way to a leader."""

    epoch: int
    offset: int
    last_epoch: int
    leader: int


class Response(NamedTuple):
    """The answer on its way back; `cells` are whole batches from `base` on."""

    epoch: int
    offset: int
    answer: Answer
    high_watermark: int = 0
    start: int = 0
    base: int = 0
    cells: tuple[Cell, ...] = ()
    diverging: tuple[int, int] = (UNKNOWN, UNKNOWN)


class Proposal(NamedTuple):
    """In-sync replicas that a leader asked for: 0 on its way, 1 accepted, 2 refused."""

    isr: tuple[int, ...]
    verdict: int


class LineageAnswer(NamedTuple):
    """What a leader said of an epoch (OffsetsForLeaderEpoch)."""

    asked: int
    epoch: int
    end: int


class Download(NamedTuple):
    """The bytes of an entry, fetched in an epoch, valid up to a limit as it seemed then."""

    entry: int
    epoch: int
    limit: int


@dataclass(slots=True)
class Replica:
    """One broker as far as this partition goes."""

    up: bool = True
    known_epoch: int = -1
    role: int = Role.NONE
    leader: int = NOBODY
    log: list[Cell | None] = field(default_factory=list)
    start: int = 0
    epochs: list[EpochStart] = field(default_factory=list)
    high_watermark: int = 0
    # as a leader
    epoch_start: int = 0
    isr: tuple[int, ...] = ()
    proposal: Proposal | None = None
    follower_ends: list[int] = field(default_factory=list)
    wal_next: int = 0
    wal_reserved: int = 0
    slices: list[Slice] = field(default_factory=list)
    # as a follower
    handshaken: bool = False
    leader_high_watermark: int = 0
    fetch: Request | Response | None = None
    stale_fetch: Request | Response | None = None
    lineage: list[LineageAnswer] = field(default_factory=list)
    reset_to: int = NOT_RESETTING
    # the metadata topic
    entries: list[int] = field(default_factory=list)
    consumed: int = 0
    downloads: list[Download] = field(default_factory=list)
    invalidations: list[tuple[int, int]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The log end offset."""
        return len(self.log)

    def append(self, batch: tuple[Cell, ...]) -> None:
        """Append one batch at the log's end."""
        assign(self.epochs, batch[0].epoch, len(self.log))
        self.log.extend(batch)

    def batch_start(self, offset: int) -> int:
        """The base offset of the batch around an offset; the offset itself at the log's end."""
        if offset >= len(self.log):
            return offset
        cell = self.log[offset]
        return offset if cell is None else offset - cell.position

    def end_without(self, batches: int) -> int:
        """The log end with that many batches fewer, not below the log start."""
        end = len(self.log)
        for _ in range(batches):
            end = self.batch_start(end - 1) if end > self.start else end
        return max(end, self.start)

    def truncate(self, offset: int) -> None:
        """Cut the log; a batch around the offset goes as a whole, and leaves a hole before it."""
        self.start = min(self.start, offset)
        if offset < len(self.log):
            base = self.batch_start(offset)
            self.log[base:] = [None] * (offset - base)
        truncate_from_end(self.epochs, len(self.log))
        self.high_watermark = min(self.high_watermark, len(self.log))

    def restart_at(self, base: int) -> None:
        """An empty log begins anew at the base of the batch around its start; the start stays."""
        del self.log[base:]
        self.epochs = []

    def reset(self, start: int) -> None:
        """An empty log that begins at an offset."""
        self.log = [None] * start
        self.start = self.high_watermark = start
        self.epochs = []
        self.lineage = []

    def move_start(self, start: int) -> None:
        """Forget what is below."""
        self.start = start
        truncate_from_start(self.epochs, start)

    def slice_of(self, object_id: int) -> int:
        """The place of a slice among those in flight."""
        return next(place for place, each in enumerate(self.slices) if each.object_id == object_id)

    def copy(self) -> "Replica":
        """A replica that shares nothing that changes."""
        other = Replica.__new__(Replica)
        for name in REPLICA_FIELDS:
            value = getattr(self, name)
            setattr(other, name, value.copy() if type(value) is list else value)
        return other

    def key(self) -> tuple[Any, ...]:
        """Equal for equal replicas."""
        values = [getattr(self, name) for name in REPLICA_FIELDS]
        return tuple(tuple(value) if type(value) is list else value for value in values)


REPLICA_FIELDS = tuple(each.name for each in fields(Replica))


@dataclass(slots=True)
class State:
    """The world at one moment."""

    replicas: list[Replica]
    budget: list[int]
    isr: tuple[int, ...]
    epoch: int = 0
    leader: int = 0
    fenced: list[int] = field(default_factory=list)
    objects: list[StoredObject] = field(default_factory=list)
    dead_zones: list[int] = field(default_factory=list)
    in_flight: list[Entry] = field(default_factory=list)
    metadata: list[Entry] = field(default_factory=list)
    late_fetches: list[tuple[int, Request]] = field(default_factory=list)
    committed: list[Cell | None] = field(default_factory=list)
    next_batch: int = 1
    violation: str | None = None

    def broken(self, what: str) -> None:
        """Note the first promise that an action broke by itself."""
        self.violation = self.violation or what

    def object(self, entry: Entry) -> StoredObject:
        """The object an entry names."""
        return self.objects[entry.object_id - 1]

    def new_object(self, *, stored: bool, cells: tuple[Cell, ...], zone: int) -> int:
        """Its number, from 1."""
        self.objects.append(StoredObject(stored, cells, zone))
        return len(self.objects)

    def leads_now(self, replica: int, epoch: int) -> bool:
        """True for an active leader of exactly that epoch."""
        if replica < 0:
            return False
        other = self.replicas[replica]
        return other.up and other.role == Role.LEADER and other.known_epoch == epoch

    def copy(self) -> "State":
        """A state that shares nothing that changes."""
        other = State.__new__(State)
        for name in STATE_FIELDS:
            value = getattr(self, name)
            setattr(other, name, value.copy() if type(value) is list else value)
        other.replicas = [each.copy() for each in self.replicas]
        return other

    def key(self) -> tuple[Any, ...]:
        """Equal for equal states."""
        values = [getattr(self, name) for name in STATE_FIELDS if name != "replicas"]
        return (
            *(each.key() for each in self.replicas),
            *(tuple(value) if type(value) is list else value for value in values),
        )


STATE_FIELDS = tuple(each.name for each in fields(State))


def empty_state(settings: Settings) -> State:
    """Nobody knows anything yet; `actions.first_state` makes replica 0 the leader of epoch 0."""
    everyone = tuple(range(settings.replicas))
    replicas = [Replica(follower_ends=[UNKNOWN] * settings.replicas) for _ in everyone]
    return State(replicas, settings.budget(), everyone)


def batches(cells: tuple[Cell, ...], base: int) -> list[tuple[int, tuple[Cell, ...]]]:
    """The (base offset, cells) of what stands in a range; a batch that was cut comes as what is left of it."""
    found = []
    at = 0
    while at < len(cells):
        width = cells[at].width - cells[at].position
        found.append((base + at, cells[at : at + width]))
        at += width
    return found
