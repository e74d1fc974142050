"""S3RemoteStorageManager takes buckets of S3 only."""

import pytest

from broker.config.setting import ConfigError
from broker.tiering.s3_remote_storage_manager import S3RemoteStorageManager

from .storage_world import context, settings


def test_its_bucket_is_one_of_s3() -> None:
    assert S3RemoteStorageManager(context(None, storage_settings=settings(bucket="s3://b"))).bucket == "s3://b"
    with pytest.raises(ConfigError, match="file:///bucket is no s3 bucket, as S3RemoteStorageManager needs"):
        S3RemoteStorageManager(context(None))
