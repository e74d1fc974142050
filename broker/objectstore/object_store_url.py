"""From a bucket's URL to a store that can be used: the one place that chooses."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from broker.common.chance import Chance
from broker.common.disk import DiskExecutor
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.objectstore.bounded import BoundedObjectStore
from broker.objectstore.circuit_breaker import CircuitBreaker, CircuitState
from broker.objectstore.instrumented import InstrumentedObjectStore
from broker.objectstore.local_directory_store import LocalDirectoryStore
from broker.objectstore.object_store import ObjectStore
from broker.objectstore.retrying import RetryingObjectStore, RetryPolicy
from broker.objectstore.s3_settings import S3Settings

_FORMS: Final = "file:///directory or s3://bucket"


@dataclass(frozen=True, slots=True)
class BucketUrl:
    """`place` is a directory or the name of a bucket of S3."""

    scheme: str
    place: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.place}"


def parse_bucket_url(url: str) -> BucketUrl:
    """ValueError when it is neither `file:///directory` nor `s3://bucket`."""
    parts = urlsplit(url)
    if parts.scheme == "s3" and parts.netloc and parts.path in ("", "/") and not parts.query:
        return BucketUrl("s3", parts.netloc)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/") and not parts.query:
        return BucketUrl("file", str(Path(unquote(parts.path))))
    raise ValueError(f"{url!r} is not a bucket: {_FORMS}")


async def open_object_store(url: str, disk: DiskExecutor, chance: Chance, s3: S3Settings | None = None) -> ObjectStore:
    """The bare store of a URL; nothing is sent to it yet."""
    bucket = parse_bucket_url(url)
    if bucket.scheme == "file":
        return LocalDirectoryStore(Path(bucket.place), disk, chance)
    # Here, because the library behind it takes a third of a second to load, which a directory need not wait for.
    from broker.objectstore.s3_object_store import S3ObjectStore

    return await S3ObjectStore.open(bucket.place, s3 or S3Settings())


@dataclass(frozen=True, slots=True)
class Bucket:
    """A store with all that belongs around it; `circuit` tells whether it is worth asking."""

    store: ObjectStore
    circuit: CircuitBreaker


def dressed(
    store: ObjectStore, chance: Chance, metrics: ObjectStoreMetrics, policy: RetryPolicy | None = None
) -> Bucket:
    """From the outside: retries; the circuit breaker, which sees every attempt; a bounded number of requests at once;
    counting."""
    opened = metrics.circuit_opened.labels(store.name)

    def count(state: CircuitState) -> None:
        opened.increment(state is CircuitState.OPEN)

    counted = InstrumentedObjectStore(store, metrics)
    circuit = CircuitBreaker(BoundedObjectStore(counted, metrics), on_change=count)
    return Bucket(RetryingObjectStore(circuit, chance, policy), circuit)
