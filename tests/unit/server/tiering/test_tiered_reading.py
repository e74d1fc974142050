from pathlib import Path
from uuid import UUID

import pytest

from broker.common.chance import Chance
from broker.common.clock import SystemClock
from broker.common.disk import InlineDiskExecutor
from broker.common.file_system import OsFileSystem
from broker.config.config_holder import ConfigHolder
from broker.config.setting import ConfigError
from broker.metadata.metadata_cache import MetadataCache
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.metrics.registry import MetricsRegistry
from broker.network.byte_stream import AsyncioNetwork
from broker.objectstore.fault_switch import FaultSwitch
from broker.server.broker_identity import BrokerIdentity
from broker.server.forwarding_manager import ForwardingManager
from broker.server.outside import Outside
from broker.server.tiering.tiered_reading import TieredReading
from broker.tiering.errors import RemoteResourceNotFoundError, RemoteStorageError
from broker.tiering.local_tiered_storage import LocalTieredStorage
from broker.tiering.remote_storage_manager import IndexType
from tests.support.builders import broker_config
from tests.unit.tiering.segment_world import segment


def reading_of(directory: Path, faults: FaultSwitch | None = None, **changes: str) -> TieredReading:
    bucket = directory / "bucket"
    bucket.mkdir(exist_ok=True)
    settings = {
        "log.dirs": str(directory / "data"),
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "LocalTieredStorage",
        "rsm.config.bucket": f"file://{bucket}",
        **{name.replace("_", "."): value for name, value in changes.items()},
    }
    outside = Outside(SystemClock(), Chance(1), OsFileSystem(), InlineDiskExecutor(), AsyncioNetwork())
    return TieredReading(
        ConfigHolder(broker_config(settings)),
        BrokerIdentity("cluster", 1, UUID(int=1), UUID(int=2)),
        MetadataCache(),
        ForwardingManager(None),  # type: ignore[arg-type]  # nothing is asked of the controller here
        outside,
        metrics=ObjectStoreMetrics(MetricsRegistry()),
        faults=faults,
        on_fatal=lambda error: pytest.fail(str(error)),
    )


async def test_it_opens_the_bucket_that_is_named_and_keeps_indexes_below_the_log_directory(tmp_path: Path) -> None:
    reading = reading_of(tmp_path)
    assert isinstance(reading.storage, LocalTieredStorage)
    async with reading.running():
        assert (tmp_path / "data" / "remote-log-index-cache").is_dir()
        with pytest.raises(RemoteResourceNotFoundError):
            await reading.storage.fetch_index(segment(1, 0, 9), IndexType.OFFSET)


async def test_a_drill_reaches_its_bucket(tmp_path: Path) -> None:
    faults = FaultSwitch(Chance(1))
    faults.set({"down": "reset"})
    reading = reading_of(tmp_path, faults)
    async with reading.running():
        with pytest.raises(RemoteStorageError) as raised:
            await reading.storage.fetch_index(segment(1, 0, 9), IndexType.OFFSET)
    assert not isinstance(raised.value, RemoteResourceNotFoundError)  # as it would be without a drill


async def test_the_index_cache_follows_its_setting(tmp_path: Path) -> None:
    reading = reading_of(tmp_path)
    seen: list[int] = []
    reading.indexes.resize = seen.append  # type: ignore[method-assign]
    name = "remote.log.index.file.cache.total.size.bytes"
    reading.config.update(broker_config({**reading.config.current.properties, name: "4096"}))
    assert seen == [4096]


def test_a_class_that_cannot_use_the_bucket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        reading_of(tmp_path, rsm_config_bucket="s3://elsewhere")
