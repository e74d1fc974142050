"""PendingOffsets: offsets committed in transactions that have not ended."""

from collections.abc import Iterator

from broker.coordinator.group.committed_offset import CommittedOffset
from broker.coordinator.group.offset_store import OffsetKey


class PendingOffsets:
    """By producer: its COMMIT marker makes them real, its ABORT marker drops them."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[OffsetKey, CommittedOffset]] = {}
        self._open_transactions: dict[str, dict[int, None]] = {}  # producers by group

    def put(self, producer_id: int, key: OffsetKey, offset: CommittedOffset) -> None:
        self._by_producer.setdefault(producer_id, {})[key] = offset
        self._open_transactions.setdefault(key[0], {})[producer_id] = None

    def delete(self, key: OffsetKey) -> None:
        """A tombstone of the partition also ends what transactions wanted to commit for it."""
        for producer_id in list(self._open_transactions.get(key[0], ())):
            self._by_producer[producer_id].pop(key, None)
            self._forget_if_done(producer_id, key[0])

    def end(self, producer_id: int) -> dict[OffsetKey, CommittedOffset]:
        """The producer's transaction has ended: what it wanted to commit, in the order of its commits."""
        offsets = self._by_producer.pop(producer_id, {})
        for group_id in dict.fromkeys(key[0] for key in offsets):
            self._close(group_id, producer_id)
        return offsets

    def has_group(self, group_id: str) -> bool:
        return group_id in self._open_transactions

    def has_partition(self, key: OffsetKey) -> bool:
        return any(key in self._by_producer[producer_id] for producer_id in self._open_transactions.get(key[0], ()))

    def of_group(self, group_id: str) -> Iterator[OffsetKey]:
        """The partitions of a group with an offset pending, each once."""
        keys: dict[OffsetKey, None] = {}
        for producer_id in self._open_transactions.get(group_id, ()):
            keys |= dict.fromkeys(key for key in self._by_producer[producer_id] if key[0] == group_id)
        return iter(keys)

    def of_topic(self, topic: str) -> Iterator[OffsetKey]:
        keys: dict[OffsetKey, None] = {}
        for offsets in self._by_producer.values():
            keys |= dict.fromkeys(key for key in offsets if key[1] == topic)
        return iter(keys)

    def first_record_offset(self) -> int | None:
        """Where the oldest pending commit lies in the log."""
        return min(
            (offset.record_offset for offsets in self._by_producer.values() for offset in offsets.values()),
            default=None,
        )

    def _forget_if_done(self, producer_id: int, group_id: str) -> None:
        offsets = self._by_producer[producer_id]
        if not any(key[0] == group_id for key in offsets):
            self._close(group_id, producer_id)
        if not offsets:
            del self._by_producer[producer_id]

    def _close(self, group_id: str, producer_id: int) -> None:
        producers = self._open_transactions[group_id]
        producers.pop(producer_id, None)
        if not producers:
            del self._open_transactions[group_id]
