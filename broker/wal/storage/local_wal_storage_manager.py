"""LocalWalStorageManager: the bucket is a directory that all brokers share (as KIP-1176's own tests had it)."""

from typing import ClassVar

from broker.objectstore.local_directory_store import URL_SCHEME
from broker.wal.storage.bucket_wal_storage_manager import BucketWalStorageManager


class LocalWalStorageManager(BucketWalStorageManager):
    """`rwsm.config.bucket` is `file:///directory`, which must be there: a missing mount is no bucket."""

    SCHEME: ClassVar[str] = URL_SCHEME
