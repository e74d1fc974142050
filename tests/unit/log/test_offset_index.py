"""OffsetIndex: look-ups, bytes, limits."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.log.abstract_index import CorruptIndexError
from broker.log.offset_index import OffsetIndex
from tests.support.sim_disk import SimFileSystem

PATH = Path("/data/100.index")


def make_index(base: int = 100, size_max: int = 1024, content: bytes | None = None) -> OffsetIndex:
    disk = SimFileSystem()
    disk.make_directories(PATH.parent)
    if content is not None:
        disk.open(PATH, create=True).write_at(0, [content])
    return OffsetIndex(disk, PATH, base, size_max, exists=content is not None)


def test_lookup_finds_the_greatest_entry_at_or_below() -> None:
    index = make_index()
    index.append(110, 1000)
    index.append(120, 2000)
    assert index.lookup(99) == (100, 0)
    assert index.lookup(109) == (100, 0)
    assert index.lookup(110) == (110, 1000)
    assert index.lookup(119) == (110, 1000)
    assert index.lookup(10_000) == (120, 2000)
    assert index.last_offset == 120


def test_fetch_upper_bound_is_the_first_entry_at_or_after_the_end() -> None:
    index = make_index()
    index.append(110, 1000)
    index.append(120, 2000)
    assert index.fetch_upper_bound(0, 1000) == 110
    assert index.fetch_upper_bound(0, 1001) == 120
    assert index.fetch_upper_bound(1000, 1001) is None


def test_position_at_or_before_is_a_batch_start() -> None:
    index = make_index()
    index.append(110, 1000)
    assert index.position_at_or_before(999) == 0
    assert index.position_at_or_before(1000) == 1000
    assert index.position_at_or_before(5000) == 1000


def test_vector_oi() -> None:
    """An entry of relative offset 150 at position 8192."""
    index = make_index(content=bytes.fromhex("0000009600002000"))
    assert index.entries() == [(250, 8192)]
    assert index._encode(0, 1) == bytes.fromhex("0000009600002000")


def test_8_a_tail_of_zeros_is_not_believed() -> None:
    """Kafka leaves its preallocated files zero-tailed when it is killed."""
    entries = bytes.fromhex("0000009600002000")
    assert make_index(content=entries + bytes(1024)).entries() == [(250, 8192)]
    assert make_index(content=bytes(1024)).entries() == []


def test_full_at_the_size_rounded_down_to_entries() -> None:
    index = make_index(size_max=20)
    index.append(101, 1)
    assert not index.is_full
    index.append(102, 2)
    assert index.is_full


def test_offsets_must_increase_and_fit() -> None:
    index = make_index()
    index.append(100 + 2**31 - 1, 10)
    with pytest.raises(AssertionError):
        index.append(100 + 2**31 - 1, 20)
    with pytest.raises(AssertionError):
        make_index().append(100 + 2**31, 10)


def test_truncate_drops_entries_at_or_above() -> None:
    index = make_index()
    for offset in (110, 120, 130):
        index.append(offset, offset)
    index.truncate_to(120)
    assert index.entries() == [(110, 110)]
    index.truncate_to(100)
    assert index.entries() == []
    assert index.last_offset == 100


def test_sanity_check_wants_increasing_offsets() -> None:
    make_index(content=bytes.fromhex("0000000100000010 0000000200000020")).sanity_check()
    with pytest.raises(CorruptIndexError):
        make_index(content=bytes.fromhex("0000000200000010 0000000100000020")).sanity_check()


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=60), st.data())
def test_against_a_dumb_twin(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    index, twin = make_index(base=0), [(0, 0)]
    for offset_step, position_step in steps:
        entry = (twin[-1][0] + offset_step, twin[-1][1] + position_step)
        index.append(*entry)
        twin.append(entry)
    target = data.draw(st.integers(0, twin[-1][0] + 10))
    assert index.lookup(target) == max(entry for entry in twin if entry[0] <= target)
    index.truncate_to(target)
    assert index.entries() == [entry for entry in twin[1:] if entry[0] < target]


def test_positions_around_an_offset_are_those_of_its_entry_and_the_next() -> None:
    index = make_index()
    assert index.positions_around(112) == (0, None)
    index.append(110, 1000)
    index.append(120, 2000)
    assert [index.positions_around(offset) for offset in (109, 110, 119, 120)] == [
        (0, 1000),
        (1000, 2000),
        (1000, 2000),
        (2000, None),
    ]
