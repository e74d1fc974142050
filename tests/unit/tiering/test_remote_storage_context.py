"""Settings of a remote storage manager, from what was given under the prefix."""

import pytest

from broker.config.setting import ConfigError
from broker.objectstore.s3_settings import S3Settings
from broker.tiering.remote_storage_context import RemoteStorageSettings

from .storage_world import BUCKET, Bucket, context


def test_settings_from_properties() -> None:
    given = {
        "bucket": "s3://b",
        "key.prefix": "p/q",
        "endpoint.url": "http://127.0.0.1:1",
        "region": "r",
        "access.key": "a",
        "secret.key": "hush",
        "path.style": "TRUE",
        "mine": "1",
    }
    made = RemoteStorageSettings.of("S3RemoteStorageManager", given)
    assert (made.class_name, made.bucket, made.key_prefix) == ("S3RemoteStorageManager", "s3://b", "p/q")
    assert made.s3 == S3Settings("http://127.0.0.1:1", "r", "a", "hush", True, request_timeout_seconds=30.0)
    assert made.properties == given
    assert "hush" not in repr(made)


def test_what_is_not_given() -> None:
    made = RemoteStorageSettings.of("x", {})
    assert (made.bucket, made.key_prefix, made.s3.path_style) == ("", "tiered", False)
    with pytest.raises(ConfigError, match=r"rsm\.config\.path\.style=yes"):
        RemoteStorageSettings.of("x", {"path.style": "yes"})


async def test_the_context_opens_the_store_it_was_told_to() -> None:
    bucket = Bucket()
    assert await context(bucket).open(BUCKET) is bucket.failing
    assert (await context(None).open("file:///somewhere")).name == "file:///somewhere"
