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
# It is some seconds of all that the broker reads, and metadata is seldom later.  Those of topics that were deleted wait
# in vain, until there are so many.
EARLY_ENTRIES_MAX: Final = 10_000
# Of all maps together: at about a kilobyte each, as much memory as the table of objects may take, however many
# partitions lag at a time.
ENTRIES_MAX: Final = 200_000


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
        self._early: dict[TopicIdPartition, deque[WalEntry]] = {}  # whoever waits longest first
        self._early_count = 0  # entries of all of them
        self._room = 0  # so many more may be kept before they are counted again

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
        early = self._early.pop(partition, ())
        self._early_count -= len(early)
        for entry in early:
            found.add(entry)
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
                    self._room -= 1
            elif self._placement(entry.partition) is Placement.UNKNOWN:
                self._keep_early(entry)
        if self._room < 0:
            self._make_room()
        return changed

    def _keep_early(self, entry: WalEntry) -> None:
        """Where there are too many, the partition that waits longest loses its oldest."""
        self._early.setdefault(entry.partition, deque()).append(entry)
        self._early_count += 1
        if self._early_count <= EARLY_ENTRIES_MAX:
            return
        longest, entries = next(iter(self._early.items()))
        entries.popleft()
        self._early_count -= 1
        if not entries:
            del self._early[longest]

    def _make_room(self) -> None:
        """Whoever keeps most gives up half of it."""
        count = sum(map(len, self._maps.values()))
        while count > ENTRIES_MAX:
            largest = max(self._maps.values(), key=len)
            before = len(largest)
            largest.make_room(max(1, before // 2))
            count -= before - len(largest)
        self._room = ENTRIES_MAX - count

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
