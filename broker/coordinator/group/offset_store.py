"""OffsetStore: the committed offsets of a shard, as of now and as of the high watermark."""

from collections import deque
from collections.abc import Iterator
from typing import TypeAlias

from broker.coordinator.group.committed_offset import CommittedOffset

OffsetKey: TypeAlias = tuple[str, str, int]  # group, topic, partition
PartitionOffsets: TypeAlias = dict[str, dict[int, CommittedOffset]]  # by topic and partition


class OffsetStore:
    """Latest offsets, and behind each change that is not committed yet what was there before.

    Kafka keeps snapshots of everything (TimelineHashMap); here only the uncommitted tail costs anything, and on a
    broker without followers there is none.
    """

    def __init__(self) -> None:
        self.committed_offset = 0  # the high watermark: changes below it are committed
        self.count = 0
        self._groups: dict[str, PartitionOffsets] = {}
        self._before: dict[OffsetKey, deque[CommittedOffset | None]] = {}
        self._uncommitted: deque[tuple[int, OffsetKey]] = deque()

    def latest(self, key: OffsetKey) -> CommittedOffset | None:
        group_id, topic, partition = key
        return self._groups.get(group_id, {}).get(topic, {}).get(partition)

    def committed(self, key: OffsetKey) -> CommittedOffset | None:
        """As of the high watermark."""
        before = self._before.get(key)
        return before[0] if before else self.latest(key)

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """The latest offsets of a group, in the order in which its topics came; changes may happen meanwhile."""
        for topic, partitions in list(self._groups.get(group_id, {}).items()):
            for partition, offset in list(partitions.items()):
                yield topic, partition, offset

    def committed_of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """As `of_group`, as of the high watermark."""
        seen = {(group_id, topic, partition): None for topic, partition, _ in self.of_group(group_id)}
        deleted = {key: None for key in self._before if key[0] == group_id}
        for key in seen | deleted:
            offset = self.committed(key)
            if offset is not None:
                yield key[1], key[2], offset

    def all_committed(self) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """Every offset as of the high watermark, but for those whose deletion is not committed yet."""
        for group_id, topics in self._groups.items():
            for topic, partitions in topics.items():
                for partition, latest in partitions.items():
                    key = (group_id, topic, partition)
                    before = self._before.get(key)
                    offset = before[0] if before else latest
                    if offset is not None:
                        yield key, offset

    def of_topic(self, topic: str) -> Iterator[tuple[str, int]]:
        """Groups and partitions which have an offset of the topic."""
        for group_id, topics in self._groups.items():
            for partition in topics.get(topic, {}):
                yield group_id, partition

    def put(self, written_at: int, key: OffsetKey, offset: CommittedOffset | None) -> CommittedOffset | None:
        """The change written at this place of the log; None deletes.  Returns what was there."""
        before = self._set(key, offset)
        if written_at >= self.committed_offset:
            self._before.setdefault(key, deque()).append(before)
            self._uncommitted.append((written_at, key))
        return before

    def on_committed(self, offset: int) -> None:
        self.committed_offset = max(self.committed_offset, offset)
        while self._uncommitted and self._uncommitted[0][0] < offset:
            _, key = self._uncommitted.popleft()
            before = self._before[key]
            before.popleft()
            if not before:
                del self._before[key]

    def _set(self, key: OffsetKey, offset: CommittedOffset | None) -> CommittedOffset | None:
        group_id, topic, partition = key
        if offset is not None:
            partitions = self._groups.setdefault(group_id, {}).setdefault(topic, {})
            before = partitions.get(partition)
            partitions[partition] = offset
            self.count += before is None
            return before
        before = self._groups.get(group_id, {}).get(topic, {}).pop(partition, None)
        if before is None:
            return None
        self.count -= 1
        if not self._groups[group_id][topic]:
            del self._groups[group_id][topic]
        if not self._groups[group_id]:
            del self._groups[group_id]
        return before
