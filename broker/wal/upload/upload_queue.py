"""UploadQueue: which ranges go into the next object, and which slices may be announced now.  No I/O.

One object is put together at a time; several may be on their way.  The caller reads what `next_read` says, makes the
object of the slices, uploads it and announces what `announceable` returns.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final
from uuid import UUID

from broker.common.identifiers import TopicIdPartition
from broker.records.record_batch import BATCH_HEADER_SIZE
from broker.wal.objects.combined_segment import EVENT_SIZE_MAX, TABLE_SIZE_MAX, table_row_size_max
from broker.wal.objects.wal_slice import SliceGapError, WalSlice
from broker.wal.upload.partition_uploads import LeaderTerm, PartitionUploads, Reservation
from broker.wal.upload.queued_partition import QueuedPartition

ANNOUNCE_WITHIN_MS: Final = 5 * 60_000  # then the orphan sweep may take the object, whose minimum age is twice that
ROW_EPOCHS: Final = 4  # of a slice whose bytes are not read yet
_OBJECTS_PER_UPLOAD_MAX: Final = 4  # not acknowledged, per allowed upload: a metadata topic that is down stops us

TermOf = Callable[[TopicIdPartition], LeaderTerm | None]


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """The settings `remote.wal.combine.*` and `remote.wal.upload.max.inflight`; linger and interval as chosen now."""

    interval_ms: int = 10
    linger_ms: int = 20
    min_bytes: int = 102_400
    max_bytes: int = 524_288
    partition_max_bytes: int = 131_072
    inflight_max: int = 4


class ObjectState(Enum):
    """Where an object is on its way."""

    MAKING = "making"
    UPLOADING = "uploading"
    STORED = "stored"
    ANNOUNCING = "announcing"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class SliceRead:
    """A range to read from one segment: whole batches from `start_offset` on, below `upper_offset`.

    `size_max` bytes or one batch; `room` as in `build_slice`.
    """

    reservation: Reservation
    start_offset: int
    upper_offset: int
    size_max: int
    room: int | None

    @property
    def partition(self) -> TopicIdPartition:
        return self.reservation.partition


class CombinedObject:
    """One object from its first read to the acknowledgement of its metadata."""

    __slots__ = ("_left_out", "_reservations", "is_full", "size", "slices", "state", "stored_at_ms", "table_size")

    def __init__(self) -> None:
        self.state = ObjectState.MAKING
        self.slices: list[WalSlice] = []  # in the order they were read; for whoever makes the object to let go
        self.table_size = TABLE_SIZE_MAX  # its bound
        self.size = self.table_size  # with it
        self.is_full = False
        self.stored_at_ms = 0
        self._reservations: dict[UUID, Reservation] = {}
        self._left_out: set[TopicIdPartition] = set()

    @property
    def reservations(self) -> Mapping[UUID, Reservation]:
        """By slice id, in the order they were read."""
        return MappingProxyType(self._reservations)

    @property
    def current_slice_ids(self) -> frozenset[UUID]:
        """Slices that still hold: the only ones to announce."""
        return frozenset(slice_id for slice_id, each in self._reservations.items() if each.is_current)

    def add(self, each: WalSlice, reservation: Reservation) -> None:
        self.slices.append(each)
        self._reservations[each.slice_id] = reservation
        row_size = table_row_size_max(each.partition.topic, len(each.leader_epochs))
        self.table_size += row_size
        self.size += each.size + row_size

    def leave_out(self, partition: TopicIdPartition) -> None:
        """Reading it failed: not again for this object."""
        self._left_out.add(partition)

    def takes(self, partition: TopicIdPartition) -> bool:
        return partition not in self._left_out


class UploadQueue:
    """Times are milliseconds of the loop's clock; `term_of` asks the partition (None: this broker does not lead it)."""

    def __init__(self, limits: UploadLimits, term_of: TermOf) -> None:
        self.limits = limits  # replaced when the policy chooses another linger or interval
        self._term_of = term_of
        self._partitions: dict[TopicIdPartition, QueuedPartition] = {}
        self._dirty: dict[TopicIdPartition, None] = {}  # whose turn it is first comes first
        self._held: dict[TopicIdPartition, int] = {}  # could not be read: until when they do not count as dirty
        self._making: CombinedObject | None = None
        self._objects: list[CombinedObject] = []  # sealed and not acknowledged, in the order they were made
        self._last_begin_ms: int | None = None
        self._reservation_count = 0

    # -- what happens to partitions ---------------------------------------------------------------------------------

    def activate(
        self,
        partition: TopicIdPartition,
        *,
        log_start_offset: int,
        high_watermark: int,
        log_end_offset: int,
        pending_bytes: int,
        now_ms: int,
    ) -> None:
        """This broker begins to lead the partition.

        It uploads from the high watermark on: what the old leader had beyond it, its followers may still lack, and the
        high watermark cannot move before they have it.
        """
        self.deactivate(partition)
        term = self._term_of(partition)
        if term is None:
            return
        uploads = PartitionUploads(partition, term, max(log_start_offset, high_watermark))
        self._partitions[partition] = QueuedPartition(uploads, uploads.wal_reserved)
        self.appended(partition, log_end_offset, pending_bytes, now_ms)

    def deactivate(self, partition: TopicIdPartition) -> None:
        """No longer led here, deleted, or its log is offline: nothing of it is announced any more."""
        queued = self._partitions.pop(partition, None)
        self._dirty.pop(partition, None)
        self._held.pop(partition, None)
        if queued is not None:
            queued.waits = True
            queued.uploads.release_all()

    def appended(self, partition: TopicIdPartition, log_end_offset: int, size: int, now_ms: int) -> None:
        """`size` bytes were appended."""
        queued = self._partitions.get(partition)
        if queued is not None:
            self.grown(queued, log_end_offset, size, now_ms)

    def queued(self, partition: TopicIdPartition) -> QueuedPartition | None:
        """To be given to `grown`."""
        return self._partitions.get(partition)

    def grown(self, queued: QueuedPartition, log_end_offset: int, size: int, now_ms: int) -> None:
        """As `appended`, for the hot path, which need not look the partition up."""
        queued.appended(log_end_offset, size, now_ms)
        if not queued.waits and queued.is_dirty:
            queued.waits = True
            queued.first_dirty_ms = now_ms
            self._dirty[queued.uploads.partition] = None

    def log_start_moved(self, partition: TopicIdPartition, log_start_offset: int) -> None:
        """Records below are deleted."""
        queued = self._partitions.get(partition)
        if queued is not None:
            queued.uploads.move_log_start(log_start_offset)
            self._refresh(queued)

    def restart_at(self, partition: TopicIdPartition, offset: int) -> None:
        """Go on at `offset` after a pause without uploads (no followers, or switched off)."""
        queued = self._partitions.get(partition)
        if queued is not None:
            queued.uploads.release_all()
            queued.uploads.restart_at(offset)
            self._refresh(queued)

    def uploads_of(self, partition: TopicIdPartition) -> PartitionUploads | None:
        queued = self._partitions.get(partition)
        return None if queued is None else queued.uploads

    def unannounced_since_ms(self, partition: TopicIdPartition) -> int | None:
        """When the oldest of what followers cannot find yet was appended; None when there is nothing."""
        queued = self._partitions.get(partition)
        if queued is None:
            return None
        oldest = queued.uploads.oldest
        if oldest is not None:
            return oldest.first_dirty_ms
        return queued.first_dirty_ms if queued.is_dirty else None

    def unannounced_bytes(self, partition: TopicIdPartition) -> int:
        """About how much of the partition followers cannot find yet."""
        queued = self._partitions.get(partition)
        return 0 if queued is None else queued.pending_bytes + queued.uploads.pending_bytes

    # -- putting an object together ---------------------------------------------------------------------------------

    @property
    def dirty(self) -> Iterable[TopicIdPartition]:
        """Partitions of which something waits."""
        return self._dirty.keys()

    @property
    def objects(self) -> list[CombinedObject]:
        """That which is being put together, and those on their way."""
        return ([self._making] if self._making is not None else []) + self._objects

    @property
    def is_making(self) -> bool:
        """Whether an object is being put together."""
        return self._making is not None

    def holds(self, sealed: CombinedObject) -> bool:
        """Whether something is still to come of the object."""
        return sealed in self._objects

    @property
    def has_objects(self) -> bool:
        """Whether objects are on their way."""
        return bool(self._objects)

    @property
    def pending_bytes(self) -> int:
        """What waits for an object, by the sizes of the appends."""
        return sum(self._partitions[partition].pending_bytes for partition in self._dirty)

    @property
    def uploading_count(self) -> int:
        return sum(each.state is ObjectState.UPLOADING for each in self._objects)

    def oldest_wait_ms(self, now_ms: int) -> int:
        """How long the oldest of the waiting bytes has waited."""
        return max((now_ms - self._partitions[partition].first_dirty_ms for partition in self._dirty), default=0)

    def wait_ms(self, now_ms: int) -> int | None:
        """How long until an object is due, if nothing happens; None while none can be."""
        if self._making is not None or self._is_busy():
            return None
        if self._held:
            self._let_go_held(now_ms)
            if not self._dirty:
                return max(0, min(self._held.values()) - now_ms)
        if not self._dirty:
            return None
        limits = self.limits
        pending = self.pending_bytes
        if pending >= limits.max_bytes or self._last_begin_ms is None:
            until_tick = 0
        else:
            until_tick = max(0, self._last_begin_ms + limits.interval_ms - now_ms)
        if pending >= limits.min_bytes:
            return until_tick
        return max(until_tick, limits.linger_ms - self.oldest_wait_ms(now_ms))

    def begin_object(self, now_ms: int) -> CombinedObject | None:
        """The next object if it is due."""
        if self.wait_ms(now_ms) != 0:
            return None
        self._last_begin_ms = now_ms
        self._making = CombinedObject()
        return self._making

    def next_read(self, making: CombinedObject) -> SliceRead | None:
        """What to read next; None when the object is complete.  `filled` or `read_failed` must follow."""
        assert making is self._making
        while not making.is_full:
            partition = next((each for each in self._dirty if making.takes(each)), None)
            if partition is None:
                return None
            queued = self._partitions[partition]
            if self._term_of(partition) != queued.uploads.term:
                self.deactivate(partition)
                continue
            row_size = table_row_size_max(partition.topic, ROW_EPOCHS)
            room = self.limits.max_bytes - making.size - row_size
            if making.slices and (room < BATCH_HEADER_SIZE or making.table_size + row_size > EVENT_SIZE_MAX):
                return None
            self._reservation_count += 1
            reservation = queued.uploads.reserve(self._reservation_count, queued.first_dirty_ms)
            return SliceRead(
                reservation,
                reservation.start_offset,
                queued.log_end_offset,
                max(1, min(self.limits.partition_max_bytes, room)),
                room if making.slices else None,
            )
        return None

    def filled(self, making: CombinedObject, read: SliceRead, built: WalSlice | None) -> None:
        """The slice that was read; None when it does not fit, which completes the object."""
        reservation = read.reservation
        queued = self._partitions.get(reservation.partition)
        if queued is None or not reservation.is_current:
            return  # released while it was read
        if built is None:
            making.is_full = True
            queued.uploads.release_from(reservation)
            return  # it keeps its turn: first in the next object
        if not queued.uploads.fill(reservation, built):
            making.leave_out(reservation.partition)
            return
        making.add(built, reservation)
        if making.size >= self.limits.max_bytes:
            making.is_full = True
        queued.pending_bytes = max(0, queued.pending_bytes - built.size)
        queued.taken()
        del self._dirty[reservation.partition]
        if queued.is_dirty:
            self._dirty[reservation.partition] = None  # behind all others
        else:
            queued.pending_bytes = 0
            queued.waits = False

    def read_failed(
        self,
        making: CombinedObject,
        read: SliceRead,
        error: Exception | None = None,
        *,
        hold_until_ms: int | None = None,
    ) -> None:
        """The range could not be read: deleted, cut or damaged.  It is tried again for the next object, but not
        before `hold_until_ms`."""
        making.leave_out(read.partition)
        queued = self._partitions.get(read.partition)
        if queued is None or not read.reservation.is_current:
            return
        queued.uploads.release_from(read.reservation)
        if isinstance(error, SliceGapError):
            queued.uploads.restart_at(error.next_base_offset)
        self._refresh(queued)
        if hold_until_ms is not None and self._dirty.pop(read.partition, self) is None:
            self._held[read.partition] = hold_until_ms

    def seal(self, making: CombinedObject) -> bool:
        """The object is complete and is uploaded now.  False when there is nothing in it."""
        assert making is self._making
        self._making = None
        if not making.current_slice_ids:
            making.state = ObjectState.DONE
            return False
        making.state = ObjectState.UPLOADING
        self._objects.append(making)
        return True

    # -- what becomes of objects ------------------------------------------------------------------------------------

    def stored(self, sealed: CombinedObject, now_ms: int) -> None:
        """The object is in the bucket."""
        if sealed.state is ObjectState.UPLOADING:
            sealed.state = ObjectState.STORED
            sealed.stored_at_ms = now_ms
            sealed.slices.clear()

    def announceable(self) -> list[CombinedObject]:
        """Objects whose metadata goes out now, in this order, for `current_slice_ids` alone.

        The slices of a partition are sent in offset order.  None waits for the acknowledgement of those before it:
        the topic keeps the order, and where it cannot (one is refused and sent again) followers sort it out.
        """
        ready: list[CombinedObject] = []
        for each in list(self._objects):
            if each.state is ObjectState.STORED:
                self._release_those_of_other_terms(each)
                if not each.current_slice_ids:
                    self._finish(each)  # an orphan now, for the sweep
                elif self._is_next(each):
                    each.state = ObjectState.ANNOUNCING
                    for reservation in each.reservations.values():
                        reservation.is_announced = True
                    ready.append(each)
        return ready

    def acknowledged(self, sealed: CombinedObject) -> None:
        """The metadata of all its current slices is in the topic."""
        for reservation in sealed.reservations.values():
            queued = self._partitions.get(reservation.partition)
            if queued is not None:
                queued.uploads.acknowledge(reservation)
        self._finish(sealed)

    def failed(self, sealed: CombinedObject, now_ms: int) -> None:
        """Its upload failed for good, or it will not be announced: its ranges are read again, and those after them."""
        self._finish(sealed)
        for reservation in sealed.reservations.values():
            self._release(reservation, now_ms)

    def abandon_overdue(self, now_ms: int) -> list[CombinedObject]:
        """Give up objects that could not be announced in time."""
        overdue = [
            each
            for each in self._objects
            if each.state in (ObjectState.STORED, ObjectState.ANNOUNCING)
            and now_ms - each.stored_at_ms >= ANNOUNCE_WITHIN_MS
        ]
        for each in overdue:
            self.failed(each, now_ms)
        return overdue

    def _is_busy(self) -> bool:
        inflight_max = self.limits.inflight_max
        return self.uploading_count >= inflight_max or len(self._objects) >= inflight_max * _OBJECTS_PER_UPLOAD_MAX

    def _is_next(self, stored: CombinedObject) -> bool:
        by_partition: dict[TopicIdPartition, list[Reservation]] = {}
        for reservation in stored.reservations.values():
            if reservation.is_current:
                by_partition.setdefault(reservation.partition, []).append(reservation)
        return all(
            self._partitions[partition].uploads.leads(reservations) for partition, reservations in by_partition.items()
        )

    def _release_those_of_other_terms(self, stored: CombinedObject) -> None:
        for reservation in stored.reservations.values():
            if reservation.is_current and self._term_of(reservation.partition) != reservation.token[:2]:
                self.deactivate(reservation.partition)

    def _finish(self, sealed: CombinedObject) -> None:
        sealed.state = ObjectState.DONE
        sealed.slices.clear()
        if sealed in self._objects:
            self._objects.remove(sealed)

    def _release(self, reservation: Reservation, now_ms: int) -> None:
        queued = self._partitions.get(reservation.partition)
        if queued is None or not reservation.is_current:
            return
        released = queued.uploads.release_from(reservation)
        self._return_bytes(queued, released, now_ms)
        self._refresh(queued)

    def _return_bytes(self, queued: QueuedPartition, released: Iterable[Reservation], now_ms: int) -> None:
        waiting_since = queued.first_dirty_ms if queued.uploads.partition in self._dirty else now_ms
        for each in released:
            queued.pending_bytes += each.size
            waiting_since = min(waiting_since, each.first_dirty_ms)
        queued.first_dirty_ms = waiting_since
        queued.ages.appendleft((queued.uploads.wal_reserved, waiting_since))

    def _refresh(self, queued: QueuedPartition) -> None:
        partition = queued.uploads.partition
        if queued.is_dirty:
            if partition not in self._held:
                self._dirty.setdefault(partition, None)
            queued.waits = True
            queued.taken()
        else:
            queued.pending_bytes = 0
            queued.waits = False
            queued.ages.clear()
            self._dirty.pop(partition, None)
            self._held.pop(partition, None)

    def _let_go_held(self, now_ms: int) -> None:
        for partition in [each for each, until_ms in self._held.items() if until_ms <= now_ms]:
            del self._held[partition]
            self._dirty[partition] = None
