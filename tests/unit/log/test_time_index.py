"""TimeIndex: look-ups, bytes, the rules of its entries."""

from pathlib import Path

import pytest

from broker.log.abstract_index import CorruptIndexError
from broker.log.time_index import TimeIndex
from tests.support.sim_disk import SimFileSystem

PATH = Path("/data/0.timeindex")


def make_index(base: int = 0, size_max: int = 1024, content: bytes | None = None) -> TimeIndex:
    disk = SimFileSystem()
    disk.make_directories(PATH.parent)
    if content is not None:
        disk.open(PATH, create=True).write_at(0, [content])
    return TimeIndex(disk, PATH, base, size_max, exists=content is not None)


def test_lookup_finds_the_greatest_timestamp_at_or_below() -> None:
    index = make_index(base=50)
    index.maybe_append(1000, 60)
    index.maybe_append(2000, 70)
    assert index.lookup(999) == (-1, 50)
    assert index.lookup(1000) == (1000, 60)
    assert index.lookup(1999) == (1000, 60)
    assert index.lookup(9999) == (2000, 70)
    assert index.last_entry == (2000, 70)


def test_12_equal_or_smaller_timestamps_add_nothing() -> None:
    index = make_index()
    index.maybe_append(1000, 1)
    index.maybe_append(1000, 2)
    index.maybe_append(999, 3)
    index.maybe_append(-1, 4)
    assert index.entries() == [(1000, 1)]
    assert make_index().last_entry == (-1, 0)


def test_an_offset_that_goes_back_is_a_bug() -> None:
    index = make_index()
    index.maybe_append(1000, 5)
    with pytest.raises(AssertionError):
        index.maybe_append(1001, 4)


def test_one_slot_is_kept_for_the_last_entry() -> None:
    index = make_index(size_max=36)
    index.maybe_append(1, 1)
    index.maybe_append(2, 2)
    assert index.is_full
    index.maybe_append(3, 3)
    assert index.entry_count == 2
    index.maybe_append(3, 3, skip_full_check=True)
    assert index.last_entry == (3, 3)


def test_vector_ti() -> None:
    """Timestamp 1700000000005, relative offset 101."""
    index = make_index(base=1000, content=bytes.fromhex("0000018bcfe5680500000065"))
    assert index.entries() == [(1_700_000_000_005, 1101)]
    assert index._encode(0, 1) == bytes.fromhex("0000018bcfe5680500000065")


def test_8_a_tail_of_zeros_is_not_believed() -> None:
    entry = bytes.fromhex("0000018bcfe5680500000065")
    assert make_index(content=entry + bytes(1200)).entry_count == 1
    assert make_index(content=bytes(1200)).entries() == []


def test_truncate_and_sanity() -> None:
    index = make_index()
    index.maybe_append(1, 10)
    index.maybe_append(2, 20)
    index.truncate_to(20)
    assert index.entries() == [(1, 10)]
    falling = bytes.fromhex("000000000000000200000001 000000000000000100000002")
    with pytest.raises(CorruptIndexError):
        make_index(content=falling).sanity_check()
    with pytest.raises(CorruptIndexError):
        make_index(content=falling[:13]).sanity_check()
    make_index(content=falling[:12]).sanity_check()
