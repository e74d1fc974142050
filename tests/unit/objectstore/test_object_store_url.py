"""From URLs to stores, and what is put around them."""

from pathlib import Path

import pytest

from broker.common.chance import Chance
from broker.common.disk import InlineDiskExecutor
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.metrics.registry import MetricsRegistry
from broker.objectstore.decorated import Operation
from broker.objectstore.errors import CircuitOpen, Unavailable
from broker.objectstore.failing_object_store import FailingObjectStore, Fault
from broker.objectstore.local_directory_store import LocalDirectoryStore
from broker.objectstore.object_store_url import BucketUrl, dressed, open_object_store, parse_bucket_url
from broker.objectstore.retrying import RetryPolicy
from broker.objectstore.s3_object_store import S3ObjectStore
from broker.objectstore.s3_settings import S3Settings
from tests.support.memory_object_store import MemoryObjectStore
from tests.support.sim_loop import SimLoop, simulate


@pytest.mark.parametrize(
    ("url", "scheme", "place", "text"),
    [
        ("file:///var/wal", "file", "/var/wal", "file:///var/wal"),
        ("file:///var/wal/", "file", "/var/wal", "file:///var/wal"),
        ("file:///a%20b", "file", "/a b", "file:///a b"),
        ("s3://wal", "s3", "wal", "s3://wal"),
        ("s3://wal--use1-az4--x-s3/", "s3", "wal--use1-az4--x-s3", "s3://wal--use1-az4--x-s3"),
    ],
)
def test_urls(url: str, scheme: str, place: str, text: str) -> None:
    assert parse_bucket_url(url) == BucketUrl(scheme, place)
    assert str(parse_bucket_url(url)) == text


@pytest.mark.parametrize("url", ["", "wal", "/var/wal", "file://host/dir", "file:wal", "s3://", "s3://b/key", "gs://b"])
def test_what_is_no_bucket(url: str) -> None:
    with pytest.raises(ValueError, match="is not a bucket: file:///directory or s3://bucket"):
        parse_bucket_url(url)


async def test_the_store_is_chosen_by_the_scheme(tmp_path: Path) -> None:
    disk, chance = InlineDiskExecutor(), Chance(1)
    directory = await open_object_store(f"file://{tmp_path}", disk, chance)
    assert isinstance(directory, LocalDirectoryStore)
    assert directory.name == f"file://{tmp_path}"
    bucket = await open_object_store("s3://wal", disk, chance, S3Settings(endpoint_url="http://127.0.0.1:1"))
    assert isinstance(bucket, S3ObjectStore)
    assert bucket.name == "s3://wal"
    await bucket.close()


def test_every_attempt_is_counted_and_the_circuit_sees_it() -> None:
    async def story(loop: SimLoop) -> None:
        metrics = ObjectStoreMetrics(MetricsRegistry())
        inner = MemoryObjectStore()
        failing = FailingObjectStore(inner, Chance(1))
        bucket = dressed(failing, Chance(2), metrics, RetryPolicy(attempts_max=4))
        failing.fail_next(Operation.PUT, Fault.RESET, Fault.SLOW_DOWN)
        await bucket.store.put("a", b"x")
        counted = metrics.requests
        outcomes = [counted.labels(inner.name, "put", end).value for end in ("unavailable", "throttled", "ok")]
        assert outcomes == [1, 1, 1]
        failing.plan.down = Fault.RESET
        with pytest.raises(Unavailable):
            await bucket.store.put("a", b"x")
        with pytest.raises(CircuitOpen):
            await bucket.store.put("a", b"x")  # the second attempt was the fifth failure
        assert bucket.circuit.is_open
        assert metrics.circuit_opened.labels(inner.name).value == 1
        assert counted.labels(inner.name, "put", "unavailable").value == 1 + 5
        await bucket.store.close()
        assert inner.closed

    simulate(story)
