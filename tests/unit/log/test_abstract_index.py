"""AbstractIndex, seen through the offset index: when entries reach the file, and what a refusing disk does."""

from pathlib import Path

import pytest

from broker.common.errors import StorageFailure
from broker.log.abstract_index import BLOCK_ENTRIES, CorruptIndexError
from broker.log.offset_index import OffsetIndex
from tests.support.sim_disk import SimFileSystem

PATH = Path("/data/0.index")


def make_disk() -> SimFileSystem:
    disk = SimFileSystem()
    disk.make_directories(PATH.parent)
    return disk


def make_index(disk: SimFileSystem, *, exists: bool = False) -> OffsetIndex:
    return OffsetIndex(disk, PATH, 0, 80_000, exists=exists)


def test_entries_are_written_in_blocks() -> None:
    disk = make_disk()
    index = make_index(disk)
    for number in range(BLOCK_ENTRIES - 1):
        index.append(number, number)
    assert not disk.exists(PATH)
    index.append(BLOCK_ENTRIES, BLOCK_ENTRIES)
    assert disk.size(PATH) == BLOCK_ENTRIES * 8
    assert index.is_written


def test_write_makes_even_an_empty_file_once() -> None:
    disk = make_disk()
    index = make_index(disk)
    assert not index.is_written
    index.write()
    assert disk.size(PATH) == 0
    opened = disk.operations["open"]
    index.write()
    assert disk.operations["open"] == opened


def test_unloaded_entries_come_back_from_the_file() -> None:
    disk = make_disk()
    index = make_index(disk)
    index.append(7, 100)
    index.write()
    index.unload()
    assert not index.is_loaded
    assert index.memory_bytes == 0
    assert index.lookup(8) == (7, 100)
    assert index.memory_bytes == 8


def test_an_index_the_disk_refused_is_not_unloaded_and_written_later() -> None:
    disk = make_disk()
    index = make_index(disk)
    index.append(7, 100)
    index.append(9, 200)
    disk.budget_bytes = 10
    with pytest.raises(StorageFailure):
        index.write()
    assert disk.size(PATH) == 10
    index.unload()
    assert index.entries() == [(7, 100), (9, 200)]
    disk.heal()
    index.write()
    assert disk.read(PATH) == bytes.fromhex("0000000700000064 00000009000000c8")


def test_entries_dropped_in_memory_leave_the_file_too() -> None:
    disk = make_disk()
    index = make_index(disk)
    for offset in (1, 2, 3):
        index.append(offset, offset * 10)
    index.write()
    index.truncate_to(2)
    index.append(5, 20)
    index.write()
    assert disk.read(PATH) == bytes.fromhex("000000010000000a 0000000500000014")


def test_part_of_an_entry_at_the_end_is_left_out_or_refused() -> None:
    disk = make_disk()
    disk.open(PATH, create=True).write_at(0, [bytes.fromhex("000000010000000a 000000")])
    index = make_index(disk, exists=True)
    assert index.entries() == [(1, 10)]
    index.append(2, 20)
    index.write()
    assert disk.size(PATH) == 16
    disk.overwrite(PATH, disk.read(PATH)[:-3])
    with pytest.raises(CorruptIndexError):
        make_index(disk, exists=True).sanity_check()


def test_reset_cuts_the_file_at_the_next_write() -> None:
    disk = make_disk()
    index = make_index(disk)
    index.append(1, 10)
    index.write()
    index.reset()
    assert index.entry_count == 0
    index.write()
    assert disk.size(PATH) == 0


def test_a_missing_file_is_an_empty_index() -> None:
    assert make_index(make_disk(), exists=True).entries() == []


def test_the_size_is_known_without_loading() -> None:
    disk = make_disk()
    index = make_index(disk)
    assert index.size_bytes == 0
    for number in range(3):
        index.append(number, number)
    assert index.size_bytes == 24
    index.write()
    index.unload()
    assert (index.size_bytes, index.is_loaded) == (24, False)
    disk.remove(PATH)
    assert index.size_bytes == 0
