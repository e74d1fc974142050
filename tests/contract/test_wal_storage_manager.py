"""RemoteWalStorageManager: the same promises from a directory and from buckets of S3 and S3 Express."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from broker.common.chance import Chance
from broker.common.disk import ThreadDiskExecutor
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.metrics.registry import MetricsRegistry
from broker.objectstore.errors import Corrupt, NotFound, PreconditionFailed
from broker.wal.objects.combined_segment import CombinedSegment
from broker.wal.storage.remote_wal_storage_manager import RemoteWalStorageManager, make_storage_manager
from broker.wal.storage.wal_storage_context import WalStorageContext, WalStorageSettings
from tests.contract.object_stores import WITH_BUCKETS
from tests.support.express_shim import ExpressShim
from tests.support.patience import PATIENCE_MS
from tests.support.s3_server import ACCESS_KEY, BUCKET, EXPRESS_BUCKET, SECRET_KEY
from tests.unit.wal.wal_world import batch, bytes_of, make_object, make_slice

AMPLE = {"upload_timeout_ms": PATIENCE_MS, "fetch_timeout_ms": PATIENCE_MS}


@contextlib.asynccontextmanager
async def settings_of(
    kind: str, request: pytest.FixtureRequest, directory: Path, key_prefix: str
) -> AsyncIterator[WalStorageSettings]:
    if kind == "directory":
        yield WalStorageSettings("LocalWalStorageManager", f"file://{directory}", key_prefix=key_prefix, **AMPLE)
        return
    server = request.getfixturevalue("moto" if kind == "moto" else "seaweed")
    async with contextlib.AsyncExitStack() as stack:
        url, bucket = server.url, BUCKET
        if kind == "express":
            shim = await stack.enter_async_context(ExpressShim(server.url, ACCESS_KEY, SECRET_KEY))
            url, bucket = shim.url, EXPRESS_BUCKET
        yield WalStorageSettings(
            "S3WalStorageManager", f"s3://{bucket}", s3=server.settings(url), key_prefix=key_prefix, **AMPLE
        )


@pytest.fixture(params=WITH_BUCKETS)
async def manager(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RemoteWalStorageManager]:
    """One with a folder of its own in the bucket."""
    disk = ThreadDiskExecutor(1)
    async with settings_of(request.param, request, tmp_path, f"test-{uuid4().hex}/") as settings:
        made = make_storage_manager(WalStorageContext(settings, disk, Chance(1), ObjectStoreMetrics(MetricsRegistry())))
        async with made.running():
            yield made
    disk.close()


def an_object(number: int, value: bytes = b"v", broker_id: int = 1) -> CombinedSegment:
    key = f"wal/c/{broker_id}/7/2026113002/{number:016x}-AAAAAAAAQAC8AAAAAAAAAQ.wal"
    return make_object([make_slice(batch(0, value=value))], key=key)


async def listed(manager: RemoteWalStorageManager, prefix: str) -> dict[str, int]:
    return {each.key: each.size_bytes async for each in manager.list_wal_objects(prefix)}


async def test_59_an_object_is_stored_fetched_listed_and_deleted(manager: RemoteWalStorageManager) -> None:
    objects = [an_object(number) for number in range(3)]
    for each in [*objects, an_object(9, broker_id=2)]:
        await manager.copy_wal_combined_segment(each)
    key, whole = objects[1].metadata.object_key, bytes_of(objects[1])
    assert await manager.fetch_wal_segment(manager.own_bucket, key, 0, len(whole)) == whole
    assert await manager.fetch_wal_segment(manager.own_bucket, key, 5, 17) == whole[5:17]
    found = await listed(manager, "wal/c/1/")
    assert found == {each.metadata.object_key: each.size for each in objects}
    await manager.delete_wal_combined_segments(manager.own_bucket, [key, "wal/c/1/7/2026113002/gone.wal"])
    assert await listed(manager, "wal/c/1/") == {
        each.metadata.object_key: each.size for each in (objects[0], objects[2])
    }
    assert len(await listed(manager, "wal/c/2/")) == 1
    assert manager.is_reachable(manager.own_bucket)


async def test_59_an_object_is_stored_once(manager: RemoteWalStorageManager) -> None:
    stored = an_object(1)
    await manager.copy_wal_combined_segment(stored)
    await manager.copy_wal_combined_segment(stored)  # its first answer was lost
    with pytest.raises(PreconditionFailed):
        await manager.copy_wal_combined_segment(an_object(1, b"another"))
    key = stored.metadata.object_key
    assert await manager.fetch_wal_segment(manager.own_bucket, key, 0, stored.size) == bytes_of(stored)


async def test_59_what_is_not_there_and_what_ends_early(manager: RemoteWalStorageManager) -> None:
    stored = an_object(1)
    await manager.copy_wal_combined_segment(stored)
    with pytest.raises(NotFound):
        await manager.fetch_wal_segment(manager.own_bucket, "wal/c/1/7/2026113002/none.wal", 0, 10)
    with pytest.raises(Corrupt):
        await manager.fetch_wal_segment(manager.own_bucket, stored.metadata.object_key, 10, stored.size + 1)
    assert manager.is_reachable(manager.own_bucket)
