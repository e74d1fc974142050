"""S3RemoteStorageManager: the bucket is one of S3, or of a store that speaks its language."""

from typing import ClassVar

from broker.tiering.object_remote_storage_manager import ObjectRemoteStorageManager


class S3RemoteStorageManager(ObjectRemoteStorageManager):
    """`rsm.config.bucket` is `s3://name`."""

    SCHEME: ClassVar[str] = "s3"
