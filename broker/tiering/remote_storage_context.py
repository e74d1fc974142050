"""What a remote storage manager is made with: its settings (`rsm.config.*`) and the outside world."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias

from broker.common.chance import Chance
from broker.common.disk import DiskExecutor
from broker.common.file_system import FileSystem
from broker.config.broker_config import BrokerConfig
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.objectstore.fault_switch import FaultSwitch
from broker.objectstore.object_store import ObjectStore
from broker.objectstore.object_store_url import open_object_store
from broker.objectstore.objects import PartSizes
from broker.objectstore.retrying import RetryPolicy
from broker.objectstore.s3_settings import S3Settings
from broker.tiering.object_names import DEFAULT_PREFIX

OpenStore: TypeAlias = Callable[[str], Awaitable[ObjectStore]]

UPLOAD_TIMEOUT_MS: Final = 30_000  # nobody waits for a copy: the local segment is there meanwhile
FETCH_TIMEOUT_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class RemoteStorageSettings:
    """`bucket` is a URL; all brokers of a cluster have the same `key_prefix`, without "/" at its ends.

    `properties` is all that was given under the prefix, without that, and `broker.id`: for a class of one's own.
    """

    class_name: str
    bucket: str
    key_prefix: str = DEFAULT_PREFIX
    s3: S3Settings = field(default_factory=S3Settings)
    upload_timeout_ms: int = UPLOAD_TIMEOUT_MS
    fetch_timeout_ms: int = FETCH_TIMEOUT_MS
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    part_sizes: PartSizes = field(default_factory=PartSizes)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # secrets are among them

    @classmethod
    def of(cls, config: BrokerConfig) -> Self:
        return cls(
            class_name=config.remote_log_storage_manager_class_name or "",
            bucket=config.rsm_config_bucket or "",
            key_prefix=config.rsm_config_key_prefix.rstrip("/"),
            s3=S3Settings(
                endpoint_url=config.rsm_config_endpoint_url,
                region=config.rsm_config_region,
                access_key=config.rsm_config_access_key,
                secret_key=config.rsm_config_secret_key,
                path_style=config.rsm_config_path_style,
                request_timeout_seconds=max(UPLOAD_TIMEOUT_MS, FETCH_TIMEOUT_MS) / 1000,
            ),
            properties=config.rsm_properties(),
        )


@dataclass(frozen=True, slots=True)
class RemoteStorageContext:
    """`open_store` opens the bare store of a bucket's URL; None: by `open_object_store`.  `faults` go around it."""

    settings: RemoteStorageSettings
    cluster_id: str
    file_system: FileSystem
    disk: DiskExecutor
    chance: Chance
    metrics: ObjectStoreMetrics
    open_store: OpenStore | None = None
    faults: FaultSwitch | None = None

    async def open(self, url: str) -> ObjectStore:
        """ValueError when the bucket cannot be named so."""
        if self.open_store is not None:
            bare = await self.open_store(url)
        else:
            bare = await open_object_store(url, self.disk, self.chance, self.settings.s3)
        return bare if self.faults is None else self.faults.around(bare)
