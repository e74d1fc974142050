"""LocalTieredStorage takes directories only."""

import pytest

from broker.config.setting import ConfigError
from broker.tiering.local_tiered_storage import LocalTieredStorage

from .storage_world import context, settings


def test_its_bucket_is_a_directory() -> None:
    assert LocalTieredStorage(context(None)).bucket == "file:///bucket"
    with pytest.raises(ConfigError, match="s3://b is no file bucket, as LocalTieredStorage needs"):
        LocalTieredStorage(context(None, storage_settings=settings(bucket="s3://b")))
