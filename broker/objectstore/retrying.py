"""RetryingObjectStore: what may succeed when it is asked again is asked again, a few times, ever later."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from crc32c import crc32c

from broker.common.buffers import Buffer
from broker.common.chance import Chance
from broker.objectstore.decorated import DecoratedObjectStore, Operation, Request
from broker.objectstore.errors import NotFound, ObjectStoreError, PreconditionFailed
from broker.objectstore.object_store import ObjectStore
from broker.objectstore.objects import Upload, UploadedPart

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The n-th failure is followed by a pause of `backoff_ms` * 2^(n-1), at most `backoff_max_ms`, give or take
    `jitter` of it; the last of `attempts_max` is the answer."""

    attempts_max: int = 5
    backoff_ms: float = 20
    backoff_max_ms: float = 1000
    jitter: float = 0.2

    def delay_seconds(self, failures: int, chance: Chance) -> float:
        backoff_ms = min(self.backoff_max_ms, self.backoff_ms * 2.0 ** (failures - 1))
        return backoff_ms * (1 + self.jitter * (2 * chance.random() - 1)) / 1000


class RetryingObjectStore(DecoratedObjectStore):
    """Repeats what failed with a retriable error, with the same key and bytes.

    A write whose answer was lost may have been done.  A repeated `put_if_absent` that meets an object therefore looks
    at it: the same size and CRC-32C is one's own success (or a stranger's object with the same bytes, which is as
    good).  A repeated `complete_upload` that finds no upload any more does likewise, by the size.
    """

    def __init__(self, inner: ObjectStore, chance: Chance, policy: RetryPolicy | None = None) -> None:
        super().__init__(inner)
        self._chance = chance
        self._policy = policy or RetryPolicy()

    async def _around(self, request: Request, call: Callable[[], Awaitable[T]]) -> T:
        failures = 0
        while True:
            try:
                return await call()
            except ObjectStoreError as error:
                failures += 1
                if not error.retriable or failures >= self._policy.attempts_max:
                    raise
            await asyncio.sleep(self._policy.delay_seconds(failures, self._chance))

    async def probe(self) -> None:
        """Once: who probes wants to know how it is now."""
        await self._inner.probe()

    async def put_if_absent(self, key: str, body: Buffer) -> None:
        attempts = 0

        async def attempt() -> None:
            nonlocal attempts
            attempts += 1
            try:
                await self._inner.put_if_absent(key, body)
            except PreconditionFailed:
                if attempts == 1 or not await holds_exactly(self._inner, key, len(body), crc32c(body)):
                    raise

        await self._around(Request(Operation.PUT_IF_ABSENT, key, body), attempt)

    async def complete_upload(self, upload: Upload, parts: Sequence[UploadedPart]) -> None:
        attempts = 0

        async def attempt() -> None:
            nonlocal attempts
            attempts += 1
            try:
                await self._inner.complete_upload(upload, parts)
            except NotFound:
                if attempts == 1:
                    raise
                head = await self._inner.head(upload.key)
                if head.size_bytes != sum(part.size_bytes for part in parts):
                    raise

        await self._around(Request(Operation.COMPLETE_UPLOAD, upload.key), attempt)


async def holds_exactly(store: ObjectStore, key: str, size_bytes: int, checksum: int) -> bool:
    """Whether `key` is an object of this size and CRC-32C.  For whoever learns that it exists and must know whether
    it is the own one; a store that keeps no checksum is read."""
    try:
        head = await store.head(key, checksum=True)
        if head.size_bytes != size_bytes:
            return False
        if head.crc32c is not None or size_bytes == 0:
            return head.crc32c in (None, checksum)
        return crc32c(await store.get_range(key, 0, size_bytes)) == checksum
    except NotFound:
        return False
