"""LocalTieredStorage: the bucket is a directory that all brokers share (Kafka's own class for tests of that name)."""

from typing import ClassVar

from broker.objectstore.local_directory_store import URL_SCHEME
from broker.tiering.object_remote_storage_manager import ObjectRemoteStorageManager


class LocalTieredStorage(ObjectRemoteStorageManager):
    """`rsm.config.bucket` is `file:///directory`, which must be there: a missing mount is no bucket.

    For trials: files are not synced, and after a power cut a segment that has left the local disks may be lost.
    """

    SCHEME: ClassVar[str] = URL_SCHEME
