"""What the port does by its own requests: listings page by page, files in parts."""

from pathlib import Path

from broker.common.disk import InlineDiskExecutor
from broker.common.file_system import OsFileSystem
from broker.objectstore.file_region import FileRegion
from broker.objectstore.objects import ListPage, PartSizes
from tests.support.memory_object_store import MemoryObjectStore


class Paging(MemoryObjectStore):
    def __init__(self) -> None:
        super().__init__(page_size=2)
        self.asked: list[str | None] = []

    async def list_page(self, prefix: str, continuation: str | None = None) -> ListPage:
        self.asked.append(continuation)
        return await super().list_page(prefix, continuation)


async def test_a_listing_asks_for_a_page_when_the_one_before_is_read() -> None:
    store = Paging()
    for key in "abcde":
        await store.put(key, b"")
    found = []
    async for each in store.list(""):
        found.append(each.key)
        assert len(store.asked) == (len(found) + 1) // 2
    assert sorted(found) == list("abcde")
    assert store.asked == [None, "b", "d"]


async def test_folders_are_asked_for_page_by_page() -> None:
    store = Paging()
    for key in ("p/a/1", "p/b/1", "p/c/1", "p/c/2", "p/d", "q/e/1"):
        await store.put(key, b"")
    assert sorted([each async for each in store.list_folders("p/")]) == ["p/a/", "p/b/", "p/c/"]
    assert [each async for each in store.list_folders("r/")] == []


async def test_a_file_is_put_whole_unless_it_is_larger_than_a_part(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    store = MemoryObjectStore()
    region = FileRegion(OsFileSystem().open(tmp_path / "f"), 0, 10, InlineDiskExecutor())
    await store.put_file("whole", region)
    await store.put_file("exactly", region, PartSizes(part_size_bytes=10))
    assert store.uploads_started == 0
    await store.put_file("parts", region, PartSizes(part_size_bytes=4))
    assert store.uploads_started == 1
    assert set(store.objects.values()) == {b"0123456789"}
