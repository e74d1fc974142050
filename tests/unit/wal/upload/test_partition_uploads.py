from broker.wal.objects.wal_slice import ReservationToken, WalSlice
from broker.wal.upload.partition_uploads import LeaderTerm, PartitionUploads, Reservation
from tests.unit.wal.wal_world import FOO, batch, log_bytes, make_slice

TERM = LeaderTerm(3, 5)


class Uploads:
    """Slices of ten offsets each unless said otherwise."""

    def __init__(self, start: int = 0) -> None:
        self.it = PartitionUploads(FOO, TERM, start)
        self.reservations = 0

    def reserve(self) -> Reservation:
        self.reservations += 1
        return self.it.reserve(self.reservations, first_dirty_ms=1)

    def slice(self, count: int = 10, start: int | None = None) -> Reservation:
        reservation = self.reserve()
        assert self.it.fill(reservation, self.read(reservation.start_offset if start is None else start, count))
        return reservation

    def read(self, start: int, count: int = 10) -> WalSlice:
        return make_slice(batch(start, count), start=start)

    @property
    def run(self) -> tuple[int, int, int]:
        return self.it.wal_start, self.it.wal_next, self.it.wal_reserved


def test_the_token_is_taken_with_the_range_and_before_the_bytes() -> None:
    uploads = Uploads()
    reservation = uploads.reserve()
    assert reservation.token == ReservationToken(3, 5, 1)
    assert (reservation.start_offset, reservation.end_offset) == (0, None)
    assert uploads.it.is_reading
    assert uploads.it.fill(reservation, uploads.read(0))
    assert (reservation.end_offset, uploads.run, uploads.it.is_reading) == (9, (0, 0, 10), False)
    assert uploads.reserve().token.reservation_id == 2


def test_wal_next_moves_by_acknowledgements_in_order() -> None:
    uploads = Uploads()
    first, second, third = uploads.slice(), uploads.slice(), uploads.slice()
    assert uploads.run == (0, 0, 30)
    assert uploads.it.leads([first]) and uploads.it.leads([first, second])
    assert not uploads.it.leads([second]) and not uploads.it.leads([first, third])
    first.is_announced = True
    assert uploads.it.leads([second])
    assert uploads.it.acknowledge(first)
    assert uploads.run == (0, 10, 30)
    assert uploads.it.acknowledge(third)
    assert uploads.run == (0, 10, 30)  # not without what is between them
    assert uploads.it.acknowledge(second)
    assert uploads.run == (0, 30, 30)
    assert not uploads.it.has_pending


def test_h14_what_was_released_changes_nothing_when_it_finishes_later() -> None:
    """A slice is released, its range given out again; then the first upload is announced after all."""
    uploads = Uploads()
    old = uploads.slice()
    later = uploads.slice()
    assert uploads.it.release_from(old) == [old, later]
    assert uploads.run == (0, 0, 0)
    new = uploads.slice(15)
    assert not uploads.it.acknowledge(old)
    assert not uploads.it.acknowledge(later)
    assert uploads.run == (0, 0, 15)
    assert uploads.it.acknowledge(new)
    assert uploads.run == (0, 15, 15)


def test_an_earlier_range_stays_when_a_later_one_is_released() -> None:
    uploads = Uploads()
    first, second, third = uploads.slice(), uploads.slice(), uploads.slice()
    assert uploads.it.release_from(second) == [second, third]
    assert uploads.it.release_from(third) == []
    assert uploads.run == (0, 0, 10)
    assert uploads.it.acknowledge(first)
    assert uploads.slice().start_offset == 10
    assert uploads.run == (0, 10, 20)


def test_h12_a_run_begins_at_the_start_of_the_batch_it_begins_in() -> None:
    uploads = Uploads(start=5)
    first = uploads.reserve()
    assert uploads.it.fill(first, uploads.read(0))
    assert (first.start_offset, uploads.run) == (0, (0, 0, 10))


def test_bytes_that_do_not_continue_the_run_are_not_taken() -> None:
    uploads = Uploads(start=5)
    assert not uploads.it.fill(uploads.reserve(), uploads.read(6))
    assert uploads.run == (5, 5, 5)
    uploads.slice(start=5)
    assert not uploads.it.fill(uploads.reserve(), uploads.read(14, 3))
    assert uploads.run == (5, 5, 15)


def test_h15_deleted_ranges_need_no_announcing() -> None:
    uploads = Uploads()
    first, second, third = uploads.slice(), uploads.slice(), uploads.slice()
    uploads.it.move_log_start(20)  # exactly at a border
    assert (first.is_current, second.is_current, third.is_current) == (False, False, True)
    assert uploads.run == (20, 20, 30)
    assert uploads.it.acknowledge(third)
    assert uploads.run == (20, 30, 30)


def test_h15_a_deleted_range_holds_back_nothing_behind_it() -> None:
    uploads = Uploads()
    uploads.slice()
    assert uploads.it.acknowledge(uploads.slice())
    uploads.it.move_log_start(10)
    assert uploads.run == (10, 20, 20)


def test_h15_a_log_start_within_a_range_leaves_it_to_be_announced() -> None:
    uploads = Uploads()
    first = uploads.slice()
    uploads.it.move_log_start(5)
    assert first.is_current
    assert uploads.it.acknowledge(first)
    assert uploads.run == (0, 10, 10)


def test_h15_a_log_start_beyond_everything_begins_another_run() -> None:
    uploads = Uploads()
    uploads.it.acknowledge(uploads.slice())
    uploads.it.move_log_start(7)
    assert uploads.run == (0, 10, 10)
    pending = uploads.slice()
    uploads.it.move_log_start(50)
    assert not pending.is_current
    assert uploads.run == (50, 50, 50)
    again = uploads.slice()
    assert (again.start_offset, again.starts_run) == (50, True)


def test_h15_a_range_that_is_deleted_while_it_is_read() -> None:
    uploads = Uploads()
    reading = uploads.reserve()
    uploads.it.move_log_start(50)
    assert uploads.it.fill(reading, uploads.read(0))  # the bytes were still there
    assert uploads.it.acknowledge(reading)
    after = uploads.reserve()
    assert (after.start_offset, after.starts_run) == (50, True)


def test_h15_the_start_is_that_of_the_last_run() -> None:
    """After a pause the first slice does not continue the old ones; followers must not look before it."""
    uploads = Uploads()
    before = uploads.slice()
    uploads.it.restart_at(40)
    after = uploads.slice()
    assert uploads.run == (0, 0, 50)
    uploads.it.acknowledge(before)
    assert uploads.run == (0, 10, 50)
    uploads.it.acknowledge(after)
    assert uploads.run == (40, 50, 50)


def test_a_run_whose_first_range_is_released_still_begins_there() -> None:
    uploads = Uploads()
    before = uploads.slice()
    uploads.it.restart_at(40)
    uploads.it.release_from(uploads.slice())
    again = uploads.slice()
    uploads.it.acknowledge(before)
    uploads.it.acknowledge(again)
    assert uploads.run == (40, 50, 50)


def test_everything_can_be_released() -> None:
    uploads = Uploads()
    assert uploads.it.release_all() == []
    first = uploads.slice()
    reading = uploads.reserve()
    assert uploads.it.release_all() == [first, reading]
    assert uploads.run == (0, 0, 0)


def test_a_slice_of_several_batches_is_one_range() -> None:
    uploads = Uploads()
    reservation = uploads.reserve()
    assert uploads.it.fill(reservation, make_slice(log_bytes((0, 3), (0, 4))))
    assert (reservation.end_offset, reservation.size > 0) == (6, True)
