from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from broker.common.chance import Chance
from broker.common.clock import SystemClock
from broker.common.disk import InlineDiskExecutor
from broker.common.file_system import OsFileSystem
from broker.common.identifiers import TopicIdPartition
from broker.config.config_holder import ConfigHolder
from broker.config.setting import ConfigError
from broker.metadata.config_repository import ConfigRepository
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_delta import MetadataDelta
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.metrics.registry import MetricsRegistry
from broker.network.byte_stream import AsyncioNetwork
from broker.schemas.cluster_metadata import ConfigRecord, PartitionRecord, TopicRecord
from broker.server.broker_identity import BrokerIdentity
from broker.server.leader_connector import LeaderConnector
from broker.server.outside import Outside
from broker.server.wal.wal_reading import WalReading
from broker.wal.follow.wal_partitions import Placement
from tests.support.builders import broker_config, topic_uuid
from tests.support.patience import eventually

NODE_ID = 1
T = topic_uuid("t")
HOUR_MS = 3_600_000


class World:
    def __init__(self, directory: Path, **changes: str) -> None:
        self.bucket = directory / "bucket"
        self.bucket.mkdir()
        settings = {
            "remote.wal.storage.system.enable": "true",
            "remote.wal.storage.manager.class.name": "LocalWalStorageManager",
            "rwsm.config.bucket": f"file://{self.bucket}",
            "broker.rack": "a",
            **{name.replace("_", "."): value for name, value in changes.items()},
        }
        self.config = ConfigHolder(broker_config(settings))
        self.cache = MetadataCache()
        identity = BrokerIdentity("cluster", NODE_ID, UUID(int=1), UUID(int=2))
        network = AsyncioNetwork()
        self.reading = WalReading(
            self.config,
            identity,
            self.cache,
            ConfigRepository(self.config.current, self.cache),
            LeaderConnector(NODE_ID, self.config, self.cache, lambda: 1, network),
            Outside(SystemClock(), Chance(1), OsFileSystem(), InlineDiskExecutor(), network),
            metrics=ObjectStoreMetrics(MetricsRegistry()),
            faults=None,
        )

    def create(self, replicas: tuple[int, ...], **settings: str) -> TopicIdPartition:
        delta = MetadataDelta(self.cache.image)
        delta.replay(TopicRecord(name="t", topic_id=T))
        for name, value in settings.items():
            delta.replay(ConfigRecord(resource_type=2, resource_name="t", name=name.replace("_", "."), value=value))
        delta.replay(
            PartitionRecord(
                partition_id=0,
                topic_id=T,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
            )
        )
        self.cache.set_image(delta.apply(1, 1))
        return TopicIdPartition(T, "t", 0)


@pytest.mark.parametrize(
    ("replicas", "placement"), [((1, 2), Placement.HERE), ((2, 3), Placement.ELSEWHERE), (None, Placement.UNKNOWN)]
)
def test_the_metadata_says_whether_a_partition_is_here(
    tmp_path: Path, replicas: tuple[int, ...] | None, placement: Placement
) -> None:
    world = World(tmp_path)
    partition = TopicIdPartition(T, "t", 0) if replicas is None else world.create(replicas)
    assert world.reading.partitions.is_wanted(partition) == (placement is not Placement.ELSEWHERE)
    assert world.reading.placement(partition) is placement


@pytest.mark.parametrize(
    ("settings", "keep_ms"),
    [
        ({"retention_ms": str(HOUR_MS)}, HOUR_MS),
        ({"retention_ms": "-1"}, 2 * HOUR_MS),
        ({"retention_ms": str(90 * HOUR_MS)}, 2 * HOUR_MS),
        ({"retention_ms": str(HOUR_MS), "local_retention_ms": "1000"}, 1000),
    ],
)
def test_objects_are_kept_as_long_as_local_records_and_pointers(
    tmp_path: Path, settings: dict[str, str], keep_ms: int
) -> None:
    world = World(tmp_path)
    partition = world.create((1, 2), **settings)
    assert world.reading.keep_ms(partition) == keep_ms


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[WalReading]:
    async with World(tmp_path).reading.running() as reading:
        yield reading


async def test_it_opens_its_bucket_and_asks_only_whether_it_is_there(running: WalReading) -> None:
    assert running.storage.is_reachable(running.storage.own_bucket)
    usage = running.store_metrics.usage
    await eventually(lambda: usage, "the bucket is asked")
    assert list(usage) == [(running.storage.own_bucket, "probe")]


def test_a_storage_manager_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be loaded"):
        World(tmp_path, remote_wal_storage_manager_class_name="nobody.has.This")
