"""WalPartitions: what the metadata topic has told of the partitions of this broker, each in its interval map."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Final

from broker.common.identifiers import TopicIdPartition
from broker.schemas.remote_wal_metadata import (
    RemoteWalLogSegmentMetadataUpdateRecord,
    RemoteWalPartitionInvalidateRecord,
)
from broker.wal.follow.wal_interval_map import WalIntervalMap
from broker.wal.objects.wal_entry import WalEntry

# A leader hears of a new topic before its followers do, and announces at once: so many slices wait for them to hear.
# It is some seconds of all that the broker reads, and metadata is seldom later.
EARLY_ENTRIES_MAX: Final = 10_000


class Placement(Enum):
    """Whether a partition concerns this broker.  UNKNOWN: the metadata does not have it, or not here, yet."""

    HERE = "here"
    ELSEWHERE = "elsewhere"
    UNKNOWN = "unknown"


class WalPartitions:
    """Maps are made when a partition comes to this broker, and dropped when it leaves; they outlive its roles."""

    def __init__(
        self, new_map: Callable[[TopicIdPartition], WalIntervalMap], placement: Callable[[TopicIdPartition], Placement]
    ) -> None:
        self._new_map = new_map
        self._placement = placement
        self._maps: dict[TopicIdPartition, WalIntervalMap] = {}
        self._early: deque[WalEntry] = deque(maxlen=EARLY_ENTRIES_MAX)

    def __iter__(self) -> Iterator[tuple[TopicIdPartition, WalIntervalMap]]:
        return iter(tuple(self._maps.items()))

    def __len__(self) -> int:
        return len(self._maps)

    def map_of(self, partition: TopicIdPartition) -> WalIntervalMap | None:
        return self._maps.get(partition)

    def host(self, partition: TopicIdPartition) -> bool:
        """The partition is here now; whether it had not been."""
        if partition in self._maps:
            return False
        found = self._maps[partition] = self._new_map(partition)
        for entry in [each for each in self._early if each.partition == partition]:
            found.add(entry)
            self._early.remove(entry)
        return True

    def drop(self, partition: TopicIdPartition) -> None:
        """The partition has left."""
        self._maps.pop(partition, None)

    def is_wanted(self, partition: TopicIdPartition) -> bool:
        """Whether what is told of a partition may matter here."""
        return partition in self._maps or self._placement(partition) is not Placement.ELSEWHERE

    def add(self, entries: Iterable[WalEntry]) -> set[TopicIdPartition]:
        """Slices were announced; returns the partitions for which that is new."""
        changed: set[TopicIdPartition] = set()
        for entry in entries:
            found = self._maps.get(entry.partition)
            if found is not None:
                if found.add(entry):
                    changed.add(entry.partition)
            elif self._placement(entry.partition) is Placement.UNKNOWN:
                self._early.append(entry)
        return changed

    def update(self, record: RemoteWalLogSegmentMetadataUpdateRecord) -> None:
        """A slice is void (key 6)."""
        found = self._maps.get(record.remote_log_segment_id.topic_id_partition.topic_id_partition)
        if found is not None:
            found.update(record)

    def invalidate(self, record: RemoteWalPartitionInvalidateRecord) -> None:
        """What older leaders announced is void from an offset on (key 7)."""
        found = self._maps.get(record.topic_id_partition.topic_id_partition)
        if found is not None:
            found.invalidate(record)
