"""PartitionUploads: how far one partition's log is in the bucket, in one leader term."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from broker.common.identifiers import TopicIdPartition
from broker.wal.objects.wal_slice import ReservationToken, WalSlice


class LeaderTerm(NamedTuple):
    """What the partition says of itself now; `truncation_generation` counts truncations and resets of its log."""

    leader_epoch: int
    truncation_generation: int


class Reservation:
    """A range given out: its bytes are read, uploaded and announced under its token.  Offsets are inclusive.

    It is current until it is acknowledged or released; what finishes later for one that is not changes nothing.
    """

    __slots__ = (
        "end_offset",
        "first_dirty_ms",
        "is_acknowledged",
        "is_announced",
        "is_current",
        "partition",
        "size",
        "start_offset",
        "starts_run",
        "token",
    )

    def __init__(
        self,
        partition: TopicIdPartition,
        token: ReservationToken,
        start_offset: int,
        *,
        starts_run: bool,
        first_dirty_ms: int,
    ) -> None:
        self.partition = partition
        self.token = token
        self.start_offset = start_offset
        self.end_offset: int | None = None  # until the bytes are read
        self.size = 0
        self.starts_run = starts_run  # what is announced before it does not reach up to it
        self.first_dirty_ms = first_dirty_ms
        self.is_current = True
        self.is_announced = False  # its metadata is on its way
        self.is_acknowledged = False  # its metadata is in the topic; that of an earlier range may not be yet

    def __repr__(self) -> str:
        return f"Reservation({self.partition.topic_partition}, {self.start_offset} to {self.end_offset}, {self.token})"


class PartitionUploads:
    """Ranges are given out in offset order, announced in that order and counted in that order, whatever order their
    uploads finish in and their acknowledgements come in.

    `wal_start` is where the last contiguous run of announced slices begins, `wal_next` where it ends: what followers
    can find.  `wal_reserved` is where the next range begins.
    """

    __slots__ = (
        "_is_run_broken",
        "_log_start_offset",
        "_pending",
        "partition",
        "term",
        "wal_next",
        "wal_reserved",
        "wal_start",
    )

    def __init__(self, partition: TopicIdPartition, term: LeaderTerm, start_offset: int) -> None:
        self.partition = partition
        self.term = term
        self.wal_start = self.wal_next = self.wal_reserved = start_offset
        self._is_run_broken = True  # the next range does not continue one that was given out
        self._log_start_offset = 0
        self._pending: deque[Reservation] = deque()

    @property
    def has_pending(self) -> bool:
        """Whether ranges are on their way."""
        return len(self._pending) > 0

    @property
    def oldest(self) -> Reservation | None:
        """The range that is to be announced next."""
        return self._pending[0] if self._pending else None

    @property
    def pending_bytes(self) -> int:
        """Of all ranges on their way that are read."""
        return sum(each.size for each in self._pending)

    @property
    def is_reading(self) -> bool:
        """Whether the end of the newest range is not known yet; no other can be given out before."""
        return self.has_pending and self._pending[-1].end_offset is None

    def reserve(self, reservation_id: int, first_dirty_ms: int) -> Reservation:
        """The next range.  Its token is taken here, before any byte is read."""
        assert not self.is_reading, self._pending[-1]
        if self.wal_reserved < self._log_start_offset:
            self.restart_at(self._log_start_offset)
        reservation = Reservation(
            self.partition,
            ReservationToken(*self.term, reservation_id),
            self.wal_reserved,
            starts_run=self._is_run_broken,
            first_dirty_ms=first_dirty_ms,
        )
        self._is_run_broken = False
        self._pending.append(reservation)
        return reservation

    def fill(self, reservation: Reservation, read: WalSlice) -> bool:
        """The bytes of the range are read.  False, and released, when they do not continue what was given out."""
        assert reservation.is_current and reservation is self._pending[-1], reservation
        start_offset = read.start_offset
        if start_offset != reservation.start_offset:
            if start_offset > reservation.start_offset or not reservation.starts_run:
                self.release_from(reservation)
                return False
            reservation.start_offset = start_offset  # a run may begin within a batch, and takes the whole of it
            if len(self._pending) == 1:
                self.wal_start = self.wal_next = start_offset
        reservation.end_offset = read.end_offset
        reservation.size = read.size
        self.wal_reserved = read.end_offset + 1
        return True

    def leads(self, reservations: Sequence[Reservation]) -> bool:
        """Whether these, in offset order, are the next to be announced: everything before them is announced."""
        waiting = (each for each in self._pending if not each.is_announced)
        return all(mine is theirs for mine, theirs in zip(reservations, waiting, strict=False))

    def acknowledge(self, reservation: Reservation) -> bool:
        """The metadata of the range is in its topic.  False when the range had been released by then.

        It counts once that of all ranges before it is there as well.
        """
        if not reservation.is_current:
            return False
        assert reservation.end_offset is not None, reservation
        reservation.is_acknowledged = True
        self._count_acknowledged()
        return True

    def release_from(self, reservation: Reservation) -> list[Reservation]:
        """Take back the range and all after it, which must not be announced without it.  Earlier ones stay."""
        released: list[Reservation] = []
        while reservation.is_current:
            last = self._pending.pop()
            last.is_current = False
            released.append(last)
        if released:
            self.wal_reserved = reservation.start_offset
            self._is_run_broken = reservation.starts_run
        released.reverse()
        return released

    def release_all(self) -> list[Reservation]:
        return self.release_from(self._pending[0]) if self._pending else []

    def move_log_start(self, log_start_offset: int) -> None:
        """What is below is deleted: it needs no announcing, and the run of what was announced may end there."""
        self._log_start_offset = max(self._log_start_offset, log_start_offset)
        if log_start_offset <= self.wal_next:
            return
        while self._pending and self._is_below(self._pending[0], log_start_offset):
            self._pending.popleft().is_current = False
            if self._pending:
                self._pending[0].starts_run = True
                self.wal_start = self.wal_next = self._pending[0].start_offset
        if self._pending:
            self._count_acknowledged()
        else:
            self.restart_at(log_start_offset)

    def restart_at(self, offset: int) -> None:
        """Begin another run there, behind those on their way: after a pause, or a hole in the log."""
        self.wal_reserved = offset
        self._is_run_broken = True
        if not self._pending:
            self.wal_start = self.wal_next = offset

    def _count_acknowledged(self) -> None:
        while self._pending and self._pending[0].is_acknowledged:
            counted = self._pending.popleft()
            assert counted.end_offset is not None, counted
            counted.is_current = False
            if counted.starts_run:
                self.wal_start = counted.start_offset
            self.wal_next = counted.end_offset + 1

    @staticmethod
    def _is_below(reservation: Reservation, offset: int) -> bool:
        return reservation.end_offset is not None and reservation.end_offset < offset
