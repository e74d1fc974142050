"""WalVerification: whether a bucket holds what the metadata topic and the brokers' logs say, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from broker.cli.wal_bucket import WalBucket
from broker.cli.wal_logs import PartitionLogs
from broker.cli.wal_pointers import WalPointer, WalPointers, slice_digest
from broker.cli.wal_topic import ClusterView
from broker.objectstore.errors import NotFound
from broker.objectstore.objects import ObjectInfo
from broker.schemas.remote_wal_metadata import RemoteWalCombinedLogSegmentMetadataRecord
from broker.wal.objects.combined_segment import CorruptObjectError, read_object
from broker.wal.objects.object_key import WalObjectKey
from broker.wal.objects.slice_verifier import CorruptSliceError, verify_slice
from broker.wal.objects.wal_entry import WalEntry, entries_of

PARALLEL: Final = 16  # objects in memory at once


class Problem(StrEnum):
    """What can be wrong, as it is printed."""

    CORRUPT = "corrupt"  # its bytes are not what it says of itself
    MISSING = "missing"  # a pointer without an object
    FOREIGN = "foreign"  # no object of the WAL of this cluster
    ORPHAN = "orphan"  # no pointer to it
    DIFFERENT = "different"  # a pointer says other than the object
    LOG = "log"  # a broker's log has other bytes
    POINTER = "pointer"  # a record of the topic that cannot be read


@dataclass(frozen=True, slots=True)
class Finding:
    problem: Problem
    what: str  # a key, or the topic
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.problem:<9} {self.what}" + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True, slots=True)
class VerificationLimits:
    """An object without a pointer may be on its way for `orphan_age_ms`; a pointer keeps its object for `min_life_ms`
    at the least, while one of its topics exists: older ones may have lost theirs to retention, which tells nobody."""

    now_ms: int
    orphan_age_ms: int
    min_life_ms: int


@dataclass(slots=True)
class VerificationCounts:
    objects: int = 0
    slices: int = 0
    bytes_read: int = 0
    gone: int = 0  # deleted while we looked
    pending: int = 0  # without a pointer, and young
    expired: int = 0  # pointers whose object is gone as it may be
    equal_batches: int = 0  # in logs
    superseded_batches: int = 0
    absent_batches: int = 0


ReadPointers = Callable[[], Awaitable[tuple[ClusterView, WalPointers]]]


class WalVerification:
    """`findings()` tells each problem once it is found.  Without `read_pointers` objects are checked by themselves
    alone, without `logs` not against the brokers' disks."""

    def __init__(
        self,
        bucket: WalBucket,
        limits: VerificationLimits,
        *,
        read_pointers: ReadPointers | None = None,
        logs: PartitionLogs | None = None,
    ) -> None:
        self._bucket = bucket
        self._limits = limits
        self._read_pointers = read_pointers
        self._logs = logs
        self.counts = VerificationCounts()

    async def findings(self) -> AsyncIterator[Finding]:
        """ObjectStoreError, MetadataTopicError when it cannot be looked at all.

        The bucket is listed first and the topic read afterwards, up to an end that was asked for after the listing:
        an object that was listed has its pointer in what is read, if it has one.
        """
        listed = [found async for found in self._bucket.objects()]
        cluster, pointers = (None, None) if self._read_pointers is None else await self._read_pointers()
        for reason in pointers.unreadable if pointers is not None else ():
            yield Finding(Problem.POINTER, "__remote_wal_log_metadata", reason)
        ours: list[ObjectInfo] = []
        for found in listed:
            finding = _foreign(found, cluster)
            if finding is None:
                ours.append(found)
            else:
                yield finding
        for first in range(0, len(ours), PARALLEL):
            batch = ours[first : first + PARALLEL]
            for findings in await asyncio.gather(*(self._of_object(found, pointers) for found in batch)):
                for finding in findings:
                    yield finding
        if cluster is not None and pointers is not None:
            keys = {found.key for found in listed}
            for key, pointer in pointers.by_key.items():
                if key not in keys and await self._is_missing(key, pointer, cluster):
                    yield Finding(Problem.MISSING, key, f"announced {self._age(pointer.event_timestamp_ms)} ago")

    async def _of_object(self, found: ObjectInfo, pointers: WalPointers | None) -> list[Finding]:
        try:
            data = await self._bucket.read(found)
        except NotFound:
            self.counts.gone += 1
            return []
        self.counts.objects += 1
        self.counts.bytes_read += len(data)
        findings = [] if pointers is None else self._of_announcement(found, pointers)
        try:
            table = read_object(data)
        except CorruptObjectError as error:
            return [*findings, Finding(Problem.CORRUPT, found.key, str(error))]
        if not _is_named_after(table, found.key):
            return [*findings, Finding(Problem.FOREIGN, found.key, f"it calls itself {table.object_key}")]
        entries = entries_of(table)
        for entry in entries:
            findings += self._of_slice(entry, data)
        pointer = None if pointers is None else pointers.by_key.get(found.key)
        if pointer is not None:
            findings += self._differences(found.key, pointer, entries)
        return findings

    def _of_slice(self, entry: WalEntry, data: bytes) -> list[Finding]:
        self.counts.slices += 1
        try:
            batches = verify_slice(entry, memoryview(data)[entry.position : entry.object_end])
        except CorruptSliceError as error:
            return [Finding(Problem.CORRUPT, entry.object_key, str(error))]
        if self._logs is None:
            return []
        comparison = self._logs.compare(entry, batches)
        self.counts.equal_batches += comparison.equal
        self.counts.superseded_batches += comparison.superseded
        self.counts.absent_batches += comparison.absent
        return [
            Finding(Problem.LOG, entry.object_key, f"{entry.partition.topic_partition}: {sentence}")
            for sentence in comparison.different or ()
        ]

    def _of_announcement(self, found: ObjectInfo, pointers: WalPointers) -> list[Finding]:
        pointer = pointers.by_key.get(found.key)
        if pointer is not None:
            return []
        if self._limits.now_ms - found.last_modified_ms < self._limits.orphan_age_ms:
            self.counts.pending += 1
            return []
        return [Finding(Problem.ORPHAN, found.key, f"stored {self._age(found.last_modified_ms)} ago, never announced")]

    def _differences(self, key: str, pointer: WalPointer, entries: tuple[WalEntry, ...]) -> list[Finding]:
        findings = []
        if pointer.bucket != self._bucket.url:
            findings.append(Finding(Problem.DIFFERENT, key, f"announced as in {pointer.bucket}"))
        unlike = pointer.slices - {slice_digest(entry) for entry in entries}
        if unlike:
            reason = f"{len(unlike)} of {len(pointer.slices)} slices announced are not in its table"
            findings.append(Finding(Problem.DIFFERENT, key, reason))
        return findings

    async def _is_missing(self, key: str, pointer: WalPointer, cluster: ClusterView) -> bool:
        if pointer.bucket != self._bucket.url:
            return False
        is_old = self._limits.now_ms - pointer.event_timestamp_ms >= self._limits.min_life_ms
        if is_old or not pointer.topic_ids & cluster.topic_ids:
            self.counts.expired += 1
            return False
        try:
            await self._bucket.find(key)  # it may be younger than the listing
        except NotFound:
            return True
        return False

    def _age(self, since_ms: int) -> str:
        return f"{max(0, self._limits.now_ms - since_ms) // 1000} s"


def _foreign(found: ObjectInfo, cluster: ClusterView | None) -> Finding | None:
    try:
        key = WalObjectKey.parse(found.key)
    except ValueError:
        return Finding(Problem.FOREIGN, found.key, "no key of an object of the WAL")
    if cluster is not None and key.cluster_id != cluster.cluster_id:
        return Finding(Problem.FOREIGN, found.key, f"of the cluster {key.cluster_id}")
    return None


def _is_named_after(table: RemoteWalCombinedLogSegmentMetadataRecord, key: str) -> bool:
    name = WalObjectKey.parse(key)
    identity = (table.object_key, table.broker_id, table.broker_epoch, table.combined_segment_id)
    return identity == (key, name.broker_id, name.broker_epoch, name.combined_segment_id)
