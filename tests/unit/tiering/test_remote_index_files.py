"""The three files of a segment: written, loaded, found again, and refused when they are not what they were."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from broker.common.chance import Chance
from broker.common.file_system import read_file
from broker.log.abstract_index import CorruptIndexError
from broker.log.transaction_index import AbortedTransaction
from broker.tiering.remote_index_files import IndexFiles, find_files, index_files, load_files, remove_files, write_files
from tests.support.sim_disk import SimFileSystem

from .storage_world import Aborted, Made, batch, make_segment

CACHE = Path("/cache")
STEM = "10_AAAAAAAAAAAAAAAAAAAAAQ"


class World:
    def __init__(self) -> None:
        self.now_ms = 0
        self.disk = SimFileSystem(lambda: self.now_ms)
        self.disk.make_directories(CACHE)
        for above in (Path(), Path("/")):
            self.disk.sync_directory(above)
        self.made = make_segment(
            self.disk,
            1,
            [batch(10), batch(11, timestamp=2000), batch(12, timestamp=3000)],
            aborted=[Aborted(5, 10, 12, 13)],
        )

    def contents(self, made: Made | None = None) -> tuple[bytes, bytes, bytes]:
        data = (made or self.made).data
        assert data.transaction_index is not None
        offset, time, aborted = (
            read_file(self.disk, path) for path in (data.offset_index, data.time_index, data.transaction_index)
        )
        return offset, time, aborted

    def write(self) -> IndexFiles:
        contents = self.contents()
        files = index_files(self.made.segment, contents)
        write_files(self.disk, CACHE, files, contents)
        return files

    def put(self, name: str, content: bytes) -> None:
        file = self.disk.open(CACHE / name, create=True)
        file.truncate(0)
        file.write_at(0, [content])
        file.close()

    def names(self) -> list[str]:
        return self.disk.list_directory(CACHE)


def test_what_is_written_is_loaded() -> None:
    world = World()
    files = world.write()
    assert files == IndexFiles(STEM, 2 * 8 + 2 * 12 + 34)
    assert world.names() == [STEM + ".index", STEM + ".timeindex", STEM + ".txnindex"]
    indexes = load_files(world.disk, CACHE, files, world.made.segment)
    world.disk.remove_tree(CACHE)  # all is in memory
    size = len(world.made.log) // 3
    assert indexes.offset_index.entries() == [(11, size), (12, 2 * size)]
    assert indexes.time_index.entries() == [(2000, 11), (3000, 12)]
    assert indexes.transaction_index.entries() == [AbortedTransaction(5, 10, 12, 13)]


def test_a_power_cut_leaves_whole_files() -> None:
    for seed in range(20):
        world = World()
        contents = world.contents()
        files = world.write()
        world.disk.crash(Chance(seed))
        assert [read_file(world.disk, path) for path in files.paths(CACHE)] == list(contents)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (".index", bytes.fromhex("0000000200000010 0000000100000020")),  # not increasing
        (".index", bytes.fromhex("0000000100000010 0000000300000020")),  # beyond the last offset
        (".index", bytes.fromhex("0000000100000010 00000002 00ffffff")),  # beyond the log
        (".index", bytes.fromhex("0000000100000010")),  # half of it
        (".timeindex", bytes(20) + b"\xff" * 4),
        (".txnindex", bytes.fromhex("0001") + bytes(32)),  # a version nobody knows
        (".txnindex", bytes(34)),  # of another segment
        (".txnindex", bytes(10) + b"\x00" * 16 + (99).to_bytes(8, "big")),
    ],
)
def test_files_that_cannot_be_the_segments_are_refused(name: str, content: bytes) -> None:
    world = World()
    files = world.write()
    world.put(STEM + name, content)
    with pytest.raises(CorruptIndexError):
        load_files(world.disk, CACHE, files, world.made.segment)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_a_missing_file_is_not_an_empty_index(suffix: str) -> None:
    world = World()
    files = world.write()
    world.disk.remove(CACHE / (STEM + suffix))
    with pytest.raises(CorruptIndexError, match="one of three files is gone"):
        load_files(world.disk, CACHE, files, world.made.segment)


def test_half_an_entry_of_a_transaction_is_refused() -> None:
    world = World()
    files = world.write()
    world.put(STEM + ".txnindex", world.contents()[2] + bytes(3))
    with pytest.raises(CorruptIndexError, match="not what they were"):
        load_files(world.disk, CACHE, files._replace(size_bytes=files.size_bytes + 3), world.made.segment)


def test_empty_indexes_are_fine() -> None:
    world = World()
    files = index_files(world.made.segment, (b"", b"", b""))
    write_files(world.disk, CACHE, files, (b"", b"", b""))
    indexes = load_files(world.disk, CACHE, files, world.made.segment)
    assert indexes.offset_index.lookup(12) == (10, 0)
    assert indexes.transaction_index.is_empty


def test_what_an_earlier_run_left_is_found_and_its_leavings_are_removed() -> None:
    world = World()
    first = world.write()
    other = replace(world.made.segment, segment_id=UUID(int=2))
    contents = world.contents()
    world.now_ms = -5  # written before
    second = index_files(other, contents)
    write_files(world.disk, CACHE, second, contents)
    for name in ("11_AAAAAAAAAAAAAAAAAAAAAw.index", STEM + ".index.tmp", STEM + ".txnindex.deleted", "notes.txt"):
        world.put(name, b"x")
    found = list(find_files(world.disk, CACHE))
    assert found == [(UUID(int=2), second), (UUID(int=1), first)]
    expected = [*(path.name for each in (first, second) for path in each.paths(CACHE)), "notes.txt"]
    assert world.names() == sorted(expected)
    assert list(find_files(world.disk, Path("/new"))) == []
    assert world.disk.is_directory(Path("/new"))


def test_removing_takes_what_was_begun_as_well() -> None:
    world = World()
    files = world.write()
    world.put(STEM + ".index.tmp", b"half")
    remove_files(world.disk, files.paths(CACHE))
    assert world.names() == []
