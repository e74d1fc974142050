"""Putting a region of a file: whole when it is small, else in parts, few of them in memory at a time."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

from broker.common.buffers import Buffer
from broker.objectstore.errors import ObjectStoreError
from broker.objectstore.file_region import FileRegion
from broker.objectstore.objects import PartSizes, Upload, UploadedPart


class PartStore(Protocol):
    """What it needs of an object store."""

    async def put(self, key: str, body: Buffer) -> None: ...
    async def start_upload(self, key: str) -> Upload: ...
    async def upload_part(self, upload: Upload, number: int, position: int, body: Buffer) -> UploadedPart: ...
    async def complete_upload(self, upload: Upload, parts: Sequence[UploadedPart]) -> None: ...
    async def abort_upload(self, upload: Upload) -> None: ...


async def upload_file(
    store: PartStore, key: str, region: FileRegion, sizes: PartSizes, turns: asyncio.Semaphore | None = None
) -> None:
    """Put `region` as `key`; what was begun and failed is aborted.  Each part takes a turn, from its reading on."""
    turns = turns or asyncio.Semaphore(sizes.parallel)
    if region.size_bytes <= sizes.part_size_bytes:
        async with turns:
            await store.put(key, await region.read(0, region.size_bytes))
        return
    upload = await store.start_upload(key)
    try:
        parts = await _upload_parts(store, upload, region, sizes, turns)
        await store.complete_upload(upload, parts)
    except BaseException:
        # Parts that stay are paid for; where even this fails, the bucket's life cycle rule removes them.
        with contextlib.suppress(ObjectStoreError):
            await store.abort_upload(upload)
        raise


async def _upload_parts(
    store: PartStore, upload: Upload, region: FileRegion, sizes: PartSizes, turns: asyncio.Semaphore
) -> list[UploadedPart]:
    part_size = sizes.part_size_for(region.size_bytes)
    positions = enumerate(range(0, region.size_bytes, part_size), start=1)
    parts: list[UploadedPart] = []

    async def work(mine: Iterator[tuple[int, int]]) -> None:
        for number, position in mine:
            async with turns:
                body = await region.read(position, min(part_size, region.size_bytes - position))
                parts.append(await store.upload_part(upload, number, position, body))
                del body  # before the next one is read

    try:
        async with asyncio.TaskGroup() as workers:
            for number in range(sizes.parallel):
                workers.create_task(work(positions), name=f"upload:{upload.key}:{number}")
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return sorted(parts, key=lambda part: part.number)
