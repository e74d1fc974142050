"""TransactionIndex: bytes, collecting, truncation, refusals."""

from pathlib import Path

import pytest

from broker.log.abstract_index import CorruptIndexError
from broker.log.transaction_index import AbortedTransaction, TransactionIndex
from tests.support.sim_disk import SimFileSystem

PATH = Path("/data/0.txnindex")
XI = bytes.fromhex("00000000000000000fa0000000000000006400000000000000660000000000000067")


def make_disk(content: bytes | None = None) -> SimFileSystem:
    disk = SimFileSystem()
    disk.make_directories(PATH.parent)
    if content is not None:
        disk.open(PATH, create=True).write_at(0, [content])
    return disk


def test_vector_xi() -> None:
    entry = AbortedTransaction(4000, 100, 102, 103)
    assert TransactionIndex(make_disk(XI), PATH, 0, exists=True).entries() == [entry]
    disk = make_disk()
    index = TransactionIndex(disk, PATH, 0)
    assert not disk.exists(PATH)
    index.append(entry)
    assert disk.read(PATH) == XI


def test_a_partial_entry_at_the_end_is_left_out() -> None:
    assert len(TransactionIndex(make_disk(XI + XI[:33]), PATH, 0, exists=True).entries()) == 1


def test_unknown_versions_and_foreign_offsets_are_corrupt() -> None:
    with pytest.raises(CorruptIndexError):
        TransactionIndex(make_disk(b"\0\1" + XI[2:]), PATH, 0, exists=True).sanity_check()
    with pytest.raises(CorruptIndexError):
        TransactionIndex(make_disk(XI), PATH, 103, exists=True).sanity_check()


def test_collect_wants_overlap_and_stops_at_the_stable_offset() -> None:
    index = TransactionIndex(make_disk(), PATH, 0)
    first, second, third = (
        AbortedTransaction(1, 0, 10, 5),
        AbortedTransaction(2, 5, 20, 21),
        AbortedTransaction(3, 30, 40, 41),
    )
    for entry in (first, second, third):
        index.append(entry)
    assert index.collect(0, 5) == ([first], True)
    assert index.collect(0, 25) == ([first, second], True)
    assert index.collect(11, 100) == ([second, third], False)
    assert index.collect(21, 30) == ([], True)
    assert index.collect(41, 100) == ([], False)


def test_33_truncate_cuts_at_the_first_marker_at_or_above() -> None:
    disk = make_disk()
    index = TransactionIndex(disk, PATH, 0)
    index.append(AbortedTransaction(1, 0, 10, 11))
    index.append(AbortedTransaction(2, 12, 20, 21))
    index.truncate_to(20)
    index.write()
    assert disk.size(PATH) == 34
    index.truncate_to(0)
    index.write()
    assert not disk.exists(PATH)


def test_an_entry_the_disk_refused_is_written_later() -> None:
    disk = make_disk()
    disk.budget_bytes = 20
    index = TransactionIndex(disk, PATH, 0)
    index.append(AbortedTransaction(4000, 100, 102, 103))
    assert not index.is_written
    index.unload()
    assert not index.is_empty
    disk.heal()
    index.write()
    assert disk.read(PATH) == XI


def test_unload_and_reset() -> None:
    disk = make_disk(XI)
    index = TransactionIndex(disk, PATH, 0, exists=True)
    assert not index.is_loaded
    assert not index.is_empty
    index.unload()
    assert not index.is_loaded
    index.reset()
    assert index.is_empty
    index.write()
    assert not disk.exists(PATH)
