"""A shared directory as the bucket."""

from pathlib import Path

import pytest

from broker.config.setting import ConfigError
from broker.objectstore.errors import BucketNotFound
from broker.wal.storage.local_wal_storage_manager import LocalWalStorageManager
from tests.unit.wal.storage_world import storage_context, storage_settings
from tests.unit.wal.wal_world import batch, bytes_of, make_object, make_slice


async def test_objects_are_files_that_end_in_wal(tmp_path: Path) -> None:
    key = "wal/c/1/7/2026113002/0000000000000001-x.wal"
    manager = LocalWalStorageManager(storage_context(storage_settings(f"file://{tmp_path}/"), None))
    assert manager.own_bucket == f"file://{tmp_path}"
    combined = make_object([make_slice(batch(0))], key=key)
    async with manager.running():
        await manager.copy_wal_combined_segment(combined)
        assert (tmp_path / key).read_bytes() == bytes_of(combined)
        assert await manager.fetch_wal_segment(manager.own_bucket, key, 0, 4) == bytes_of(combined)[:4]


async def test_a_directory_that_is_missing_is_no_bucket(tmp_path: Path) -> None:
    manager = LocalWalStorageManager(storage_context(storage_settings(f"file://{tmp_path}/not-mounted"), None))
    async with manager.running():
        with pytest.raises(BucketNotFound):
            await manager.copy_wal_combined_segment(make_object([make_slice(batch(0))]))


def test_s3_is_no_directory() -> None:
    with pytest.raises(ConfigError, match="s3://b is no file bucket, as LocalWalStorageManager needs"):
        LocalWalStorageManager(storage_context(storage_settings("s3://b"), None))
