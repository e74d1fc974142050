import os
from pathlib import Path

import pytest

from broker.common import file_system
from broker.common.errors import StorageFailure
from broker.common.file_system import OsFile, OsFileSystem, read_file, write_file_atomically
from broker.common.read_buffers import ReadBuffers

FILES = OsFileSystem()


def test_several_buffers_are_written_one_after_the_other(tmp_path: Path) -> None:
    file = FILES.open(tmp_path / "a", create=True)
    assert file.write_at(0, [b"abc"]) == 3
    assert file.write_at(3, [b"de", bytearray(b"f"), memoryview(b"gh")]) == 5
    assert (file.size(), file.read_at(0, 100), file.read_at(2, 3)) == (8, b"abcdefgh", b"cde")
    file.close()
    file.close()


def test_more_buffers_than_one_call_of_the_system_takes(tmp_path: Path) -> None:
    file = FILES.open(tmp_path / "a", create=True)
    count = file_system.WRITE_VECTOR_MAX * 2 + 1
    assert file.write_at(0, [b"%04d" % number for number in range(count)]) == 4 * count
    assert file.read_at(4 * (count - 1), 10) == b"%04d" % (count - 1)
    file.close()


def test_a_short_write_is_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FILES.open(tmp_path / "a", create=True)
    write, write_vector = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, at: write(descriptor, data[:2], at))
    monkeypatch.setattr(os, "pwritev", lambda descriptor, parts, at: write_vector(descriptor, parts[:1], at))
    assert file.write_at(0, [b"abcde"]) == 5
    assert file.write_at(5, [b"fg", b"hij", b"k"]) == 6
    assert file.read_at(0, 100) == b"abcdefghijk"
    file.close()


def test_a_write_that_goes_nowhere_is_a_storage_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FILES.open(tmp_path / "a", create=True)
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(StorageFailure, match="No space left on device"):
        file.write_at(0, [b"abc"])
    file.close()


def test_cached_reads_are_whole_or_nothing(tmp_path: Path) -> None:
    file = FILES.open(tmp_path / "a", create=True)
    file.write_at(0, [b"abcdef"])
    assert file.read_cached_at(1, 3) in (b"bcd", None)  # None where the file system cannot tell
    assert file.read_cached_at(4, 10) is None
    file.close()


def test_files_can_be_cut_and_flushed(tmp_path: Path) -> None:
    file = FILES.open(tmp_path / "a", create=True)
    file.write_at(0, [b"abcdef"])
    file.sync()
    file.truncate(2)
    assert file.read_at(0, 10) == b"ab"
    file.close()


def test_a_missing_file_is_the_callers_business(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FILES.open(tmp_path / "missing")
    with pytest.raises(FileNotFoundError):
        read_file(FILES, tmp_path / "missing")
    FILES.remove(tmp_path / "missing")
    FILES.remove_tree(tmp_path / "missing")


def test_other_errors_of_the_system_are_storage_failures(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    with pytest.raises(StorageFailure, match="directory: Is a directory"):
        FILES.open(tmp_path / "directory")
    file = OsFile(tmp_path / "a", -1, ReadBuffers())
    for work in (file.size, file.sync, lambda: file.read_at(0, 1), lambda: file.write_at(0, [b"a", b"b"])):
        with pytest.raises(StorageFailure, match="a: Bad file descriptor"):
            work()


def test_listings_are_sorted(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / name).touch()
    assert FILES.list_directory(tmp_path) == ["a", "b", "c"]


def test_directories(tmp_path: Path) -> None:
    deep = tmp_path / "x" / "y"
    FILES.make_directories(deep)
    FILES.make_directories(deep)
    (deep / "file").write_bytes(b"abc")
    assert (FILES.is_directory(deep), FILES.exists(deep / "file"), FILES.size(deep / "file")) == (True, True, 3)
    assert FILES.modified_ms(deep / "file") == (deep / "file").stat().st_mtime_ns // 1_000_000
    FILES.set_modified_ms(deep / "file", 1_600_000_000_123)
    assert FILES.modified_ms(deep / "file") == 1_600_000_000_123
    FILES.rename(deep / "file", tmp_path / "moved")
    FILES.sync_directory(tmp_path)
    assert (tmp_path / "moved").read_bytes() == b"abc"
    FILES.remove_tree(tmp_path / "x")
    assert not FILES.exists(deep)


def test_one_process_holds_the_lock(tmp_path: Path) -> None:
    lock = FILES.lock(tmp_path / ".lock")
    with pytest.raises(StorageFailure, match="is locked: another broker runs on this directory"):
        FILES.lock(tmp_path / ".lock")
    lock.release()
    FILES.lock(tmp_path / ".lock").release()


def test_a_small_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    write_file_atomically(FILES, path, b"a long first version")
    write_file_atomically(FILES, path, b"second")
    assert read_file(FILES, path) == b"second"
    assert FILES.list_directory(tmp_path) == ["checkpoint"]


def test_a_failed_replacement_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint"
    write_file_atomically(FILES, path, b"first")
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(StorageFailure):
        write_file_atomically(FILES, path, b"second")
    assert path.read_bytes() == b"first"
