"""SimRemoteStorageManager: tiered storage in a simulated bucket, and what that bucket ever held."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import ClassVar, Final, NamedTuple
from uuid import UUID

from broker.objectstore.decorated import Operation
from broker.tiering.object_names import ObjectKind, ObjectNames
from broker.tiering.object_remote_storage_manager import ObjectRemoteStorageManager
from broker.tiering.remote_storage_context import RemoteStorageContext
from tests.support.sim_buckets import SimBucket, SimBuckets
from tests.support.sim_observer import BATCH_HEADER, LOG_OVERHEAD, Batch, parse_batches

BUCKET: Final = "file:///tiered"
UPLOAD_TIMEOUT_MS: Final = 3_000
FETCH_TIMEOUT_MS: Final = 1_500


class SimRemoteStorageManager(ObjectRemoteStorageManager):
    """The product's own, on the buckets of the simulation, and less patient."""

    SCHEME: ClassVar[str] = "file"

    def __init__(self, context: RemoteStorageContext) -> None:
        settings = dataclasses.replace(
            context.settings, upload_timeout_ms=UPLOAD_TIMEOUT_MS, fetch_timeout_ms=FETCH_TIMEOUT_MS
        )
        super().__init__(dataclasses.replace(context, settings=settings, open_store=SimBuckets.installed().open))


STORAGE_MANAGER: Final = f"{SimRemoteStorageManager.__module__}.{SimRemoteStorageManager.__name__}"


class RemoteObject(NamedTuple):
    """What the name of an object tells."""

    topic_id: UUID
    partition: int
    base_offset: int
    segment_id: UUID
    kind: ObjectKind


@functools.cache
def parse_key(key: str) -> RemoteObject:
    prefix, cluster_id, _ = key.split("/", 2)
    return RemoteObject(*ObjectNames(cluster_id, prefix).parse(key))


class StoredBatch(NamedTuple):
    """A batch, its bytes, and the time it says."""

    batch: Batch
    size_bytes: int
    max_timestamp: int


class TieredBucket:
    """Reads what is in the bucket, and remembers the logs that were."""

    def __init__(self, bucket: SimBucket) -> None:
        self.bucket = bucket
        self._parsed: dict[str, tuple[StoredBatch, ...]] = {}  # logs, by key

    def objects(self) -> Iterator[tuple[str, RemoteObject]]:
        """All that are there, with their keys."""
        for key in self.bucket.objects:
            yield key, parse_key(key)

    def look(self) -> list[tuple[RemoteObject, tuple[StoredBatch, ...]]]:
        """Remember the logs that are there now; those that are new."""
        new = []
        for key in [key for key in self.bucket.objects if key.endswith(ObjectKind.LOG) and key not in self._parsed]:
            batches = self._parsed[key] = tuple(stored_batches(self.bucket.objects[key]))
            new.append((parse_key(key), batches))
        return new

    def logs(self, topic_id: UUID, partition: int, *, ever: bool = False) -> Iterator[tuple[StoredBatch, ...]]:
        """Of the segments of one partition that are there, or ever were when somebody looked."""
        self.look()
        for key, batches in self._parsed.items():
            if ever or key in self.bucket.objects:
                found = parse_key(key)
                if (found.topic_id, found.partition) == (topic_id, partition):
                    yield batches

    def count(self, operation: Operation) -> int:
        return self.bucket.count(operation)


def stored_batches(content: bytes) -> Iterator[StoredBatch]:
    """As `parse_batches`, with more of each."""
    position = 0
    for batch in parse_batches(content):
        size = LOG_OVERHEAD + BATCH_HEADER.unpack_from(content, position)[1]
        max_timestamp = int.from_bytes(content[position + 35 : position + 43], "big", signed=True)
        yield StoredBatch(batch, size, max_timestamp)
        position += size
