"""From settings to what a storage manager is made with."""

import pytest

from broker.common.chance import Chance
from broker.common.disk import InlineDiskExecutor
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.metrics.registry import MetricsRegistry
from broker.objectstore.errors import Unavailable
from broker.objectstore.fault_switch import FaultSwitch
from broker.objectstore.object_store import ObjectStore
from broker.objectstore.retrying import RetryPolicy
from broker.objectstore.s3_settings import S3Settings
from broker.wal.storage.wal_storage_context import WalStorageContext, WalStorageSettings
from tests.support.builders import broker_config
from tests.support.memory_object_store import MemoryObjectStore

GIVEN = {
    "remote.wal.storage.manager.class.name": "S3WalStorageManager",
    "rwsm.config.bucket": "s3://zone-a",
    "rwsm.config.endpoint.url": "http://127.0.0.1:9000",
    "rwsm.config.region": "eu-west-1",
    "rwsm.config.access.key": "ak",
    "rwsm.config.secret.key": "sk",
    "rwsm.config.path.style": "true",
    "rwsm.config.key.prefix": "team/",
    "rwsm.config.colour": "red",
    "remote.wal.upload.timeout.ms": "1500",
    "remote.wal.fetch.timeout.ms": "2500",
    "remote.wal.upload.retry.backoff.ms": "30",
    "remote.wal.upload.retry.max.ms": "600",
}


def test_every_setting_gets_where_it_belongs() -> None:
    settings = WalStorageSettings.of(broker_config(GIVEN))
    assert settings == WalStorageSettings(
        class_name="S3WalStorageManager",
        bucket="s3://zone-a",
        s3=S3Settings("http://127.0.0.1:9000", "eu-west-1", "ak", "sk", path_style=True, request_timeout_seconds=2.5),
        key_prefix="team/",
        upload_timeout_ms=1500,
        fetch_timeout_ms=2500,
        upload_retries=RetryPolicy(attempts_max=5, backoff_ms=30, backoff_max_ms=600),
        properties={
            name.removeprefix("rwsm.config."): text for name, text in GIVEN.items() if name.startswith("rwsm.config.")
        },
    )
    assert settings.properties["colour"] == "red"
    assert "'sk'" not in repr(settings)
    assert settings.fetch_retries == RetryPolicy(attempts_max=3, backoff_ms=30, backoff_max_ms=600)


def test_without_any() -> None:
    settings = WalStorageSettings.of(broker_config())
    assert (settings.class_name, settings.bucket, settings.key_prefix) == ("", "", "")
    assert settings.upload_retries == RetryPolicy()


async def test_a_drill_reaches_every_bucket_that_is_opened() -> None:
    async def open_store(url: str) -> ObjectStore:
        return MemoryObjectStore(url)

    faults = FaultSwitch(Chance(1))
    metrics = ObjectStoreMetrics(MetricsRegistry())
    settings = WalStorageSettings.of(broker_config(GIVEN))
    context = WalStorageContext(settings, InlineDiskExecutor(), Chance(1), metrics, open_store, faults)
    store = await context.open("memory://a")
    await store.put("k", b"v")
    faults.set({"bucket": "memory://a", "down": "reset"})
    with pytest.raises(Unavailable):
        await store.head("k")
