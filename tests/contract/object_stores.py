"""The object stores the contract is held against, each made for one test."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.common.chance import Chance
from broker.common.disk import DISK_THREADS, ThreadDiskExecutor
from broker.objectstore.failing_object_store import FailingObjectStore, Fault, FaultPlan
from broker.objectstore.local_directory_store import LocalDirectoryStore
from broker.objectstore.object_store import ObjectStore
from broker.objectstore.retrying import RetryingObjectStore, RetryPolicy
from broker.objectstore.s3_client import S3Client
from broker.objectstore.s3_object_store import S3ObjectStore
from tests.support.express_shim import ExpressShim
from tests.support.memory_object_store import MemoryObjectStore
from tests.support.s3_server import ACCESS_KEY, BUCKET, EXPRESS_BUCKET, SECRET_KEY

SMALL_PAGE = 3  # objects per page: listings of a few objects have several
PATIENT = RetryPolicy(attempts_max=30, backoff_ms=0.1, backoff_max_ms=1)
FAULTS = {Fault.SLOW_DOWN: 0.1, Fault.RESET: 0.1, Fault.LOST_REPLY: 0.2}

S3 = pytest.mark.s3
WITH_BUCKETS = ["directory", *(pytest.param(kind, marks=S3) for kind in ("seaweed", "moto", "express"))]
STORES = ["memory", "retrying_failing_memory", *WITH_BUCKETS]
ATOMIC_STORES = [store for store in STORES if "moto" not in getattr(store, "values", ())]  # moto looks, then writes


@dataclass
class Subject:
    """A store and what is peculiar to it; `open_missing` opens a bucket that is not there."""

    store: ObjectStore
    open_missing: Callable[[], Awaitable[ObjectStore]] | None = None
    keeps_checksums: bool = True
    part_size_bytes: int = 1000
    threads: int = 0  # each may hold a buffer for a moment after it has given its result


@contextlib.asynccontextmanager
async def subject(kind: str, request: pytest.FixtureRequest, directory: Path) -> AsyncIterator[Subject]:
    async with contextlib.AsyncExitStack() as stack:
        made = await _make(kind, request, directory, stack)
        stack.push_async_callback(made.store.close)
        yield made


async def _make(
    kind: str, request: pytest.FixtureRequest, directory: Path, stack: contextlib.AsyncExitStack
) -> Subject:
    if kind == "memory":
        return Subject(MemoryObjectStore(page_size=SMALL_PAGE))
    if kind == "directory":
        disk = ThreadDiskExecutor()
        stack.callback(disk.close)

        async def open_missing() -> ObjectStore:
            return LocalDirectoryStore(directory / "missing", disk, Chance(1))

        store = LocalDirectoryStore(directory, disk, Chance(1), page_size=SMALL_PAGE)
        return Subject(store, open_missing, threads=DISK_THREADS)
    if kind == "retrying_failing_memory":
        failing = FailingObjectStore(MemoryObjectStore(page_size=SMALL_PAGE), Chance(7), FaultPlan(dict(FAULTS)))
        return Subject(RetryingObjectStore(failing, Chance(8), PATIENT))
    server = request.getfixturevalue("moto" if kind == "moto" else "seaweed")
    url, bucket = server.url, BUCKET
    if kind == "express":
        shim = await stack.enter_async_context(ExpressShim(server.url, ACCESS_KEY, SECRET_KEY))
        url, bucket = shim.url, EXPRESS_BUCKET
    settings = server.settings(url)
    client = await S3Client.open(bucket, settings)
    return Subject(
        S3ObjectStore(client, bucket, page_size=SMALL_PAGE),
        lambda: S3ObjectStore.open("none--use1-az4--x-s3" if kind == "express" else "there-is-none", settings),
        keeps_checksums=kind != "moto",
        part_size_bytes=5 << 20,  # S3 takes no smaller ones but the last
    )
