"""WalBucket: a bucket of combined objects as `wherry wal` reads it, without being one of the cluster's brokers."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from broker.common.chance import Chance
from broker.common.disk import InlineDiskExecutor
from broker.config.setting import ConfigError
from broker.objectstore.object_keys import check_prefix
from broker.objectstore.object_store import ObjectStore
from broker.objectstore.object_store_url import open_object_store, parse_bucket_url
from broker.objectstore.objects import ObjectInfo
from broker.objectstore.retrying import RetryingObjectStore
from broker.objectstore.s3_settings import S3Settings
from broker.schemas.remote_wal_metadata import RemoteWalCombinedLogSegmentMetadataRecord
from broker.wal.objects.combined_segment import FOOTER_SIZE, CorruptObjectError, read_table, table_range

TAIL_SIZE: Final = 32 * 1024  # holds the table of nearly every object, so that one request is enough


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """Where a bucket is: its URL, and what the keys of this cluster's objects begin with (`rwsm.config.key.prefix`)."""

    url: str
    key_prefix: str = ""
    s3: S3Settings = field(default_factory=S3Settings)


def bucket_url(text: str) -> str:
    """The URL of a bucket, or of a directory given by its path, as brokers write it.  ConfigError."""
    url = text if re.match(r"[a-z0-9]+://", text) else Path(text).resolve().as_uri()
    try:
        return str(parse_bucket_url(url))
    except ValueError as error:
        raise ConfigError(f"{error}.") from error


class WalBucket:
    """Keys are without the prefix.  All methods may raise ObjectStoreError."""

    def __init__(self, store: ObjectStore, url: str, key_prefix: str = "") -> None:
        self._store = store
        self._key_prefix = key_prefix
        self.url = url

    @classmethod
    @asynccontextmanager
    async def opened(cls, place: BucketPlace) -> AsyncIterator["WalBucket"]:
        """Inside, the bucket has answered once.  ConfigError for a prefix that cannot be."""
        try:
            check_prefix(place.key_prefix)
        except ValueError as error:
            raise ConfigError(f"--key-prefix: {error}.") from error
        chance = Chance()
        bare = await open_object_store(place.url, InlineDiskExecutor(), chance, place.s3)
        store = RetryingObjectStore(bare, chance)
        try:
            await store.probe()
            yield cls(store, place.url, place.key_prefix)
        finally:
            await store.close()

    async def objects(self) -> AsyncIterator[ObjectInfo]:
        """All that is below the prefix, whether it is of the WAL or not; sorted within a page."""
        continuation: str | None = None
        while True:
            page = await self._store.list_page(self._key_prefix, continuation)
            for found in sorted(page.objects, key=lambda each: each.key):
                key = found.key.removeprefix(self._key_prefix)
                yield ObjectInfo(key, found.size_bytes, found.last_modified_ms)
            continuation = page.continuation
            if continuation is None:
                return

    async def find(self, key: str) -> ObjectInfo:
        """NotFound."""
        head = await self._store.head(self._key_prefix + key)
        return ObjectInfo(key, head.size_bytes, head.last_modified_ms)

    async def read(self, found: ObjectInfo) -> bytes:
        """The whole object; NotFound."""
        return await self._get(found, 0, found.size_bytes) if found.size_bytes else b""

    async def table(self, found: ObjectInfo) -> RemoteWalCombinedLogSegmentMetadataRecord:
        """What an object says of itself, from its end.  CorruptObjectError, NotFound."""
        size = found.size_bytes
        if size <= FOOTER_SIZE:
            raise CorruptObjectError(f"{size} bytes are no combined object")
        begin = max(0, size - TAIL_SIZE)
        tail = await self._get(found, begin, size - begin)
        footer = tail[-FOOTER_SIZE:]
        position, table_size = table_range(footer, size)
        if position >= begin:
            table = tail[position - begin : position - begin + table_size]
        else:
            table = await self._get(found, position, table_size)
        return read_table(table, footer, size)

    async def _get(self, found: ObjectInfo, position: int, size: int) -> bytes:
        return await self._store.get_range(self._key_prefix + found.key, position, size)
