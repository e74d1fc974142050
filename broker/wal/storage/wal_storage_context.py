"""What a storage manager is made with: its settings (`rwsm.config.*`) and the outside world."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias

from broker.common.chance import Chance
from broker.common.disk import DiskExecutor
from broker.config.broker_config import BrokerConfig
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.objectstore.fault_switch import FaultSwitch
from broker.objectstore.object_store import ObjectStore
from broker.objectstore.object_store_url import open_object_store
from broker.objectstore.retrying import RetryPolicy
from broker.objectstore.s3_settings import S3Settings

OpenStore: TypeAlias = Callable[[str], Awaitable[ObjectStore]]

FETCH_ATTEMPTS_MAX: Final = 3  # then the slice is set aside: another bucket, or the leader, may have it


@dataclass(frozen=True, slots=True)
class WalStorageSettings:
    """`bucket` is the URL of the own one.  All brokers of a cluster have the same `key_prefix`, "" or ending in "/".

    `properties` is all that was given under `rwsm.config.`, without that: for a class of one's own.
    """

    class_name: str
    bucket: str
    s3: S3Settings = field(default_factory=S3Settings)
    key_prefix: str = ""
    upload_timeout_ms: int = 2000
    fetch_timeout_ms: int = 2000
    upload_retries: RetryPolicy = field(default_factory=RetryPolicy)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # secrets are among them

    @classmethod
    def of(cls, config: BrokerConfig) -> Self:
        return cls(
            class_name=config.remote_wal_storage_manager_class_name or "",
            bucket=config.rwsm_config_bucket or "",
            s3=S3Settings(
                endpoint_url=config.rwsm_config_endpoint_url,
                region=config.rwsm_config_region,
                access_key=config.rwsm_config_access_key,
                secret_key=config.rwsm_config_secret_key,
                path_style=config.rwsm_config_path_style,
                request_timeout_seconds=max(config.remote_wal_upload_timeout_ms, config.remote_wal_fetch_timeout_ms)
                / 1000,
            ),
            key_prefix=config.rwsm_config_key_prefix,
            upload_timeout_ms=config.remote_wal_upload_timeout_ms,
            fetch_timeout_ms=config.remote_wal_fetch_timeout_ms,
            upload_retries=RetryPolicy(
                backoff_ms=config.remote_wal_upload_retry_backoff_ms,
                backoff_max_ms=config.remote_wal_upload_retry_max_ms,
            ),
            properties=config.storage_manager_properties,
        )

    @property
    def fetch_retries(self) -> RetryPolicy:
        uploads = self.upload_retries
        return RetryPolicy(FETCH_ATTEMPTS_MAX, uploads.backoff_ms, uploads.backoff_max_ms, uploads.jitter)


@dataclass(frozen=True, slots=True)
class WalStorageContext:
    """`open_store` opens the bare store of a bucket's URL; None: by `open_object_store`.  `faults` go around it."""

    settings: WalStorageSettings
    disk: DiskExecutor
    chance: Chance
    metrics: ObjectStoreMetrics
    open_store: OpenStore | None = None
    faults: FaultSwitch | None = None

    async def open(self, url: str) -> ObjectStore:
        if self.open_store is not None:
            bare = await self.open_store(url)
        else:
            bare = await open_object_store(url, self.disk, self.chance, self.settings.s3)
        return bare if self.faults is None else self.faults.around(bare)
