"""Which class a setting names."""

import pytest

from broker.config.setting import ConfigError
from broker.tiering.local_tiered_storage import LocalTieredStorage
from broker.tiering.remote_storage_manager import make_remote_storage_manager
from broker.tiering.s3_remote_storage_manager import S3RemoteStorageManager

from .storage_world import context, settings


class OfOnesOwn(LocalTieredStorage):
    pass


@pytest.mark.parametrize(
    ("name", "bucket", "expected"),
    [
        ("LocalTieredStorage", "file:///bucket", LocalTieredStorage),
        ("S3RemoteStorageManager", "s3://bucket", S3RemoteStorageManager),
        (f"{__name__}.OfOnesOwn", "file:///bucket", OfOnesOwn),
    ],
)
def test_a_class_is_named_by_a_short_name_or_a_path(name: str, bucket: str, expected: type) -> None:
    made = make_remote_storage_manager(context(None, storage_settings=settings(class_name=name, bucket=bucket)))
    assert type(made) is expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "must be set: LocalTieredStorage or S3RemoteStorageManager"),
        ("Nothing", "is no RemoteStorageManager: it must be LocalTieredStorage or S3RemoteStorageManager, or the"),
        ("no.such.Module", "cannot be loaded"),
        ("pathlib.Path", "is no RemoteStorageManager"),
        ("pathlib.Nothing", "cannot be loaded"),
    ],
)
def test_names_that_name_none(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_remote_storage_manager(context(None, storage_settings=settings(class_name=name)))
