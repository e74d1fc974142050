"""ObjectRetention: when an object of the WAL has served its purpose and may be deleted.

An object is needed while a follower may still read one of its slices: until each slice's topic is deleted, or its
records are in tiered storage and on every assigned replica, at the latest for as long as records stay on local disks.
In mode `replicated` it is enough that every assigned replica has the records (KIP-1176 leaves all this open).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from broker.common.identifiers import TopicIdPartition

KEEP_SLACK_MS: Final = 10 * 60_000  # clocks differ, and what is fetched at this moment should still be there
EARLY_AFTER_START_MS: Final = 10 * 60_000  # positions of replicas and a lagging image are not believed before

_ALL_RELEASED: Final = 1 << 63
_NONE_RELEASED: Final = 0


class ObjectRetentionMode(Enum):
    """`remote.wal.object.retention.mode`: as long as records stay on local disks, or until every replica has them."""

    LOCAL = "local"
    REPLICATED = "replicated"


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """`replicated_min_age_ms` is remote.wal.object.min.retention.ms, `metadata_retention_ms` that of the metadata
    topic: without a pointer nobody finds an object."""

    mode: ObjectRetentionMode = ObjectRetentionMode.LOCAL
    replicated_min_age_ms: int = 600_000
    metadata_retention_ms: int = 7_200_000

    @property
    def keep_max_ms(self) -> int:
        """No object is needed when it is older."""
        return self.metadata_retention_ms + KEEP_SLACK_MS


class PartitionProgress(NamedTuple):
    """What the leader of a partition knows in its current epoch.  `replicas_end_offset` is the lowest log end offset
    of all assigned replicas, -1 while one of them has not fetched in this epoch."""

    high_watermark: int
    replicas_end_offset: int


class Progress(Protocol):
    """What retention asks about partitions."""

    def is_deleted(self, partition: TopicIdPartition) -> bool:
        """Whether the topic of that id existed and is gone from the metadata."""

    def local_retention_ms(self, partition: TopicIdPartition) -> int | None:
        """The effective local.retention.ms of its topic; None: without limit, or not known."""

    def of(self, partition: TopicIdPartition) -> PartitionProgress | None:
        """None when this broker does not lead the partition."""

    def highest_tiered_offset(self, partition: TopicIdPartition) -> int:
        """The last offset in tiered storage; -1 without any."""


class RetentionPass:
    """One look at all objects: each partition is asked about once.

    What it has learned stays true while it goes on: what all replicas hold below the high watermark they keep.
    """

    __slots__ = ("_is_early_allowed", "_now_ms", "_progress", "_released", "_retention", "_settings")

    def __init__(self, settings: RetentionSettings, progress: Progress, now_ms: int, *, is_early_allowed: bool) -> None:
        self._settings = settings
        self._progress = progress
        self._now_ms = now_ms
        self._is_early_allowed = is_early_allowed
        self._released: dict[TopicIdPartition, tuple[int, int]] = {}
        self._retention: dict[TopicIdPartition, int] = {}

    def releases(self, end_offsets: Mapping[TopicIdPartition, int], uploaded_ms: int) -> bool:
        """Whether an object may go that was uploaded then and has slices up to these offsets, inclusive."""
        age_ms = self._now_ms - uploaded_ms
        return self._is_expired(end_offsets, age_ms) or (
            self._is_early_allowed and self._is_needed_by_none(end_offsets, age_ms)
        )

    def _is_expired(self, end_offsets: Mapping[TopicIdPartition, int], age_ms: int) -> bool:
        if age_ms >= self._settings.keep_max_ms:
            return True
        wanted_ms = age_ms - KEEP_SLACK_MS
        return wanted_ms >= 0 and all(self._local_retention_ms(each) <= wanted_ms for each in end_offsets)

    def _is_needed_by_none(self, end_offsets: Mapping[TopicIdPartition, int], age_ms: int) -> bool:
        is_old = age_ms > self._settings.replicated_min_age_ms
        column = 1 if is_old and self._settings.mode is ObjectRetentionMode.REPLICATED else 0
        return all(end < self._released_below(each)[column] for each, end in end_offsets.items())

    def _local_retention_ms(self, partition: TopicIdPartition) -> int:
        known = self._retention.get(partition)
        if known is None:
            if self._progress.is_deleted(partition):
                known = 0
            else:
                told = self._progress.local_retention_ms(partition)
                known = self._settings.metadata_retention_ms if told is None else told
            self._retention[partition] = known
        return known

    def _released_below(self, partition: TopicIdPartition) -> tuple[int, int]:
        """Offsets nobody needs from a bucket: with what is tiered, and in mode `replicated`."""
        known = self._released.get(partition)
        if known is None:
            known = self._released[partition] = self._ask(partition)
        return known

    def _ask(self, partition: TopicIdPartition) -> tuple[int, int]:
        if self._progress.is_deleted(partition):
            return _ALL_RELEASED, _ALL_RELEASED
        progress = self._progress.of(partition)
        if progress is None:
            return _NONE_RELEASED, _NONE_RELEASED
        on_all = progress.replicas_end_offset
        tiered = min(on_all, self._progress.highest_tiered_offset(partition) + 1)
        return tiered, max(tiered, min(on_all, progress.high_watermark))
