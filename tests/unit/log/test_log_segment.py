"""LogSegment: what is indexed when, rolling, reading, recovering, setting aside."""

from pathlib import Path

import pytest

from broker.common.errors import StorageFailure
from broker.log.log_segment import LogSegment
from broker.log.segment_cache import SegmentCache
from broker.records.memory_records_builder import records_batch
from broker.records.record_batch import RecordBatch
from tests.support.sim_disk import SimFileSystem

DIRECTORY = Path("/d")


class World:
    def __init__(self, base: int = 0, *, interval: int = 100, index_size_max: int = 10_000, cache: int = 10) -> None:
        self.disk = SimFileSystem(lambda: 777)
        self.disk.make_directories(DIRECTORY)
        self.cache = SegmentCache(segments_max=cache)
        self.segment = LogSegment.create(
            self.disk,
            self.cache,
            DIRECTORY,
            base,
            index_size_max=index_size_max,
            created_ms=5000,
            index_interval_bytes=interval,
        )

    def add(self, offset: int, *, count: int = 1, size: int = 10, timestamp: int = 1000) -> int:
        batch = records_batch(*[(timestamp, b"k", b"v" * size)] * count, base_offset=offset)
        self.segment.write([batch])
        self.segment.accept([RecordBatch.parse(batch)])
        return len(batch)

    def entries(self) -> list[tuple[int, int]]:
        return [tuple(entry) for entry in self.segment.offset_index.entries()]  # type: ignore[misc]


def test_9_the_first_batch_is_never_indexed_and_the_interval_is_strict() -> None:
    world = World(interval=79)
    size = world.add(0)
    assert size == 79
    world.add(1)  # 79 bytes are not more than 79
    assert world.entries() == []
    world.add(2)
    assert world.entries() == [(2, 158)]
    world.add(3)
    assert world.entries() == [(2, 158)]
    world.add(4)
    assert world.entries() == [(2, 158), (4, 316)]


def test_an_index_entry_names_the_last_offset_of_its_batch() -> None:
    world = World(interval=0)
    first = world.add(0, count=3)
    world.add(3, count=5)
    assert world.entries() == [(7, first)]


def test_11_12_time_entries() -> None:
    world = World(interval=0)
    world.add(0, timestamp=1000)
    world.add(1, timestamp=1000)
    world.add(2, timestamp=900)
    world.add(3, timestamp=2000)
    assert world.segment.time_index.entries() == [(1000, 0), (2000, 3)]
    world.segment.seal()
    world.segment.add_last_time_entry()
    assert world.segment.time_index.entries() == [(1000, 0), (2000, 3)]


def test_11_sealing_adds_the_largest_timestamp_even_if_no_entry_was_due() -> None:
    world = World(interval=100_000)
    world.add(0, timestamp=1500)
    world.add(1, timestamp=1400)
    world.segment.seal()
    assert world.segment.time_index.entries() == [(1500, 0)]
    assert world.segment.max_timestamp_so_far == (1500, 0)


def test_10_index_files_have_exactly_their_entries() -> None:
    world = World(interval=0)
    for offset in range(5):
        world.add(offset, timestamp=1000 + offset)
    world.segment.seal()
    assert world.disk.size(world.segment.offset_index.path) == 4 * 8
    assert world.disk.size(world.segment.time_index.path) == 4 * 12
    assert not world.disk.exists(world.segment.transaction_index.path)


@pytest.mark.parametrize(
    ("size", "last_offset", "expected"), [(421, 1, False), (422, 1, True), (1, 2**31 - 1, False), (1, 2**31, True)]
)
def test_22_roll_by_size_and_span(size: int, last_offset: int, expected: bool) -> None:
    world = World()
    world.add(0)
    assert world.segment.should_roll(size, 1000, last_offset, 5000, 500, 10_000) is expected


def test_22_23_roll_by_the_records_time() -> None:
    world = World()
    assert not world.segment.should_roll(10, 10**12, 0, 10**12, 500, 100)
    world.add(0, timestamp=1000)
    assert not world.segment.should_roll(10, 1100, 1, 10**12, 500, 100)
    assert world.segment.should_roll(10, 1101, 1, 0, 500, 100)
    assert not world.segment.should_roll(10, 500, 1, 10**12, 500, 100)
    world.segment.roll_jitter_ms = 10
    assert world.segment.should_roll(10, 1091, 1, 0, 500, 100)


def test_22_without_timestamps_the_age_of_the_segment_counts() -> None:
    world = World()
    world.add(0, timestamp=-1)
    assert not world.segment.should_roll(10, -1, 1, 5100, 500, 100)
    assert world.segment.should_roll(10, -1, 1, 5101, 500, 100)


def test_22_roll_by_full_indexes() -> None:
    by_offsets = World(interval=0, index_size_max=24)
    by_offsets.add(0, timestamp=-1)
    for offset in (1, 2):
        by_offsets.add(offset, timestamp=-1)
    assert not by_offsets.segment.should_roll(1, -1, 3, 0, 10**9, 10**9)
    by_offsets.add(3, timestamp=-1)
    assert by_offsets.segment.should_roll(1, -1, 4, 0, 10**9, 10**9)
    by_times = World(interval=0, index_size_max=36)
    by_times.add(0, timestamp=1)
    by_times.add(1, timestamp=2)
    assert not by_times.segment.should_roll(1, 4, 2, 0, 10**9, 10**9)
    by_times.add(2, timestamp=3)
    assert by_times.segment.time_index.is_full
    assert by_times.segment.should_roll(1, 4, 3, 0, 10**9, 10**9)


def test_position_of_finds_the_batch_that_holds_or_follows_an_offset() -> None:
    world = World(interval=100)
    positions = {}
    position = 0
    for offset in (0, 3, 10, 13, 20):
        positions[offset] = position
        position += world.add(offset, count=3)
    assert world.segment.position_of(0) == 0
    assert world.segment.position_of(4) == positions[3]
    assert world.segment.position_of(6) == positions[10]
    assert world.segment.position_of(15) == positions[13]
    assert world.segment.position_of(20) == positions[20]
    assert world.segment.position_of(22) == positions[20]
    assert world.segment.position_of(23) is None


def test_position_of_finds_large_batches_and_small_ones_among_them() -> None:
    world = World(interval=4096)
    positions = {}
    position = 0
    for offset, size in ((0, 6000), (3, 6000), (6, 10), (9, 10), (12, 6000), (20, 6000), (23, 6000)):
        positions[offset] = position
        position += world.add(offset, count=3, size=size)
    assert [offset for offset, _ in world.entries()] == [5, 8, 22, 25]
    found = {offset: world.segment.position_of(offset) for offset in range(26)}
    expected = {offset: positions[max(base for base in positions if base <= offset)] for offset in range(26)}
    expected |= dict.fromkeys(range(15, 20), positions[20])  # a gap, as compaction leaves it
    assert found == expected
    assert world.segment.position_of(26) is None


def test_reads_end_at_batch_ends() -> None:
    world = World(interval=100)
    size = 0
    for offset in range(10):
        size = world.add(offset)
    total = world.segment.size_bytes

    def extent(
        offset: int, size_max: int, max_position: int = total, *, min_one: bool = True
    ) -> tuple[int, int] | None:
        found = world.segment.read(offset, size_max, max_position, min_one_batch=min_one)
        return None if found is None else (found.position, found.size)

    assert extent(0, total) == (0, total)
    assert extent(9, 10**9) == (9 * size, size)
    assert extent(0, 1) == (0, size)
    assert extent(0, 1, min_one=False) == (0, 0)
    assert extent(3, size) == (3 * size, size)
    assert extent(0, 5 * size, 2 * size) == (0, 2 * size)
    assert extent(5, 10, 5 * size) is None
    assert extent(10, 10) is None
    for size_max in range(1, total + 100, 37):
        found = extent(0, size_max)
        assert found is not None
        assert found[1] % size == 0
        assert found[1] <= max(size, size_max)
        assert found[1] >= min(total, size_max) - 3 * size or found[1] == size


def test_13_timestamps_are_found_within_a_batch() -> None:
    world = World(interval=0)
    first = records_batch((1000, b"k", b"a"), (1010, b"k", b"b"), (1005, b"k", b"c"), base_offset=0)
    world.segment.write([first])
    world.segment.accept([RecordBatch.parse(first)])
    world.add(3, timestamp=2000)
    find = world.segment.find_offset_by_timestamp
    assert find(999, 0) == (1000, 0, -1)
    assert find(1001, 0) == (1010, 1, -1)
    assert find(1001, 2) == (1005, 2, -1)
    assert find(1011, 0) == (2000, 3, -1)
    assert find(2001, 0) is None


def test_sealed_segments_are_bounded_and_come_back() -> None:
    world = World(interval=0, cache=1)
    for offset in range(4):
        world.add(offset)
    world.segment.seal()
    other = LogSegment.create(
        world.disk, world.cache, DIRECTORY, 4, index_size_max=1000, created_ms=0, index_interval_bytes=0
    )
    other.seal()
    assert not world.segment.records.is_open
    assert world.segment.memory_bytes == 0
    assert world.disk.open_files == 1
    assert world.segment.position_of(2) == 158
    assert world.segment.records.is_open
    assert not other.records.is_open


def test_recover_rebuilds_indexes_and_cuts_what_is_not_whole() -> None:
    world = World(interval=0)
    for offset in range(4):
        world.add(offset, timestamp=1000 + offset)
    good = world.segment.size_bytes
    world.segment.seal()
    expected, times = world.entries(), world.segment.time_index.entries()
    path = world.segment.records.path
    world.disk.overwrite(path, world.disk.read(path) + bytes(100))
    world.disk.overwrite(world.segment.offset_index.path, b"garbage!")
    world.segment.records.size_bytes = good + 100
    seen: list[RecordBatch] = []

    def remember(batch: RecordBatch) -> list[object]:
        seen.append(batch)
        return []

    assert world.segment.recover(remember) == 100  # type: ignore[arg-type]
    assert [batch.base_offset for batch in seen] == [0, 1, 2, 3]
    assert world.disk.size(path) == good
    assert world.entries() == expected
    assert world.segment.time_index.entries() == times
    assert world.disk.size(world.segment.offset_index.path) == len(expected) * 8
    assert world.segment.read_next_offset() == 4


def test_recover_stops_where_offsets_go_back() -> None:
    world = World()
    world.add(5)
    world.add(3)
    assert world.segment.recover(lambda batch: []) == 79
    assert world.segment.read_next_offset() == 6


def test_recover_goes_on_when_indexes_cannot_be_written() -> None:
    world = World(interval=0)
    for offset in range(4):
        world.add(offset)
    world.disk.fail(world.segment.offset_index.path, "open")
    assert world.segment.recover(lambda batch: []) == 0
    assert len(world.entries()) == 3
    assert not world.segment.offset_index.is_written
    world.disk.heal()
    world.segment.write_indexes()
    assert world.segment.offset_index.is_written


def test_where_the_batch_around_an_offset_begins() -> None:
    world = World(interval=0)
    for offset in (0, 3, 9):
        world.add(offset, count=3)
    starts = [world.segment.batch_start(offset) for offset in range(13)]
    assert starts == [0, 0, 0, 3, 3, 3, 6, 7, 8, 9, 9, 9, 12]  # 6 to 8 a hole, 12 the end


def test_33_truncate_takes_the_whole_batch_and_all_indexes() -> None:
    world = World(interval=0)
    for offset in (0, 3, 6, 9):
        world.add(offset, count=3, timestamp=1000 + offset)
    world.segment.truncate_to(7, 9999)
    assert world.segment.read_next_offset() == 6
    assert world.entries() == [(5, 115)]
    assert world.segment.max_timestamp_so_far == (1003, 5)
    assert world.segment.created_ms == 5000
    world.segment.truncate_to(0, 9999)
    assert (world.segment.size_bytes, world.segment.created_ms) == (0, 9999)
    assert world.segment.max_timestamp_so_far == (-1, 0)


def test_largest_timestamp_falls_back_to_the_files_own() -> None:
    world = World()
    world.add(0, timestamp=-1)
    assert world.segment.largest_timestamp == 777
    world.add(1, timestamp=1234)
    assert world.segment.largest_timestamp == 1234


def test_set_aside_files_and_reads_under_way() -> None:
    world = World(interval=0)
    world.add(0)
    world.add(1)
    world.segment.seal()
    found = world.segment.read(0, 10**6, world.segment.size_bytes, min_one_batch=True)
    assert found is not None
    names = [path.name for path in world.segment.rename_deleted()]
    assert names == [
        "00000000000000000000.log.deleted",
        "00000000000000000000.index.deleted",
        "00000000000000000000.timeindex.deleted",
    ]
    assert world.disk.list_directory(DIRECTORY) == sorted(names)
    assert len(found.file.read_at(found.position, found.size)) == found.size


def test_its_files() -> None:
    names = [path.name for path in World().segment.paths]
    assert names == [f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex")]


def test_creation_needs_the_disk() -> None:
    disk = SimFileSystem()
    disk.make_directories(DIRECTORY)
    disk.fail(DIRECTORY, "create")
    with pytest.raises(StorageFailure):
        LogSegment.create(disk, SegmentCache(), DIRECTORY, 0, index_size_max=1, created_ms=0, index_interval_bytes=1)
    assert disk.list_directory(DIRECTORY) == []


def test_files_under_another_name_are_read_and_written_there() -> None:
    world = World()
    for offset in range(20):
        world.add(offset)
    world.segment.seal()
    entries = world.entries()
    names = [path.name for path in world.segment.rename(".swap")]
    assert names == [f"{0:020d}.{kind}.swap" for kind in ("log", "index", "timeindex")], "nothing was aborted"
    assert world.segment.paths[3].name == f"{0:020d}.txnindex.swap", "where it would be"
    world.segment.unload()
    assert world.entries() == entries
    assert world.segment.read_next_offset() == 20
    world.segment.rename("")
    assert [path.name for path in world.segment.paths] == [
        f"{0:020d}.{kind}" for kind in ("log", "index", "timeindex", "txnindex")
    ]


def test_the_timestamp_of_the_first_batch() -> None:
    world = World()
    assert world.segment.first_batch_timestamp == -1
    world.add(0, timestamp=70)
    world.add(1, timestamp=60)
    assert world.segment.first_batch_timestamp == 70
    world.segment.truncate_to(0, 1)
    assert world.segment.first_batch_timestamp == -1
