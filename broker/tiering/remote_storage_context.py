"""What a remote storage manager is made with: its settings (`rsm.config.*`) and the outside world."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias

from broker.common.chance import Chance
from broker.common.disk import DiskExecutor
from broker.common.file_system import FileSystem
from broker.config.setting import ConfigError
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.objectstore.object_store import ObjectStore
from broker.objectstore.object_store_url import open_object_store
from broker.objectstore.objects import PartSizes
from broker.objectstore.retrying import RetryPolicy
from broker.objectstore.s3_settings import S3Settings
from broker.tiering.object_names import DEFAULT_PREFIX

OpenStore: TypeAlias = Callable[[str], Awaitable[ObjectStore]]

PREFIX: Final = "rsm.config."  # the default of remote.log.storage.manager.impl.prefix
UPLOAD_TIMEOUT_MS: Final = 30_000  # nobody waits for a copy: the local segment is there meanwhile
FETCH_TIMEOUT_MS: Final = 10_000
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class RemoteStorageSettings:
    """`bucket` is a URL; all brokers of a cluster have the same `key_prefix`, without "/" at its ends.

    `properties` is all that was given under the prefix, without that: for a class of one's own.
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
    def of(cls, class_name: str, properties: Mapping[str, str]) -> Self:
        """From what was given under the prefix; ConfigError.  Names it does not know are left to others."""
        path_style = properties.get("path.style", "false").strip().lower()
        if path_style not in _BOOLEANS:
            raise ConfigError(f"{PREFIX}path.style={path_style} is neither true nor false")
        return cls(
            class_name=class_name,
            bucket=properties.get("bucket", ""),
            key_prefix=properties.get("key.prefix", DEFAULT_PREFIX),
            s3=S3Settings(
                endpoint_url=properties.get("endpoint.url"),
                region=properties.get("region"),
                access_key=properties.get("access.key"),
                secret_key=properties.get("secret.key"),
                path_style=_BOOLEANS[path_style],
                request_timeout_seconds=max(UPLOAD_TIMEOUT_MS, FETCH_TIMEOUT_MS) / 1000,
            ),
            properties=dict(properties),
        )


@dataclass(frozen=True, slots=True)
class RemoteStorageContext:
    """`open_store` opens the bare store of a bucket's URL; None: by `open_object_store`."""

    settings: RemoteStorageSettings
    cluster_id: str
    file_system: FileSystem
    disk: DiskExecutor
    chance: Chance
    metrics: ObjectStoreMetrics
    open_store: OpenStore | None = None

    async def open(self, url: str) -> ObjectStore:
        """ValueError when the bucket cannot be named so."""
        if self.open_store is not None:
            return await self.open_store(url)
        return await open_object_store(url, self.disk, self.chance, self.settings.s3)
