"""LocalDirectoryStore: a bucket that is a directory, shared by the brokers of one machine or one mount."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from crc32c import crc32c

from broker.common.buffers import Buffer
from broker.common.chance import Chance
from broker.common.disk import DiskExecutor
from broker.common.identifiers import uuid_to_text
from broker.objectstore.directory_files import DirectoryFiles
from broker.objectstore.errors import AccessDenied, ObjectStoreError, Unavailable
from broker.objectstore.object_keys import check_key, check_prefix
from broker.objectstore.object_store import ObjectStore
from broker.objectstore.objects import (
    DELETE_MANY_MAX,
    LIST_PAGE_MAX,
    FolderPage,
    ListPage,
    ObjectHead,
    Upload,
    UploadedPart,
)

P = ParamSpec("P")
T = TypeVar("T")

URL_SCHEME: Final = "file"


class LocalDirectoryStore(ObjectStore):
    """Objects are files; a write appears under its name at once and whole.

    Nothing is synced: the bucket is a hop between replicas, each of which has its own log.  A key that is also the
    folder of another one is refused, which S3 would take.
    """

    def __init__(self, directory: Path, disk: DiskExecutor, chance: Chance, *, page_size: int = LIST_PAGE_MAX) -> None:
        self._files = DirectoryFiles(directory)
        self._name = f"{URL_SCHEME}://{directory}"
        self._disk = disk
        self._chance = chance
        self._page_size = page_size

    @property
    def name(self) -> str:
        return self._name

    async def put(self, key: str, body: Buffer) -> None:
        await self._run(self._files.put, check_key(key), body, self._new_id())

    async def put_if_absent(self, key: str, body: Buffer) -> None:
        await self._run(self._files.put_if_absent, check_key(key), body, self._new_id())

    async def get_range(self, key: str, position: int, size_bytes: int) -> bytes:
        assert position >= 0 and size_bytes > 0, (position, size_bytes)
        return await self._run(self._files.get_range, check_key(key), position, size_bytes)

    async def head(self, key: str, *, checksum: bool = False) -> ObjectHead:
        return await self._run(self._files.head, check_key(key), checksum)

    async def list_page(self, prefix: str, continuation: str | None = None) -> ListPage:
        return await self._run(self._files.list_page, check_prefix(prefix), continuation, self._page_size)

    async def folder_page(self, prefix: str, continuation: str | None = None) -> FolderPage:
        return await self._run(self._files.folder_page, check_prefix(prefix), continuation, self._page_size)

    async def delete_many(self, keys: Sequence[str]) -> None:
        assert len(keys) <= DELETE_MANY_MAX, len(keys)
        await self._run(self._files.delete_many, [check_key(key) for key in keys])

    async def probe(self) -> None:
        await self._run(self._files.probe)

    async def close(self) -> None:
        """Nothing is kept open."""

    async def start_upload(self, key: str) -> Upload:
        upload = Upload(check_key(key), self._new_id())
        await self._run(self._files.start_upload, upload.upload_id)
        return upload

    async def upload_part(self, upload: Upload, number: int, position: int, body: Buffer) -> UploadedPart:
        await self._run(self._files.upload_part, upload.upload_id, position, body)
        return UploadedPart(number, len(body), crc32c(body), str(number))

    async def complete_upload(self, upload: Upload, parts: Sequence[UploadedPart]) -> None:
        size_bytes = sum(part.size_bytes for part in parts)
        await self._run(self._files.complete_upload, upload.upload_id, check_key(upload.key), size_bytes)

    async def abort_upload(self, upload: Upload) -> None:
        await self._run(self._files.abort_upload, upload.upload_id)

    def _new_id(self) -> str:
        return uuid_to_text(self._chance.uuid())

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await self._disk.run(function, *args, **kwargs)
        except ObjectStoreError:
            raise
        except PermissionError as error:
            raise AccessDenied(f"{self._name}: {error}") from error
        except OSError as error:
            raise Unavailable(f"{self._name}: {error}") from error
