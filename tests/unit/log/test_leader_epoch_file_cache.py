"""LeaderEpochFileCache: KIP-101 and KIP-279 questions, truncation at both ends, when the file follows."""

from pathlib import Path

import pytest

from broker.log.leader_epoch_file_cache import UNDEFINED, EpochEntry, LeaderEpochFileCache
from broker.log.offset_checkpoint_file import CheckpointFormatError
from tests.support.sim_disk import SimFileSystem

DIRECTORY = Path("/data/t-0")


def make_cache(*entries: tuple[int, int]) -> tuple[SimFileSystem, LeaderEpochFileCache]:
    disk = SimFileSystem()
    disk.make_directories(DIRECTORY)
    cache = LeaderEpochFileCache(disk, DIRECTORY)
    for epoch, start in entries:
        cache.assign(epoch, start)
    return disk, cache


def test_assign_ignores_old_news_and_drops_what_it_contradicts() -> None:
    _, cache = make_cache((0, 0), (3, 150))
    cache.assign(3, 200)
    assert cache.entries == ((0, 0), (3, 150))
    cache.assign(3, 100)
    assert cache.entries == ((0, 0), (3, 100))
    cache.assign(2, 120)
    assert cache.entries == ((0, 0), (2, 120))
    cache.assign(5, 50)
    assert cache.entries == ((0, 0), (5, 50))
    with pytest.raises(ValueError, match="negative"):
        cache.assign(-1, 0)


def test_batches_that_are_read_again_say_which_epochs_were_cut() -> None:
    _, cache = make_cache((1, 0), (3, 10), (4, 20))
    for epoch, offset in ((-1, 5), (1, 9), (3, 10), (3, 15)):
        cache.recovered(epoch, offset)
        assert cache.entries == ((1, 0), (3, 10), (4, 20))
    cache.recovered(2, 16)
    assert cache.entries == ((1, 0), (2, 16))
    cache.recovered(5, 17)
    assert cache.entries == ((1, 0), (2, 16), (5, 17))
    cache.recovered(0, 0)
    assert cache.entries == ((0, 0),)


def test_prepend_joins_what_is_of_one_epoch() -> None:
    for known, joined in (
        ([], ((0, 0), (3, 4), (5, 8))),
        ([(5, 10)], ((0, 0), (3, 4), (5, 8))),
        ([(5, 10), (6, 20)], ((0, 0), (3, 4), (5, 8), (6, 20))),
        ([(6, 20)], ((0, 0), (3, 4), (5, 8), (6, 20))),
        ([(3, 4), (5, 8)], ((0, 0), (3, 4), (5, 8))),
    ):
        disk, cache = make_cache(*known)
        cache.write()
        cache.prepend([EpochEntry(0, 0), EpochEntry(3, 4), EpochEntry(5, 8)])
        assert cache.entries == joined
        assert not cache.is_written_below(100)
        cache.write()
        assert LeaderEpochFileCache.load(disk, DIRECTORY).entries == joined
        cache.truncate_from_start(4)
        assert cache.entries[0] == (3, 4)


def test_end_offset_for() -> None:
    _, cache = make_cache((2, 10), (5, 50), (7, 70))
    assert cache.end_offset_for(-1, 100) == UNDEFINED
    assert cache.end_offset_for(7, 100) == (7, 100)
    assert cache.end_offset_for(8, 100) == UNDEFINED
    assert cache.end_offset_for(5, 100) == (5, 70)
    assert cache.end_offset_for(6, 100) == (5, 70)
    assert cache.end_offset_for(2, 100) == (2, 50)
    assert cache.end_offset_for(1, 100) == (1, 10)
    assert make_cache()[1].end_offset_for(0, 100) == UNDEFINED


def test_epoch_for_offset() -> None:
    _, cache = make_cache((2, 10), (5, 50))
    assert [cache.epoch_for_offset(offset) for offset in (9, 10, 49, 50, 99)] == [None, 2, 2, 5, 5]


def test_truncate_from_end_drops_epochs_that_start_there() -> None:
    _, cache = make_cache((0, 0), (1, 10), (2, 20))
    cache.truncate_from_end(20)
    assert cache.entries == ((0, 0), (1, 10))
    cache.truncate_from_end(15)
    assert cache.entries == ((0, 0), (1, 10))
    assert cache.latest_epoch == 1


def test_truncate_from_start_keeps_the_epoch_that_holds_the_offset() -> None:
    _, cache = make_cache((0, 0), (1, 10), (2, 20))
    cache.truncate_from_start(15)
    assert cache.entries == ((1, 15), (2, 20))
    cache.truncate_from_start(20)
    assert cache.entries == ((2, 20),)
    cache.truncate_from_start(10)
    assert cache.entries == ((2, 20),)
    assert cache.earliest_entry == (2, 20)


def test_the_file_follows_when_it_is_written() -> None:
    disk, cache = make_cache((0, 0), (3, 150))
    assert not cache.is_written
    cache.write()
    assert disk.read(DIRECTORY / "leader-epoch-checkpoint") == b"0\n2\n0 0\n3 150\n"
    assert cache.is_written
    assert LeaderEpochFileCache.load(disk, DIRECTORY).entries == cache.entries


def test_a_change_during_a_write_is_not_forgotten() -> None:
    disk, cache = make_cache((0, 0))
    pending = cache.pending_write()
    assert pending is not None
    cache.assign(1, 10)
    cache.write_content(*pending)
    cache.written(pending[0])
    assert not cache.is_written
    cache.write()
    assert cache.pending_write() is None
    cache.write_content(*pending)
    assert disk.read(DIRECTORY / "leader-epoch-checkpoint") == b"0\n2\n0 0\n1 10\n"


def test_an_epoch_without_records_need_not_be_in_the_file() -> None:
    disk, cache = make_cache((0, 0), (1, 10))
    assert not cache.is_written_below(10)
    cache.write()
    cache.assign(2, 20)
    assert not cache.is_written
    assert cache.is_written_below(20)
    assert not cache.is_written_below(21)
    cache = LeaderEpochFileCache.load(disk, DIRECTORY)
    cache.assign(1, 10)
    cache.assign(3, 10)
    assert cache.is_written_below(10), "the file knows epoch 1 at 10, which no record has either"
    assert not cache.is_written_below(11)


def test_after_an_older_write_than_offered_the_file_is_not_known() -> None:
    _, cache = make_cache((0, 0))
    older = cache.pending_write()
    assert older is not None
    cache.assign(1, 10)
    assert cache.pending_write() is not None
    cache.write_content(*older)
    cache.written(older[0])
    assert not cache.is_written_below(5)


def test_clear_and_damaged_file() -> None:
    disk, cache = make_cache((0, 0))
    cache.write()
    cache.clear()
    assert not cache.is_written
    assert cache.latest_epoch is None
    assert cache.earliest_entry is None
    disk.overwrite(cache.path, b"0\n1\n-5 0\n")
    with pytest.raises(CheckpointFormatError):
        LeaderEpochFileCache.load(disk, DIRECTORY)


def test_the_file_keeps_what_the_log_start_left_behind_until_that_is_durable() -> None:
    disk, cache = make_cache((0, 0), (1, 10), (2, 20))
    cache.write()
    cache.truncate_from_start(15)
    assert cache.entries == ((1, 15), (2, 20))
    assert cache.is_written
    cache.assign(3, 30)
    cache.truncate_from_end(20)
    cache.write()
    assert LeaderEpochFileCache.load(disk, DIRECTORY).entries == ((0, 0), (1, 10))
    cache.log_start_is_durable(12)
    assert not cache.is_written_below(15)
    cache.write()
    assert LeaderEpochFileCache.load(disk, DIRECTORY).entries == ((1, 12),)
    assert cache.entries == ((1, 15),)
    cache.truncate_from_end(15)
    assert cache.entries == ()
    cache.assign(3, 15)
    cache.write()
    assert LeaderEpochFileCache.load(disk, DIRECTORY).entries == ((1, 12), (3, 15))
