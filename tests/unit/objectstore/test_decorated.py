"""DecoratedObjectStore: every request goes through one place, and through it once."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from broker.objectstore.decorated import DecoratedObjectStore, Operation, Request
from broker.objectstore.objects import FolderPage
from tests.support.memory_object_store import MemoryObjectStore

T = TypeVar("T")


class Noting(DecoratedObjectStore):
    def __init__(self, inner: MemoryObjectStore) -> None:
        super().__init__(inner)
        self.seen: list[tuple[str, str, int]] = []

    async def _around(self, request: Request, call: Callable[[], Awaitable[T]]) -> T:
        self.seen.append((request.operation.value, request.key, len(request.body)))
        return await call()


async def test_every_operation_is_passed_on_and_seen_once() -> None:
    inner = MemoryObjectStore()
    store = Noting(inner)
    assert store.name == inner.name
    await store.put("a", b"1")
    await store.put_if_absent("b", b"22")
    assert await store.get_range("b", 1, 1) == b"2"
    assert (await store.head("b", checksum=True)).crc32c == (await inner.head("b", checksum=True)).crc32c
    assert {found.key async for found in store.list("")} == {"a", "b"}
    assert await store.folder_page("c/") == FolderPage([], None)
    await store.delete_many(["a", "b"])
    await store.delete_many([])
    await store.probe()
    upload = await store.start_upload("u")
    part = await store.upload_part(upload, 1, 0, b"333")
    await store.complete_upload(upload, [part])
    await store.abort_upload(upload)
    assert inner.objects == {"u": b"333"}
    assert store.seen == [
        ("put", "a", 1),
        ("put_if_absent", "b", 2),
        ("get_range", "b", 0),
        ("head", "b", 0),
        ("list", "", 0),
        ("list", "c/", 0),
        ("delete_many", "a", 0),
        ("probe", "", 0),
        ("start_upload", "u", 0),
        ("upload_part", "u", 3),
        ("complete_upload", "u", 0),
        ("abort_upload", "u", 0),
    ]
    assert {name for name, _, _ in store.seen} == set(Operation)
    await store.close()
    assert inner.closed
