"""DirectoryFiles: what is on the disk, and what is not, after each step."""

import os
from pathlib import Path

import pytest

from broker.objectstore import directory_files
from broker.objectstore.directory_files import ABANDONED_SECONDS, TEMPORARY, DirectoryFiles
from broker.objectstore.errors import BucketNotFound, NotFound, PreconditionFailed, Refused


def tree(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.name != TEMPORARY)


def test_objects_are_files_and_nothing_else_is_left(tmp_path: Path) -> None:
    files = DirectoryFiles(tmp_path)
    files.put("a/b/c", b"one", "w1")
    files.put_if_absent("a/d", b"two", "w2")
    with pytest.raises(PreconditionFailed):
        files.put_if_absent("a/d", b"three", "w3")
    assert tree(tmp_path) == ["a", "a/b", "a/b/c", "a/d"]
    assert (tmp_path / "a/b/c").read_bytes() == b"one"
    assert (tmp_path / "a/d").stat().st_nlink == 1
    files.delete_many(["a/b/c", "a/d"])
    assert tree(tmp_path) == []


def test_a_link_whose_answer_was_lost_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As network file systems do it: the link is there, and the repeated call says that it exists."""
    real = os.link

    def link(source: Path, target: Path) -> None:
        real(source, target)
        raise FileExistsError(target)

    monkeypatch.setattr(directory_files.os, "link", link)
    DirectoryFiles(tmp_path).put_if_absent("a", b"x", "w1")
    assert (tmp_path / "a").read_bytes() == b"x"


def test_a_folder_that_others_remove_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, removed = os.rename, []

    def rename(source: Path, target: Path) -> None:
        if len(removed) < 3:
            target.parent.rmdir()
            removed.append(target)
        real(source, target)

    monkeypatch.setattr(directory_files.os, "rename", rename)
    DirectoryFiles(tmp_path).put("folder/a", b"x", "w1")
    assert len(removed) == 3
    assert tree(tmp_path) == ["folder", "folder/a"]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: memoryview, position: int) -> int:
        if position:
            raise OSError("full")
        return 1

    monkeypatch.setattr(directory_files.os, "pwrite", full)
    with pytest.raises(OSError, match="full"):
        DirectoryFiles(tmp_path).put("a", b"xyz", "w1")
    assert tree(tmp_path) == []


def test_a_folder_is_no_object_and_an_object_no_folder(tmp_path: Path) -> None:
    files = DirectoryFiles(tmp_path)
    files.put("a/b", b"x", "w1")
    with pytest.raises(NotFound):
        files.head("a", False)
    with pytest.raises(NotFound):
        files.get_range("a/b/c", 0, 1)
    with pytest.raises(Refused, match="a folder"):
        files.put("a", b"x", "w2")
    for key in ("a/b/c", "a/b/c/d"):
        with pytest.raises(Refused, match="below"):
            files.put(key, b"x", "w3")
        with pytest.raises(Refused, match="below"):
            files.put_if_absent(key, b"x", "w4")
    assert tree(tmp_path) == ["a", "a/b"]


@pytest.mark.parametrize("page_size", [1, 2, 3, 7, 8])
def test_pages_together_are_the_whole_listing(tmp_path: Path, page_size: int) -> None:
    files = DirectoryFiles(tmp_path)
    keys = ["a", "b/c", "b/d/e", "b/d/f", "b-g", "c/h/i/j", "d"]
    for number, key in enumerate(keys):
        files.put(key, b"x" * number, f"w{number}")
    found, continuation, pages = [], None, 0
    while pages == 0 or continuation is not None:
        page = files.list_page("", continuation, page_size)
        found += [(each.key, each.size_bytes) for each in page.objects]
        continuation, pages = page.continuation, pages + 1
    assert sorted(found) == sorted((key, number) for number, key in enumerate(keys))
    assert pages == len(keys) // page_size + 1


@pytest.mark.parametrize("page_size", [1, 2, 3, 4])
def test_pages_of_folders_together_are_all_of_them(tmp_path: Path, page_size: int) -> None:
    files = DirectoryFiles(tmp_path)
    for number, key in enumerate(["z", "p/a/x", "p/a/y/z", "p/a-b/x", "p/c/x", "p/d"]):
        files.put(key, b"x", f"w{number}")
    found, continuation, pages = [], None, 0
    while pages == 0 or continuation is not None:
        page = files.folder_page("p/", continuation, page_size)
        found += page.folders
        continuation, pages = page.continuation, pages + 1
    assert found == ["p/a-b/", "p/a/", "p/c/"]
    assert pages == -(-3 // page_size)
    assert files.folder_page("", None, 10).folders == ["p/"]
    assert files.folder_page("q/", None, 10).folders == []
    with pytest.raises(BucketNotFound):
        DirectoryFiles(tmp_path / "gone").folder_page("p/", None, 10)


def test_what_a_dead_writer_left_is_removed_after_a_day(tmp_path: Path) -> None:
    files = DirectoryFiles(tmp_path)
    files.start_upload("old")
    files.start_upload("young")
    path = tmp_path / TEMPORARY / "old"
    now = path.stat().st_mtime
    os.utime(path, (now - ABANDONED_SECONDS - 60,) * 2)
    files.probe()
    assert sorted(os.listdir(tmp_path / TEMPORARY)) == ["young"]


def test_an_upload_with_missing_parts_is_refused(tmp_path: Path) -> None:
    files = DirectoryFiles(tmp_path)
    files.start_upload("u")
    files.upload_part("u", 4, b"5678")
    with pytest.raises(Refused, match="8 bytes of 12"):
        files.complete_upload("u", "a", 12)
    files.upload_part("u", 0, b"1234")
    files.complete_upload("u", "a", 8)
    assert (tmp_path / "a").read_bytes() == b"12345678"
    for step in (lambda: files.upload_part("u", 0, b""), lambda: files.complete_upload("u", "a", 8)):
        with pytest.raises(NotFound):
            step()
