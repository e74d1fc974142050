"""The ObjectStore port: one bucket, whatever keeps it."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence

from broker.common.buffers import Buffer
from broker.objectstore.file_region import FileRegion
from broker.objectstore.file_upload import upload_file
from broker.objectstore.objects import FolderPage, ListPage, ObjectHead, ObjectInfo, PartSizes, Upload, UploadedPart


class ObjectStore(ABC):
    """One bucket.  Every method may raise `Throttled` and `Unavailable` beside what it says.

    An object is there whole or not at all, and never changes in part.  Keys are those `object_keys.check_key` takes.
    Each method but `put_file`, `list` and `list_folders` is one request of the store, which its owner pays for.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The bucket's URL, for messages and metrics."""

    @abstractmethod
    async def put(self, key: str, body: Buffer) -> None:
        """Store an object, in place of one that is there."""

    @abstractmethod
    async def put_if_absent(self, key: str, body: Buffer) -> None:
        """Store an object, or raise `PreconditionFailed`: of many who try at once, one wins.

        After a failure with unknown outcome `PreconditionFailed` may be one's own success: see `RetryingObjectStore`.
        """

    @abstractmethod
    async def get_range(self, key: str, position: int, size_bytes: int) -> bytes:
        """Exactly these bytes, at least one; `NotFound`, or `Corrupt` when the object ends before.

        The bytes may be wrong all the same: the caller checks them.
        """

    @abstractmethod
    async def head(self, key: str, *, checksum: bool = False) -> ObjectHead:
        """Size, time and on demand CRC-32C of an object, or `NotFound`."""

    @abstractmethod
    async def list_page(self, prefix: str, continuation: str | None = None) -> ListPage:
        """Objects whose keys begin with `prefix`, which is empty or ends with "/" (S3 Express has no other)."""

    @abstractmethod
    async def folder_page(self, prefix: str, continuation: str | None = None) -> FolderPage:
        """What keys that begin with `prefix` go on with, up to the next "/", each once; a prefix as for `list_page`.

        A folder whose last object was deleted of late may still be there.
        """

    @abstractmethod
    async def delete_many(self, keys: Sequence[str]) -> None:
        """Delete up to `DELETE_MANY_MAX` objects; those that are not there are fine.  After a failure some may be gone:
        do it again."""

    @abstractmethod
    async def probe(self) -> None:
        """Whether the bucket answers us: returns, or raises what is wrong."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of connections; nothing may be asked any more."""

    @abstractmethod
    async def start_upload(self, key: str) -> Upload:
        """Begin an object in parts."""

    @abstractmethod
    async def upload_part(self, upload: Upload, number: int, position: int, body: Buffer) -> UploadedPart:
        """Store the part `number` (from 1), which begins at `position` in the object; again is the same."""

    @abstractmethod
    async def complete_upload(self, upload: Upload, parts: Sequence[UploadedPart]) -> None:
        """Make the object of all its parts, in place of one that is there."""

    @abstractmethod
    async def abort_upload(self, upload: Upload) -> None:
        """Forget the parts; an upload that is not there is fine."""

    async def put_file(
        self, key: str, region: FileRegion, sizes: PartSizes | None = None, turns: asyncio.Semaphore | None = None
    ) -> None:
        """Store a region of a file, in parts when it is large; `StorageFailure` when the file cannot be read.

        As many parts are in memory at once as `turns` has, whatever files they are of.
        """
        await upload_file(self, key, region, sizes or PartSizes(), turns)

    async def list_folders(self, prefix: str) -> AsyncIterator[str]:
        """All folders directly below a prefix, a page at a time and in no order."""
        continuation: str | None = None
        while True:
            page = await self.folder_page(prefix, continuation)
            for found in page.folders:
                yield found
            continuation = page.continuation
            if continuation is None:
                return

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """All objects below a prefix, a page at a time and in no order."""
        continuation: str | None = None
        while True:
            page = await self.list_page(prefix, continuation)
            for found in page.objects:
                yield found
            continuation = page.continuation
            if continuation is None:
                return
