"""S3WalStorageManager: the bucket is one of S3 Express One Zone, of S3, or of a store that speaks their language."""

from typing import ClassVar

from broker.wal.storage.bucket_wal_storage_manager import BucketWalStorageManager


class S3WalStorageManager(BucketWalStorageManager):
    """`rwsm.config.bucket` is `s3://name`; a name that ends in `--x-s3` is a directory bucket of S3 Express."""

    SCHEME: ClassVar[str] = "s3"
