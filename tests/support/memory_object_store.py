"""MemoryObjectStore: the simplest store that keeps the port's promises."""

import asyncio
from collections.abc import Sequence

from crc32c import crc32c

from broker.common.buffers import Buffer
from broker.objectstore.errors import Corrupt, NotFound, PreconditionFailed, Refused
from broker.objectstore.object_keys import check_key, check_prefix
from broker.objectstore.object_store import ObjectStore
from broker.objectstore.objects import (
    DELETE_MANY_MAX,
    FolderPage,
    ListPage,
    ObjectHead,
    ObjectInfo,
    Upload,
    UploadedPart,
)


class MemoryObjectStore(ObjectStore):
    """Objects in a dict; times are those of the event loop."""

    def __init__(self, name: str = "memory://bucket", page_size: int = 1000) -> None:
        self._name = name
        self._page_size = page_size
        self.objects: dict[str, bytes] = {}
        self.modified_ms: dict[str, int] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.uploads_started = 0
        self.closed = False

    @property
    def name(self) -> str:
        return self._name

    async def put(self, key: str, body: Buffer) -> None:
        self._store(check_key(key), bytes(body))

    async def put_if_absent(self, key: str, body: Buffer) -> None:
        if check_key(key) in self.objects:
            raise PreconditionFailed(f"{key} is there already")
        self._store(key, bytes(body))

    async def get_range(self, key: str, position: int, size_bytes: int) -> bytes:
        assert position >= 0 and size_bytes > 0, (position, size_bytes)
        data = self._find(key)[position : position + size_bytes]
        if len(data) != size_bytes:
            raise Corrupt(f"{key} ends early")
        return data

    async def head(self, key: str, *, checksum: bool = False) -> ObjectHead:
        data = self._find(key)
        return ObjectHead(len(data), self.modified_ms[key], crc32c(data) if checksum else None)

    async def list_page(self, prefix: str, continuation: str | None = None) -> ListPage:
        check_prefix(prefix)
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > (continuation or ""))
        shown = keys[: self._page_size]
        objects = [ObjectInfo(key, len(self.objects[key]), self.modified_ms[key]) for key in reversed(shown)]
        return ListPage(objects, shown[-1] if len(keys) > len(shown) else None)

    async def folder_page(self, prefix: str, continuation: str | None = None) -> FolderPage:
        check_prefix(prefix)
        below = {key.removeprefix(prefix) for key in self.objects if key.startswith(prefix)}
        folders = sorted({f"{prefix}{rest.partition('/')[0]}/" for rest in below if "/" in rest})
        rest = [each for each in folders if each > (continuation or "")]
        shown = rest[: self._page_size]
        return FolderPage(shown, shown[-1] if len(rest) > len(shown) else None)

    async def delete_many(self, keys: Sequence[str]) -> None:
        assert len(keys) <= DELETE_MANY_MAX, len(keys)
        for key in keys:
            self.objects.pop(check_key(key), None)

    async def probe(self) -> None:
        """It is always there."""

    async def close(self) -> None:
        self.closed = True

    async def start_upload(self, key: str) -> Upload:
        self.uploads_started += 1
        upload = Upload(check_key(key), f"upload-{self.uploads_started}")
        self.uploads[upload.upload_id] = {}
        return upload

    async def upload_part(self, upload: Upload, number: int, position: int, body: Buffer) -> UploadedPart:
        self._parts(upload)[number] = bytes(body)
        return UploadedPart(number, len(body), crc32c(body), f"tag-{number}")

    async def complete_upload(self, upload: Upload, parts: Sequence[UploadedPart]) -> None:
        have = self._parts(upload)
        if [part.number for part in parts] != sorted(have):
            raise Refused(f"the parts of {upload.key} are {sorted(have)}")
        self._store(upload.key, b"".join(have[part.number] for part in parts))
        del self.uploads[upload.upload_id]

    async def abort_upload(self, upload: Upload) -> None:
        self.uploads.pop(upload.upload_id, None)

    def _store(self, key: str, data: bytes) -> None:
        self.objects[key] = data
        self.modified_ms[key] = round(asyncio.get_running_loop().time() * 1000)

    def _find(self, key: str) -> bytes:
        if check_key(key) not in self.objects:
            raise NotFound(f"there is no {key}")
        return self.objects[key]

    def _parts(self, upload: Upload) -> dict[int, bytes]:
        if upload.upload_id not in self.uploads:
            raise NotFound(f"there is no upload {upload.upload_id}")
        return self.uploads[upload.upload_id]
