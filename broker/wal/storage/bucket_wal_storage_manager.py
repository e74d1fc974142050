"""BucketWalStorageManager: the storage manager over object stores, whatever kind they are."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar, Final, TypeVar

import structlog
from crc32c import crc32c

from broker.common.tasks import BackgroundTasks
from broker.config.setting import ConfigError
from broker.objectstore.circuit_breaker import CircuitBreaker
from broker.objectstore.deadline import DeadlineObjectStore
from broker.objectstore.decorated import DecoratedObjectStore, Request
from broker.objectstore.errors import BucketNotFound, ObjectStoreError, PreconditionFailed, Throttled
from broker.objectstore.object_store import ObjectStore
from broker.objectstore.object_store_url import dressed, parse_bucket_url
from broker.objectstore.objects import DELETE_MANY_MAX, ObjectInfo
from broker.objectstore.retrying import RetryingObjectStore, holds_exactly
from broker.wal.objects.combined_segment import CombinedSegment
from broker.wal.storage.remote_wal_storage_manager import RemoteWalStorageManager
from broker.wal.storage.wal_storage_context import WalStorageContext

log = structlog.get_logger(__name__)

T = TypeVar("T")

PROBES_MAX: Final = 5  # what opens a circuit: one failure is none
FIRST_PROBES: Final = 2  # at the start; too few to open the circuit where one may write and not probe
PROBE_PAUSE_SECONDS: Final = 0.2
BUCKETS_MAX: Final = 32  # open at once: a region has few zones, and moving to other buckets doubles them at most


class _OpenBucket:
    """A bucket with all that is around it, and how many requests of ours it has."""

    __slots__ = ("circuit", "requests", "store", "uploads")

    def __init__(self, store: ObjectStore, uploads: ObjectStore, circuit: CircuitBreaker) -> None:
        self.store = store  # with the retries of reads
        self.uploads = uploads  # with those of uploads; over the same circuit
        self.circuit = circuit
        self.requests = 0

    async def __aenter__(self) -> "_OpenBucket":
        self.requests += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self.requests -= 1


class _Uploads(DecoratedObjectStore):
    """Tells of each time the bucket asks for fewer requests: retries hide it."""

    def __init__(self, inner: ObjectStore, on_throttled: Callable[[], None]) -> None:
        super().__init__(inner)
        self._on_throttled = on_throttled

    async def _around(self, request: Request, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except Throttled:
            self._on_throttled()
            raise


class BucketWalStorageManager(RemoteWalStorageManager):
    """Buckets of others are opened when they are first asked; when there are too many, the one unused for longest goes.

    `rwsm.config.key.prefix` is added to every key here, and taken off in listings: nobody else knows of it.
    """

    SCHEME: ClassVar[str]  # of the own bucket's URL

    def __init__(self, context: WalStorageContext) -> None:
        self._context = context
        self._settings = context.settings
        try:
            url = parse_bucket_url(self._settings.bucket)
        except ValueError as error:
            raise ConfigError(f"rwsm.config.bucket: {error}") from error
        if url.scheme != self.SCHEME:
            raise ConfigError(f"rwsm.config.bucket={url} is no {self.SCHEME} bucket, as {type(self).__name__} needs")
        self.own_bucket = str(url)
        self._tasks = BackgroundTasks("wal-storage")
        self._buckets: dict[str, _OpenBucket] = {}  # by URL; the one used longest ago comes first

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self._open(self.own_bucket)
        try:
            async with self._tasks:
                self._tasks.start("first-probe", self._look_at_own_bucket())
                yield
        finally:
            buckets, self._buckets = self._buckets, {}
            for bucket in buckets.values():
                await bucket.store.close()

    async def _look_at_own_bucket(self) -> None:
        """A wrong name or missing rights are known when the broker starts, not when the first record comes."""
        for left in reversed(range(FIRST_PROBES)):
            async with await self._bucket(self.own_bucket) as bucket:
                try:
                    await bucket.store.probe()
                except Throttled:
                    return  # it is there
                except ObjectStoreError as error:
                    if not left:
                        log.warning("wal_bucket_not_answering", bucket=self.own_bucket, error=str(error))
                else:
                    return
            await asyncio.sleep(PROBE_PAUSE_SECONDS)

    async def copy_wal_combined_segment(self, combined: CombinedSegment) -> None:
        key = self._settings.key_prefix + combined.metadata.object_key
        body = b"".join(combined.buffers)
        async with await self._bucket(self.own_bucket) as bucket:
            try:
                await bucket.uploads.put_if_absent(key, body)
            except PreconditionFailed:
                if not await holds_exactly(bucket.uploads, key, len(body), crc32c(body)):
                    raise

    async def fetch_wal_segment(self, bucket: str, object_key: str, start: int, end: int) -> bytes:
        async with await self._bucket(bucket) as opened:
            return await opened.store.get_range(self._settings.key_prefix + object_key, start, end - start)

    async def delete_wal_combined_segments(self, bucket: str, object_keys: Sequence[str]) -> None:
        keys = [self._settings.key_prefix + key for key in object_keys]
        async with await self._bucket(bucket) as opened:
            for first in range(0, len(keys), DELETE_MANY_MAX):
                await opened.store.delete_many(keys[first : first + DELETE_MANY_MAX])

    async def list_wal_objects(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        own_prefix = self._settings.key_prefix
        async with await self._bucket(self.own_bucket) as bucket:
            async for found in bucket.store.list(own_prefix + prefix):
                yield ObjectInfo(found.key.removeprefix(own_prefix), found.size_bytes, found.last_modified_ms)

    def is_reachable(self, bucket: str) -> bool:
        opened = self._buckets.get(bucket)
        return opened is None or not opened.circuit.is_open

    async def probe(self, bucket: str) -> None:
        with contextlib.suppress(BucketNotFound, Throttled):  # of what cannot be opened
            async with await self._bucket(bucket) as opened:
                for _ in range(PROBES_MAX):
                    if opened.circuit.is_open or await _answers(opened.store):
                        return
                    await asyncio.sleep(PROBE_PAUSE_SECONDS)

    async def _bucket(self, url: str) -> _OpenBucket:
        found = self._buckets.pop(url, None)
        if found is None:
            return await self._open(url)
        self._buckets[url] = found
        return found

    async def _open(self, url: str) -> _OpenBucket:
        try:
            bare = await self._context.open(url)
        except ValueError as error:
            raise BucketNotFound(str(error)) from error
        opened = self._dressed(bare)
        if (earlier := self._buckets.get(url)) is not None:  # opened by somebody else meanwhile
            await opened.store.close()
            return earlier
        self._buckets[url] = opened
        async with opened:
            await self._close_one_too_many(url)
        return opened

    def _dressed(self, bare: ObjectStore) -> _OpenBucket:
        settings, chance = self._settings, self._context.chance
        timed = DeadlineObjectStore(bare, write_ms=settings.upload_timeout_ms, read_ms=settings.fetch_timeout_ms)
        bucket = dressed(timed, chance, self._context.metrics, settings.fetch_retries)
        uploads = _Uploads(bucket.circuit, self._count_throttled)
        return _OpenBucket(bucket.store, RetryingObjectStore(uploads, chance, settings.upload_retries), bucket.circuit)

    def _count_throttled(self) -> None:
        self.throttled_count += 1

    async def _close_one_too_many(self, newest: str) -> None:
        if len(self._buckets) <= BUCKETS_MAX:
            return
        for url, bucket in self._buckets.items():
            if bucket.requests == 0 and url not in (self.own_bucket, newest):
                del self._buckets[url]
                log.info("bucket_closed", bucket=url, reason="others were used since")
                await bucket.store.close()
                return
        unused = self._buckets.pop(newest)
        await unused.store.close()
        raise Throttled(f"{newest}: {BUCKETS_MAX} other buckets are in use")


async def _answers(store: ObjectStore) -> bool:
    try:
        await store.probe()
    except ObjectStoreError:
        return False
    return True
