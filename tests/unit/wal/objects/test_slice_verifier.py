import dataclasses

import pytest
from crc32c import crc32c

from broker.log.leader_epoch_file_cache import EpochEntry
from broker.wal.objects.slice_verifier import CorruptSliceError, verify_slice
from broker.wal.objects.wal_entry import WalEntry, entries_of
from tests.unit.wal.wal_world import batch, bytes_of, log_bytes, make_object, make_slice

RECORDS = log_bytes((1, 2), (3, 3), start=10)


def entry_for(records: bytes, **changes: object) -> WalEntry:
    """An entry of these bytes that announces offsets 10-14 of epochs 1 and 3 by the leader of epoch 3."""
    combined = make_object([make_slice(RECORDS, start=10, leader_epoch=3)])
    assert bytes_of(combined).startswith(RECORDS)
    (good,) = entries_of(combined.metadata)
    return dataclasses.replace(good, size=len(records), crc32c=crc32c(records), **changes)  # type: ignore[arg-type]


def test_a_good_slice_is_its_batches() -> None:
    found = verify_slice(entry_for(RECORDS), memoryview(RECORDS))
    assert [(each.base_offset, each.last_offset, each.partition_leader_epoch) for each in found] == [
        (10, 11, 1),
        (12, 14, 3),
    ]


@pytest.mark.parametrize("position", [0, 5, 14, 16, 30, len(RECORDS) - 1])
def test_a_flipped_byte_anywhere(position: int) -> None:
    flipped = bytearray(RECORDS)
    flipped[position] ^= 1
    with pytest.raises(CorruptSliceError, match="CRC"):
        verify_slice(entry_for(RECORDS), flipped)


@pytest.mark.parametrize("size", [0, 1, len(RECORDS) - 1, len(RECORDS) + 1])
def test_a_short_or_long_answer(size: int) -> None:
    with pytest.raises(CorruptSliceError, match="bytes instead of"):
        verify_slice(entry_for(RECORDS), (RECORDS + b"\0")[:size])


def test_a_batch_that_was_corrupt_before_its_slice_was_made() -> None:
    bad = bytearray(RECORDS)
    bad[-1] ^= 1
    with pytest.raises(CorruptSliceError, match="stored crc"):
        verify_slice(entry_for(bytes(bad)), bad)


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (RECORDS[:-1], "within a batch"),
        (log_bytes((1, 2), start=10), "offsets 10 to 11"),
        (log_bytes((1, 2), (3, 4), start=10), "offsets 10 to 15"),
        (log_bytes((1, 2), (3, 3), start=11), "offsets 11 to 15"),
        (batch(10, 2, epoch=1) + batch(10, 2, epoch=1) + batch(12, 3, epoch=3), "follows 11"),
        (b"\0" * 61, "minimum record overhead"),
        (RECORDS[:16] + b"\1" + RECORDS[17:], "old format 1"),
    ],
)
def test_other_batches_than_announced(records: bytes, reason: str) -> None:
    with pytest.raises(CorruptSliceError, match=reason):
        verify_slice(entry_for(records), records)


def test_h3_the_epochs_in_the_bytes_are_those_announced() -> None:
    """Bytes of epoch 0 that were read before a truncation must not pass as those of the publisher's epoch."""
    old = log_bytes((0, 2), (0, 3), start=10)
    with pytest.raises(CorruptSliceError, match="are of the epochs"):
        verify_slice(entry_for(old), old)
    with pytest.raises(CorruptSliceError, match="are of the epochs"):
        verify_slice(entry_for(RECORDS, leader_epochs=(EpochEntry(1, 10), EpochEntry(3, 13))), RECORDS)


def test_no_batch_is_newer_than_its_publisher_and_none_goes_back() -> None:
    newer = log_bytes((1, 2), (4, 3), start=10)
    with pytest.raises(CorruptSliceError, match="epoch 4"):
        verify_slice(entry_for(newer), newer)
    back = log_bytes((3, 2), (1, 3), start=10)
    with pytest.raises(CorruptSliceError, match="epoch 1"):
        verify_slice(entry_for(back), back)
