"""Settings of a remote storage manager, from those of the broker."""

from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.objectstore.s3_settings import S3Settings
from broker.tiering.object_names import DEFAULT_PREFIX
from broker.tiering.remote_storage_context import RemoteStorageSettings
from tests.support.tiered_topics import TIERING

from .storage_world import BUCKET, Bucket, context


def made(**given: str) -> RemoteStorageSettings:
    own = {f"rsm.config.{name.replace('_', '.')}": text for name, text in given.items()}
    return RemoteStorageSettings.of(BrokerConfig({**DEFAULT_SINGLE_NODE, **TIERING, **own}))


def test_every_setting_gets_where_it_belongs() -> None:
    given = {
        "bucket": "file:///other",
        "key_prefix": "p/q/",
        "endpoint_url": "http://127.0.0.1:1",
        "region": "r",
        "access_key": "a",
        "secret_key": "hush",
        "path_style": "TRUE",
        "mine": "1",
    }
    settings = made(**given)
    assert settings.class_name == "LocalTieredStorage"
    assert (settings.bucket, settings.key_prefix) == ("file:///other", "p/q")
    assert settings.s3 == S3Settings("http://127.0.0.1:1", "r", "a", "hush", True, request_timeout_seconds=30.0)
    assert settings.properties == {
        **{name.replace("_", "."): text for name, text in given.items()},
        "broker.id": "1",
    }
    assert "hush" not in repr(settings)


def test_what_is_not_given() -> None:
    settings = made()
    assert (settings.bucket, settings.key_prefix) == ("file:///var/tiered", DEFAULT_PREFIX)
    assert settings.s3 == S3Settings(request_timeout_seconds=30.0)
    none = RemoteStorageSettings.of(BrokerConfig(DEFAULT_SINGLE_NODE))
    assert (none.class_name, none.bucket) == ("", "")


async def test_the_context_opens_the_store_it_was_told_to() -> None:
    bucket = Bucket()
    assert await context(bucket).open(BUCKET) is bucket.failing
    assert (await context(None).open("file:///somewhere")).name == "file:///somewhere"
