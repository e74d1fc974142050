"""DecoratedObjectStore: something around every request of another store, in one place."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from broker.common.buffers import Buffer
from broker.objectstore.object_store import ObjectStore
from broker.objectstore.objects import FolderPage, ListPage, ObjectHead, Upload, UploadedPart

T = TypeVar("T")


class Operation(StrEnum):
    """A kind of request; the names are label values of metrics."""

    PUT = "put"
    PUT_IF_ABSENT = "put_if_absent"
    GET_RANGE = "get_range"
    HEAD = "head"
    LIST = "list"
    DELETE_MANY = "delete_many"
    PROBE = "probe"
    START_UPLOAD = "start_upload"
    UPLOAD_PART = "upload_part"
    COMPLETE_UPLOAD = "complete_upload"
    ABORT_UPLOAD = "abort_upload"


@dataclass(frozen=True, slots=True)
class Request:
    """One request: of what kind, on which key or prefix, with which body."""

    operation: Operation
    key: str = ""
    body: Buffer = b""


class DecoratedObjectStore(ObjectStore):
    """Every request goes through `_around`, which decides when, how often and whether it is made."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    @abstractmethod
    async def _around(self, request: Request, call: Callable[[], Awaitable[T]]) -> T:
        """Make the request by `call`; each call of it is one request to the inner store."""

    @property
    def name(self) -> str:
        return self._inner.name

    async def put(self, key: str, body: Buffer) -> None:
        await self._around(Request(Operation.PUT, key, body), lambda: self._inner.put(key, body))

    async def put_if_absent(self, key: str, body: Buffer) -> None:
        request = Request(Operation.PUT_IF_ABSENT, key, body)
        await self._around(request, lambda: self._inner.put_if_absent(key, body))

    async def get_range(self, key: str, position: int, size_bytes: int) -> bytes:
        request = Request(Operation.GET_RANGE, key)
        return await self._around(request, lambda: self._inner.get_range(key, position, size_bytes))

    async def head(self, key: str, *, checksum: bool = False) -> ObjectHead:
        return await self._around(Request(Operation.HEAD, key), lambda: self._inner.head(key, checksum=checksum))

    async def list_page(self, prefix: str, continuation: str | None = None) -> ListPage:
        return await self._around(Request(Operation.LIST, prefix), lambda: self._inner.list_page(prefix, continuation))

    async def folder_page(self, prefix: str, continuation: str | None = None) -> FolderPage:
        request = Request(Operation.LIST, prefix)
        return await self._around(request, lambda: self._inner.folder_page(prefix, continuation))

    async def delete_many(self, keys: Sequence[str]) -> None:
        if keys:
            await self._around(Request(Operation.DELETE_MANY, keys[0]), lambda: self._inner.delete_many(keys))

    async def probe(self) -> None:
        await self._around(Request(Operation.PROBE), self._inner.probe)

    async def close(self) -> None:
        await self._inner.close()

    async def start_upload(self, key: str) -> Upload:
        return await self._around(Request(Operation.START_UPLOAD, key), lambda: self._inner.start_upload(key))

    async def upload_part(self, upload: Upload, number: int, position: int, body: Buffer) -> UploadedPart:
        request = Request(Operation.UPLOAD_PART, upload.key, body)
        return await self._around(request, lambda: self._inner.upload_part(upload, number, position, body))

    async def complete_upload(self, upload: Upload, parts: Sequence[UploadedPart]) -> None:
        request = Request(Operation.COMPLETE_UPLOAD, upload.key)
        await self._around(request, lambda: self._inner.complete_upload(upload, parts))

    async def abort_upload(self, upload: Upload) -> None:
        await self._around(Request(Operation.ABORT_UPLOAD, upload.key), lambda: self._inner.abort_upload(upload))
