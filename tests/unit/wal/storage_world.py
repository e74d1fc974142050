"""Storage managers over stores in memory, by URL."""

import asyncio

from broker.common.chance import Chance
from broker.common.disk import InlineDiskExecutor
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.metrics.registry import MetricsRegistry
from broker.objectstore.failing_object_store import FailingObjectStore
from broker.objectstore.object_store import ObjectStore
from broker.objectstore.object_store_url import parse_bucket_url
from broker.objectstore.retrying import RetryPolicy
from broker.wal.storage.local_wal_storage_manager import LocalWalStorageManager
from broker.wal.storage.wal_storage_context import WalStorageContext, WalStorageSettings
from tests.support.memory_object_store import MemoryObjectStore

OWN = "file:///zone-a"


class Buckets:
    """Every bucket there is; each can be made to fail by its `failing`."""

    def __init__(self) -> None:
        self.opening_seconds = 0.0
        self.opened: list[str] = []
        self._stores: dict[str, list[MemoryObjectStore]] = {}
        self._failing: dict[str, FailingObjectStore] = {}

    async def open(self, url: str) -> ObjectStore:
        name = str(parse_bucket_url(url))
        await asyncio.sleep(self.opening_seconds)
        self.opened.append(name)
        failing = self.store(name)
        opened = FailingObjectStore(self._new_store(name), Chance(1), failing.plan)
        opened._next, opened.occurred = failing._next, failing.occurred  # what is told to one is told to all
        return opened

    def store(self, url: str = OWN) -> FailingObjectStore:
        """To look at a bucket, and to make it fail."""
        if url not in self._failing:
            self._failing[url] = FailingObjectStore(self._new_store(url), Chance(1))
            self._stores[url].clear()
        return self._failing[url]

    def stores_of(self, url: str) -> list[MemoryObjectStore]:
        """As often as it was opened."""
        return self._stores[url]

    def objects(self, url: str = OWN) -> dict[str, bytes]:
        inner = self.store(url)._inner
        assert isinstance(inner, MemoryObjectStore)
        return inner.objects

    def _new_store(self, name: str) -> MemoryObjectStore:
        store = MemoryObjectStore(name)
        if name in self._failing:
            store.objects = self.objects(name)
            inner = self._failing[name]._inner
            assert isinstance(inner, MemoryObjectStore)
            store.modified_ms = inner.modified_ms
        self._stores.setdefault(name, []).append(store)
        return store


def storage_settings(
    bucket: str = OWN, class_name: str = "LocalWalStorageManager", *, key_prefix: str = "", attempts_max: int = 5
) -> WalStorageSettings:
    return WalStorageSettings(
        class_name, bucket, key_prefix=key_prefix, upload_retries=RetryPolicy(attempts_max=attempts_max)
    )


def storage_context(settings: WalStorageSettings, buckets: Buckets | None) -> WalStorageContext:
    return WalStorageContext(
        settings,
        InlineDiskExecutor(),
        Chance(1),
        ObjectStoreMetrics(MetricsRegistry()),
        None if buckets is None else buckets.open,
    )


def storage_manager(
    buckets: Buckets, bucket: str = OWN, *, key_prefix: str = "", attempts_max: int = 5
) -> LocalWalStorageManager:
    settings = storage_settings(bucket, key_prefix=key_prefix, attempts_max=attempts_max)
    return LocalWalStorageManager(storage_context(settings, buckets))
