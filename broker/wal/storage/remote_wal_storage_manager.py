"""RemoteWalStorageManager: where combined objects are kept (KIP-1176's interface of that name), and who chooses one."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from broker.config.named_class import named_class
from broker.objectstore.objects import ObjectInfo
from broker.wal.objects.combined_segment import CombinedSegment
from broker.wal.storage.wal_storage_context import WalStorageContext

_SHORT_NAMES: Final = {
    "LocalWalStorageManager": "broker.wal.storage.local_wal_storage_manager.LocalWalStorageManager",
    "S3WalStorageManager": "broker.wal.storage.s3_wal_storage_manager.S3WalStorageManager",
}
CLASS_NAME: Final = "remote.wal.storage.manager.class.name"


class RemoteWalStorageManager(ABC):
    """One bucket to write to, in the broker's own zone, and those of other zones to read from.

    A class of one's own is made with a `WalStorageContext` alone.  Buckets are named by their URLs, which travel in
    the metadata.  Methods raise `ObjectStoreError`s: `NotFound` and `Corrupt` are final, others say so (`retriable`).
    """

    own_bucket: str
    throttled_count: int = 0  # how often the own bucket asked uploads to come later

    @abstractmethod
    async def copy_wal_combined_segment(self, combined: CombinedSegment) -> None:
        """Put the object under its key unless one is there; the same bytes under it are one's own success.

        It may be called again with the same object after any error.  `PreconditionFailed`: the key holds another one.
        """

    @abstractmethod
    async def fetch_wal_segment(self, bucket: str, object_key: str, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`, exclusive: all of them, unverified."""

    @abstractmethod
    async def delete_wal_combined_segments(self, bucket: str, object_keys: Sequence[str]) -> None:
        """Delete any number of objects; those that are not there are fine.  After an error some may be gone."""

    @abstractmethod
    def list_wal_objects(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """The objects of the own bucket below a prefix, which ends with "/", in no order."""

    @abstractmethod
    def is_reachable(self, bucket: str) -> bool:
        """Whether it is worth asking: False while the bucket is left alone because it failed lately."""

    async def probe(self, bucket: str) -> None:  # noqa: B027 - optional
        """Ask a bucket that nobody has asked lately, so that `is_reachable` knows.  A class of one's own need not."""

    @abstractmethod
    def running(self) -> AbstractAsyncContextManager[object]:
        """Opens the own bucket, without asking it anything; closes all at the end.  ConfigError."""


def make_storage_manager(context: WalStorageContext) -> RemoteWalStorageManager:
    """The storage manager that `remote.wal.storage.manager.class.name` names: by a short name or a dotted path.

    ConfigError when there is none of that name, or it cannot work with the settings it has.
    """
    found = named_class(CLASS_NAME, context.settings.class_name, _SHORT_NAMES, RemoteWalStorageManager)  # type: ignore[type-abstract]
    return found(context)  # type: ignore[call-arg]  # what the ABC asks of its classes
