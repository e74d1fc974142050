"""What a bucket has of partitions is listed and deleted alike in a directory and in buckets of S3."""

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from broker.common.chance import Chance
from broker.common.disk import ThreadDiskExecutor
from broker.common.file_system import OsFileSystem
from broker.common.identifiers import TopicIdPartition
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.metrics.registry import MetricsRegistry
from broker.tiering.remote_storage_context import RemoteStorageContext, RemoteStorageSettings
from broker.tiering.remote_storage_manager import RemoteStorageManager, StoresDirectories, make_remote_storage_manager
from tests.contract.object_stores import S3
from tests.support.s3_server import BUCKET
from tests.unit.tiering.storage_world import Made, batch, make_segment

KINDS = ["directory", *(pytest.param(kind, marks=S3) for kind in ("seaweed", "moto"))]


@pytest.fixture(params=KINDS)
async def manager(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RemoteStorageManager]:
    (tmp_path / "bucket").mkdir()
    prefix = f"test-{uuid4().hex}/tiered"
    if request.param == "directory":
        settings = RemoteStorageSettings("LocalTieredStorage", f"file://{tmp_path / 'bucket'}", prefix)
    else:
        s3 = request.getfixturevalue(request.param).settings()
        settings = RemoteStorageSettings("S3RemoteStorageManager", f"s3://{BUCKET}", prefix, s3)
    disk = ThreadDiskExecutor(1)
    metrics = ObjectStoreMetrics(MetricsRegistry())
    made = make_remote_storage_manager(
        RemoteStorageContext(settings, "cluster", OsFileSystem(), disk, Chance(1), metrics)
    )
    async with made.running():
        yield made
    disk.close()


def a_segment(directory: Path, number: int, partition: TopicIdPartition) -> Made:
    made = make_segment(OsFileSystem(), number, [batch(0)], directory=directory / f"log-{number}")
    return made._replace(segment=dataclasses.replace(made.segment, partition=partition))


async def test_directories_of_partitions(manager: RemoteStorageManager, tmp_path: Path) -> None:
    assert isinstance(manager, StoresDirectories)
    assert await manager.partition_directories() == []
    partitions = [TopicIdPartition(UUID(int=number << 100), f"topic-{number}", number) for number in (1, 2)]
    made = [a_segment(tmp_path, number, partitions[number % 2]) for number in range(1, 5)]
    for each in made:
        await manager.copy_log_segment_data(each.segment, each.data)
    found = {each.topic_id: each for each in await manager.partition_directories()}
    assert {topic_id: each.partition for topic_id, each in found.items()} == {
        partition.topic_id: partition.partition for partition in partitions
    }
    began_ms = tmp_path.stat().st_mtime * 1000
    for each in found.values():
        assert abs((await manager.newest_ms(each) or 0) - began_ms) < 600_000  # a time of day, in this unit
    assert await manager.delete_partition_directory(found[partitions[0].topic_id]) == 10
    left = await manager.partition_directories()
    assert [each.topic_id for each in left if await manager.newest_ms(each) is not None] == [partitions[1].topic_id]
    for each in made:
        if each.segment.partition == partitions[1]:
            assert [piece async for piece in manager.fetch_log_segment(each.segment, 0)] == [each.log]
    assert await manager.delete_partition_directory(found[partitions[0].topic_id]) == 0
