"""FileRecords: writes that may be taken back, iteration, slices that outlive their segment."""

from pathlib import Path

import pytest

from broker.common.errors import CorruptMessageError, StorageFailure
from broker.common.file_system import OsFileSystem
from broker.log.file_records import FileRecords, read, read_cached
from broker.records.memory_records_builder import records_batch
from tests.support.sim_disk import SimFileSystem

PATH = Path("/data/0.log")


def make_records() -> tuple[SimFileSystem, FileRecords]:
    disk = SimFileSystem()
    disk.make_directories(PATH.parent)
    return disk, FileRecords.create(disk, PATH)


def make_batch(offset: int, size: int = 10) -> bytearray:
    return records_batch((1000, b"k", b"v" * size), base_offset=offset)


def fill(records: FileRecords, *batches: bytearray) -> None:
    records.write(batches)
    records.advance(sum(map(len, batches)))


def test_batches_are_iterated_with_positions() -> None:
    _, records = make_records()
    first, second = make_batch(0), make_batch(1, 400_000)
    third = make_batch(2)
    fill(records, first, second, third)
    assert [(position, batch.base_offset) for position, batch in records.batches()] == [
        (0, 0),
        (len(first), 1),
        (len(first) + len(second), 2),
    ]
    assert [bytes(batch.buffer) for _, batch in records.batches(len(first))] == [bytes(second), bytes(third)]
    found = list(records.batch_positions(0))
    assert [(each.position, each.size, each.last_offset) for each in found] == [
        (0, len(first), 0),
        (len(first), len(second), 1),
        (len(first) + len(second), len(third), 2),
    ]
    assert [each.base_offset for each in records.batch_positions(0, len(first) + 5)] == [0]


def test_iteration_ends_at_a_partial_batch_and_refuses_nonsense() -> None:
    disk, records = make_records()
    fill(records, make_batch(0))
    whole = records.size_bytes
    records.write([make_batch(1)[:50]])
    records.advance(50)
    assert [batch.base_offset for _, batch in records.batches()] == [0]
    assert [each.base_offset for each in records.batch_positions(0)] == [0]
    disk.overwrite(PATH, disk.read(PATH)[:whole] + bytes(50))
    fresh = FileRecords(disk, PATH, whole + 50)
    with pytest.raises(CorruptMessageError):
        list(fresh.batches())
    with pytest.raises(CorruptMessageError):
        list(fresh.batch_positions(0))


def test_a_refused_write_is_cut_back() -> None:
    disk, records = make_records()
    fill(records, make_batch(0))
    before = disk.read(PATH)
    disk.budget_bytes = len(before) + 20
    with pytest.raises(StorageFailure):
        records.write([make_batch(1)])
    assert disk.read(PATH) == before
    disk.heal()
    fill(records, make_batch(1))
    assert [batch.base_offset for _, batch in records.batches()] == [0, 1]


def test_a_tail_that_could_not_be_cut_is_cut_before_the_next_write() -> None:
    disk, records = make_records()
    fill(records, make_batch(0))
    size = records.size_bytes
    disk.budget_bytes = size + 20
    disk.fail(PATH, "truncate")
    with pytest.raises(StorageFailure):
        records.write([make_batch(1)])
    assert disk.size(PATH) == size + 20
    disk.budget_bytes = None
    with pytest.raises(StorageFailure):
        records.write([make_batch(1)])
    disk.heal()
    fill(records, make_batch(1, 1))
    assert disk.size(PATH) == records.size_bytes


def test_abandon_cuts_off_what_was_written() -> None:
    disk, records = make_records()
    records.write([make_batch(0)])
    records.abandon()
    assert disk.size(PATH) == 0


def test_a_slice_keeps_the_file_open_until_it_is_gone() -> None:
    disk, records = make_records()
    fill(records, make_batch(0))
    file_slice = records.slice(0, records.size_bytes)
    records.release()
    assert not records.is_open
    disk.remove(PATH)
    assert bytes(read(file_slice)) == bytes(make_batch(0))
    assert read_cached(file_slice) is not None
    assert disk.open_files == 1
    del file_slice
    assert disk.open_files == 0


def test_read_cached_answers_none_when_the_disk_is_needed() -> None:
    disk, records = make_records()
    fill(records, make_batch(0))
    disk.is_cached = False
    file_slice = records.slice(0, records.size_bytes)
    assert read_cached(file_slice) is None
    assert len(read(file_slice)) == records.size_bytes
    assert [each.base_offset for each in records.batch_positions(0)] == [0]


def test_a_missing_file_is_a_storage_failure() -> None:
    disk, records = make_records()
    records.release()
    disk.remove(PATH)
    with pytest.raises(StorageFailure):
        records.sync()


def test_on_a_real_disk(tmp_path: Path) -> None:
    records = FileRecords.create(OsFileSystem(), tmp_path / "0.log")
    fill(records, make_batch(0), make_batch(1))
    records.truncate_to(len(make_batch(0)))
    records.sync()
    assert [batch.base_offset for _, batch in records.batches()] == [0]
    assert (tmp_path / "0.log").read_bytes() == bytes(make_batch(0))
    assert records.file.size() == records.size_bytes
    assert records.file.path == tmp_path / "0.log"
