"""A bucket of S3; what stores answer is tested with tests/contract."""

import pytest

from broker.config.setting import ConfigError
from broker.objectstore.s3_settings import S3Settings
from broker.wal.storage.s3_wal_storage_manager import S3WalStorageManager
from broker.wal.storage.wal_storage_context import WalStorageSettings
from tests.unit.wal.storage_world import storage_context, storage_settings


async def test_it_opens_its_bucket_and_asks_it_nothing() -> None:
    settings = WalStorageSettings("", "s3://zone-a/", s3=S3Settings(endpoint_url="http://127.0.0.1:1"))
    manager = S3WalStorageManager(storage_context(settings, None))
    assert manager.own_bucket == "s3://zone-a"
    async with manager.running():
        assert manager.is_reachable("s3://zone-a")


def test_a_directory_is_not_s3() -> None:
    with pytest.raises(ConfigError, match="file:///b is no s3 bucket, as S3WalStorageManager needs"):
        S3WalStorageManager(storage_context(storage_settings("file:///b"), None))
