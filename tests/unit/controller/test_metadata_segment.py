from pathlib import Path

import pytest

from broker.common.errors import StorageFailure
from broker.common.file_system import OsFileSystem
from broker.controller.metadata_segment import (
    INDEX_INTERVAL_BYTES,
    MetadataLogCorruptError,
    MetadataSegment,
    segment_name,
)
from broker.records.memory_records_builder import records_batch
from broker.records.record_batch import RecordBatch, batches
from tests.support.sim_disk import SimFileSystem


def batch(base_offset: int, count: int = 1, size: int = 10) -> bytearray:
    return records_batch(*[(0, None, bytes(size))] * count, base_offset=base_offset, partition_leader_epoch=1)


def filled(directory: Path, count: int = 5, base_offset: int = 0, size: int = 10) -> MetadataSegment:
    segment = MetadataSegment(OsFileSystem(), directory, base_offset)
    for number in range(count):
        segment.append(batch(base_offset + number, size=size))
    return segment


def offsets(data: bytes) -> list[int]:
    return [each.base_offset for each in batches(data)]


def test_names_are_kafkas() -> None:
    assert segment_name(4711) == "00000000000000004711.log"


def test_reads_begin_at_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    segment = MetadataSegment(OsFileSystem(), tmp_path, 0)
    for base in (0, 5, 10):
        segment.append(batch(base, count=5))
    assert offsets(segment.read(7, 1 << 20, 15)) == [5, 10]
    assert offsets(segment.read(5, 1 << 20, 15)) == [5, 10]
    assert segment.read(15, 1 << 20, 15) == b""


def test_reads_end_at_the_bound_of_bytes_and_below_the_end_offset(tmp_path: Path) -> None:
    segment = filled(tmp_path)
    size = segment.size_bytes // 5
    assert offsets(segment.read(1, 2 * size, 5)) == [1, 2]
    assert offsets(segment.read(1, 2 * size + size // 2, 5)) == [1, 2]
    assert offsets(segment.read(1, 1, 5)) == [1]  # one at least, or nobody could go on
    assert offsets(segment.read(1, 1 << 20, 3)) == [1, 2]


def test_large_batches_behind_small_ones_are_found(tmp_path: Path) -> None:
    segment = filled(tmp_path, count=20)
    segment.append(batch(20, size=10 * INDEX_INTERVAL_BYTES))
    segment.append(batch(21))
    for offset in range(22):
        assert offsets(segment.read(offset, 100, 22))[0] == offset
    assert offsets(segment.read(20, 1 << 20, 22)) == [20, 21]


def test_recovery_finds_everything_again(tmp_path: Path) -> None:
    filled(tmp_path, count=200, size=100).close()
    segment = MetadataSegment(OsFileSystem(), tmp_path, 0)
    found: list[RecordBatch] = []
    assert segment.recover(found.append, is_last=True) == 0
    assert (len(found), segment.next_offset) == (200, 200)
    assert offsets(segment.read(150, 1, 200)) == [150]


def test_a_torn_tail_is_cut_at_every_byte(tmp_path: Path) -> None:
    segment = filled(tmp_path, count=3)
    size = segment.size_bytes // 3
    whole = segment.path.read_bytes()
    for cut in range(2 * size + 1, 3 * size):
        segment.path.write_bytes(whole[:cut])
        again = MetadataSegment(OsFileSystem(), tmp_path, 0)
        assert again.recover(lambda each: None, is_last=True) == cut - 2 * size
        assert (again.next_offset, again.path.stat().st_size) == (2, 2 * size)
        again.close()


def test_only_the_last_batch_of_the_last_segment_may_be_broken(tmp_path: Path) -> None:
    segment = filled(tmp_path, count=3)
    size = segment.size_bytes // 3
    whole = segment.path.read_bytes()
    for position, is_last, is_refused in (
        (2 * size + 65, True, False),
        (size + 65, True, True),
        (2 * size, False, True),
    ):
        broken = bytearray(whole)
        broken[position] ^= 1
        segment.path.write_bytes(broken)
        again = MetadataSegment(OsFileSystem(), tmp_path, 0)
        if is_refused:
            with pytest.raises(MetadataLogCorruptError):
                again.recover(lambda each: None, is_last=is_last)
        else:
            again.recover(lambda each: None, is_last=is_last)
            assert again.next_offset == 2
        again.close()


def test_zeros_behind_the_end_are_a_torn_tail(tmp_path: Path) -> None:
    segment = filled(tmp_path, count=2)
    segment.path.write_bytes(segment.path.read_bytes() + bytes(500))
    again = MetadataSegment(OsFileSystem(), tmp_path, 0)
    assert again.recover(lambda each: None, is_last=True) == 500
    assert again.next_offset == 2


def test_a_refused_write_leaves_the_segment_as_it_was() -> None:
    disk = SimFileSystem()
    disk.make_directories(Path("/d"))
    segment = MetadataSegment(disk, Path("/d"), 0)
    segment.append(batch(0))
    size = segment.size_bytes
    disk.budget_bytes = disk.used_bytes() + 20
    with pytest.raises(StorageFailure):
        segment.append(batch(1, size=500))
    assert (segment.size_bytes, segment.next_offset, disk.size(segment.path)) == (size, 1, size)
    disk.heal()
    segment.append(batch(1))
    assert offsets(segment.read(0, 1 << 20, 2)) == [0, 1]
