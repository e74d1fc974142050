"""The ObjectStore port: what every store promises, held against each of them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from crc32c import crc32c

from broker.common.disk import InlineDiskExecutor
from broker.common.errors import StorageFailure
from broker.common.file_system import File, OsFileSystem
from broker.objectstore.errors import BucketNotFound, Corrupt, NotFound, ObjectStoreError, PreconditionFailed
from broker.objectstore.file_region import FileRegion
from broker.objectstore.object_store import ObjectStore
from broker.objectstore.objects import PartSizes
from tests.contract.object_stores import ATOMIC_STORES, STORES, WITH_BUCKETS, Subject, subject
from tests.support.tracked_file import TrackedFile

BODY = bytes(range(256)) * 4


@pytest.fixture(params=STORES)
async def it(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    directory = tmp_path / "bucket"
    directory.mkdir()
    async with subject(request.param, request, directory) as made:
        yield made


@pytest.fixture
def store(it: Subject) -> ObjectStore:
    return it.store


@pytest.fixture
def folder() -> str:
    """A prefix that no other test uses."""
    return f"test-{uuid4().hex}/"


async def whole(store: ObjectStore, key: str) -> bytes:
    size = (await store.head(key)).size_bytes
    return await store.get_range(key, 0, size) if size else b""


async def keys_below(store: ObjectStore, prefix: str) -> list[str]:
    return sorted([found.key async for found in store.list(prefix)])


@pytest.mark.parametrize(("position", "size"), [(0, 1), (0, 1024), (100, 300), (1023, 1)])
async def test_ranges_of_an_object(store: ObjectStore, folder: str, position: int, size: int) -> None:
    await store.put(f"{folder}a", BODY)
    assert await store.get_range(f"{folder}a", position, size) == BODY[position : position + size]


@pytest.mark.parametrize(("position", "size"), [(1000, 25), (1024, 1), (5000, 10)])
async def test_a_range_beyond_the_end_is_corrupt(store: ObjectStore, folder: str, position: int, size: int) -> None:
    await store.put(f"{folder}a", BODY)
    with pytest.raises(Corrupt):
        await store.get_range(f"{folder}a", position, size)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_any_buffer_is_a_body(store: ObjectStore, folder: str, kind: type[Any]) -> None:
    await store.put(f"{folder}put", kind(BODY))
    await store.put_if_absent(f"{folder}put-if-absent", kind(BODY))
    assert await whole(store, f"{folder}put") == await whole(store, f"{folder}put-if-absent") == BODY


async def test_an_empty_object(it: Subject, folder: str) -> None:
    await it.store.put_if_absent(f"{folder}a", b"")
    assert (await it.store.head(f"{folder}a")).size_bytes == 0
    assert await keys_below(it.store, folder) == [f"{folder}a"]


async def test_put_replaces(store: ObjectStore, folder: str) -> None:
    await store.put(f"{folder}a", b"first, and longer")
    await store.put(f"{folder}a", b"second")
    assert await whole(store, f"{folder}a") == b"second"


async def test_what_is_not_there(store: ObjectStore, folder: str) -> None:
    with pytest.raises(NotFound):
        await store.get_range(f"{folder}a", 0, 1)
    with pytest.raises(NotFound):
        await store.head(f"{folder}a")
    with pytest.raises(NotFound):
        await store.head(folder[:-1])
    assert await keys_below(store, folder) == []


async def test_the_head_of_an_object(it: Subject, folder: str) -> None:
    await it.store.put(f"{folder}a", BODY)
    (listed,) = [found async for found in it.store.list(folder)]
    plain, checked = await it.store.head(f"{folder}a"), await it.store.head(f"{folder}a", checksum=True)
    assert plain.size_bytes == checked.size_bytes == listed.size_bytes == 1024
    assert plain.last_modified_ms // 1000 == listed.last_modified_ms // 1000
    assert checked.crc32c == (crc32c(BODY) if it.keeps_checksums else None)


async def test_put_if_absent_leaves_what_is_there(store: ObjectStore, folder: str) -> None:
    await store.put_if_absent(f"{folder}a", b"first")
    with pytest.raises(PreconditionFailed):
        await store.put_if_absent(f"{folder}a", b"second")
    assert await whole(store, f"{folder}a") == b"first"


@pytest.mark.parametrize("it", ATOMIC_STORES, indirect=True)
async def test_of_six_who_put_at_once_one_wins(store: ObjectStore, folder: str) -> None:
    for number in range(5):
        key = f"{folder}{number}"
        bodies = [f"of task {task}".encode() for task in range(6)]
        results = await asyncio.gather(*(store.put_if_absent(key, body) for body in bodies), return_exceptions=True)
        winners = [body for body, result in zip(bodies, results, strict=True) if result is None]
        assert len(winners) == 1, results
        assert all(isinstance(result, PreconditionFailed) for result in results if result is not None), results
        assert await whole(store, key) == winners[0]


async def test_a_listing_of_several_pages(store: ObjectStore, folder: str) -> None:
    names = ["a", "b/c", "b/d/e", "b-f", "g0", "g1", "g2", "z/1", "z/2"]
    for name in names:
        await store.put(folder + name, name.encode())
    found = [each async for each in store.list(folder)]
    assert sorted((each.key, each.size_bytes) for each in found) == sorted((folder + name, len(name)) for name in names)
    assert await keys_below(store, f"{folder}b/") == [f"{folder}b/c", f"{folder}b/d/e"]
    assert await keys_below(store, f"{folder}g/") == []


async def test_deleting_is_idempotent(store: ObjectStore, folder: str) -> None:
    for name in ("a", "b/c", "b/d"):
        await store.put(folder + name, b"x")
    await store.delete_many([f"{folder}a", f"{folder}b/c", f"{folder}never"])
    await store.delete_many([f"{folder}a"])
    await store.delete_many([])
    assert await keys_below(store, folder) == [f"{folder}b/d"]
    with pytest.raises(NotFound):
        await store.head(f"{folder}a")
    await store.put_if_absent(f"{folder}b/c", b"again")
    assert await whole(store, f"{folder}b/c") == b"again"


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/./b", "a/.hidden", "a b", "a\0", "ä", "a\\b"]
)
async def test_keys_that_no_store_takes(store: ObjectStore, key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        await store.put(key, b"x")
    with pytest.raises(ValueError, match="key"):
        await store.get_range(key, 0, 1)
    with pytest.raises(ValueError, match="key"):
        await store.start_upload(key)


async def test_prefixes_end_with_a_slash(store: ObjectStore, folder: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        await store.list_page(folder[:-1])


async def test_folders_are_listed_without_what_is_in_them(store: ObjectStore, folder: str) -> None:
    assert [each async for each in store.list_folders(folder)] == []
    for key in ("a", "b/1", "b/2", "b-c/1", "c/d/1", "e/1", "f/1"):
        await store.put(folder + key, b"x")
    found = [each async for each in store.list_folders(folder)]
    assert sorted(found) == sorted(f"{folder}{name}/" for name in ("b", "b-c", "c", "e", "f"))
    assert [each async for each in store.list_folders(f"{folder}c/")] == [f"{folder}c/d/"]
    with pytest.raises(ValueError, match="prefix"):
        await store.folder_page(folder[:-1])


async def test_keys_with_signs(store: ObjectStore, folder: str) -> None:
    key = f"{folder}A_z-0.9=+@x/00000000000000000001.wal"
    await store.put(key, b"x")
    assert await keys_below(store, folder) == [key]
    assert await whole(store, key) == b"x"


async def test_many_at_once(store: ObjectStore, folder: str) -> None:
    keys = [f"{folder}{number:02}" for number in range(20)]
    await asyncio.gather(*(store.put_if_absent(key, key.encode()) for key in keys))
    assert await asyncio.gather(*(whole(store, key) for key in keys)) == [key.encode() for key in keys]


async def test_the_bucket_answers_a_probe(it: Subject) -> None:
    await it.store.probe()


@pytest.mark.parametrize("it", WITH_BUCKETS, indirect=True)
async def test_a_missing_bucket_is_no_missing_object(it: Subject) -> None:
    """Who takes one for the other would believe that all objects are gone."""
    assert it.open_missing is not None
    missing = await it.open_missing()
    for question in (missing.probe(), missing.get_range("a", 0, 1), missing.put("a", b"x")):
        with pytest.raises(BucketNotFound):
            await question
    with pytest.raises(BucketNotFound):
        await keys_below(missing, "")
    await missing.close()


# Files


def file_of(path: Path, size_bytes: int) -> TrackedFile:
    pattern = bytes(range(251))  # no part of a power of two begins like another
    path.write_bytes((pattern * (size_bytes // 251 + 1))[:size_bytes])
    return TrackedFile(OsFileSystem().open(path))


def region(file: TrackedFile, position: int, size_bytes: int) -> FileRegion:
    return FileRegion(cast(File, file), position, size_bytes, InlineDiskExecutor())


async def test_a_small_region_of_a_file(store: ObjectStore, folder: str, tmp_path: Path) -> None:
    file = file_of(tmp_path / "file", 1000)
    await store.put_file(f"{folder}a", region(file, 100, 500))
    assert await whole(store, f"{folder}a") == (tmp_path / "file").read_bytes()[100:600]


async def test_an_empty_region_of_a_file(store: ObjectStore, folder: str, tmp_path: Path) -> None:
    await store.put_file(f"{folder}a", region(file_of(tmp_path / "file", 10), 5, 0))
    assert (await store.head(f"{folder}a")).size_bytes == 0


@pytest.mark.parametrize("parts", [3, 2.5])
async def test_a_large_region_is_never_whole_in_memory(it: Subject, folder: str, tmp_path: Path, parts: float) -> None:
    size = int(it.part_size_bytes * parts)
    file = file_of(tmp_path / "file", size + 20)
    await it.store.put_file(f"{folder}a", region(file, 10, size), PartSizes(it.part_size_bytes, parallel=2))
    assert await whole(it.store, f"{folder}a") == (tmp_path / "file").read_bytes()[10 : size + 10]
    assert max(file.read_sizes) == it.part_size_bytes
    assert file.live_bytes_max <= (2 + it.threads) * it.part_size_bytes


async def test_a_file_that_was_cut_is_not_stored(it: Subject, folder: str, tmp_path: Path) -> None:
    file = file_of(tmp_path / "file", 2 * it.part_size_bytes)
    with pytest.raises(StorageFailure):
        await it.store.put_file(f"{folder}a", region(file, 0, 3 * it.part_size_bytes), PartSizes(it.part_size_bytes))
    assert await keys_below(it.store, folder) == []


async def test_an_upload_is_not_there_before_it_is_complete(it: Subject, folder: str) -> None:
    upload = await it.store.start_upload(f"{folder}a")
    part = await it.store.upload_part(upload, 1, 0, BODY)
    again = await it.store.upload_part(upload, 1, 0, BODY)
    with pytest.raises(NotFound):
        await it.store.head(f"{folder}a")
    assert (part.number, part.size_bytes, part.crc32c) == (1, 1024, crc32c(BODY))
    await it.store.complete_upload(upload, [again])
    assert await whole(it.store, f"{folder}a") == BODY


async def test_an_upload_replaces_what_is_there(it: Subject, folder: str) -> None:
    await it.store.put(f"{folder}a", b"before")
    upload = await it.store.start_upload(f"{folder}a")
    await it.store.complete_upload(upload, [await it.store.upload_part(upload, 1, 0, BODY)])
    assert await whole(it.store, f"{folder}a") == BODY


async def test_an_aborted_upload_leaves_nothing(store: ObjectStore, folder: str) -> None:
    upload = await store.start_upload(f"{folder}a")
    part = await store.upload_part(upload, 1, 0, BODY)
    await store.abort_upload(upload)
    await store.abort_upload(upload)
    with pytest.raises(NotFound):
        await store.head(f"{folder}a")
    with pytest.raises(ObjectStoreError):
        await store.complete_upload(upload, [part])
