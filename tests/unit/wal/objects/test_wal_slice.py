from uuid import UUID

import pytest
from crc32c import crc32c

from broker.log.leader_epoch_file_cache import EpochEntry
from broker.wal.objects.wal_slice import ReservationToken, SliceGapError, SliceReadError, WalSlice, build_slice
from tests.unit.wal.wal_world import FOO, batch, log_bytes

TOKEN = ReservationToken(leader_epoch=3, truncation_generation=5, reservation_id=7)
SLICE_ID = UUID(int=9)
RECORDS = log_bytes((1, 2), (1, 3), (3, 1), start=10)  # offsets 10-11, 12-14, 15
FIRST, SECOND, THIRD = (len(batch(10, 2, epoch=1)), len(batch(12, 3, epoch=1)), len(batch(15, 1, epoch=3)))


def build(
    records: bytes = RECORDS, *, start: int = 10, upper: int = 100, size_max: int = 10_000, room: int | None = None
) -> WalSlice | None:
    return build_slice(
        FOO, SLICE_ID, TOKEN, records, start_offset=start, upper_offset=upper, size_max=size_max, room=room
    )


def built(records: bytes = RECORDS, **keywords: int) -> WalSlice:
    result = build(records, **keywords)
    assert result is not None
    return result


def test_everything_about_a_slice_comes_from_its_bytes() -> None:
    each = built()
    assert bytes(each.records) == RECORDS
    assert (each.start_offset, each.end_offset, each.size, each.max_timestamp) == (10, 15, len(RECORDS), 1002)
    assert each.leader_epochs == (EpochEntry(1, 10), EpochEntry(3, 15))
    assert each.crc32c == crc32c(RECORDS)
    assert (each.partition, each.slice_id, each.token) == (FOO, SLICE_ID, TOKEN)


def test_only_whole_batches() -> None:
    assert built(RECORDS[:-1]).end_offset == 14
    assert built(RECORDS + RECORDS[:30]).end_offset == 15


def test_not_beyond_the_log_end() -> None:
    assert built(upper=15).end_offset == 14
    assert built(upper=14).end_offset == 11  # a batch is not cut
    with pytest.raises(SliceReadError):
        build(upper=11)


def test_the_cap_of_a_partition_unless_one_batch_is_larger() -> None:
    assert built(size_max=FIRST + SECOND).end_offset == 14
    assert built(size_max=FIRST + SECOND - 1).end_offset == 11
    assert built(size_max=1).end_offset == 11


def test_a_batch_that_does_not_fit_waits_for_the_next_object() -> None:
    assert build(room=FIRST - 1) is None
    assert built(room=FIRST).end_offset == 11
    assert built(size_max=1, room=FIRST).end_offset == 11
    assert built(room=FIRST + SECOND).end_offset == 14


def test_a_log_that_starts_within_a_batch_gives_the_whole_batch() -> None:
    assert built(start=11).start_offset == 10


def test_a_hole_in_the_log_is_named() -> None:
    with pytest.raises(SliceGapError) as raised:
        build(start=8)
    assert raised.value.next_base_offset == 10


def test_h3_bytes_of_another_log_are_not_a_slice() -> None:
    """What a truncation left, or a later leader wrote, has no business under this token."""
    with pytest.raises(SliceReadError):
        build(b"")
    with pytest.raises(SliceReadError):
        build(start=12, records=RECORDS[:FIRST])
    with pytest.raises(SliceReadError):
        build(batch(10, epoch=4))  # newer than the token's epoch
    with pytest.raises(SliceReadError):
        build(log_bytes((2, 1), (1, 1), start=10))  # epochs never go back
    with pytest.raises(SliceReadError):
        build(batch(10, epoch=-1))
    with pytest.raises(SliceReadError):
        build(batch(10) + batch(10))
    with pytest.raises(SliceReadError):
        build(bytes(100))
