"""Which storage manager there is."""

import pytest

from broker.config.setting import ConfigError
from broker.wal.storage.local_wal_storage_manager import LocalWalStorageManager
from broker.wal.storage.remote_wal_storage_manager import RemoteWalStorageManager, make_storage_manager
from broker.wal.storage.s3_wal_storage_manager import S3WalStorageManager
from tests.unit.wal.storage_world import Buckets, storage_context, storage_settings


def made(class_name: str, bucket: str = "file:///zone-a") -> RemoteWalStorageManager:
    return make_storage_manager(storage_context(storage_settings(bucket, class_name), Buckets()))


class OwnStorageManager(LocalWalStorageManager):
    """One that an operator brings."""


def test_by_short_name_and_by_dotted_path() -> None:
    assert type(made("LocalWalStorageManager")) is LocalWalStorageManager
    assert type(made("S3WalStorageManager", "s3://zone-a")) is S3WalStorageManager
    assert type(made(f"{__name__}.OwnStorageManager")) is OwnStorageManager


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "must be set: LocalWalStorageManager or S3WalStorageManager"),
        ("NoStorageManager", "is no RemoteWalStorageManager"),
        ("no.such.module.Manager", "cannot be loaded: No module named 'no'"),
        ("broker.wal.storage.s3_wal_storage_manager.Nothing", "cannot be loaded"),
        ("broker.wal.objects.object_key.WalObjectKey", "is no RemoteWalStorageManager"),
    ],
)
def test_what_is_none(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        made(name)
