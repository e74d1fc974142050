"""StripedReplicaPlacer: which brokers hold a new partition.

Kafka's class of the same name: racks are taken in turn and brokers within a rack in turn, so that replicas of one
partition stand in different racks while there are enough of them, and leaders are spread evenly.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from broker.common.chance import Chance
from broker.common.errors import InvalidReplicationFactorError


class UsableBroker(NamedTuple):
    """A broker that may be given replicas.  A fenced one may follow, but not be the first leader."""

    id: int
    rack: str | None
    fenced: bool


class _BrokerList:
    """Brokers of one rack in rotation: every new partition starts one broker further on."""

    def __init__(self, chance: Chance, brokers: Iterable[int]) -> None:
        self._chance = chance
        self._brokers = sorted(brokers)
        self._partition = 0
        self._index = 0
        self._offset = chance.below(len(self._brokers)) if self._brokers else 0

    def __len__(self) -> int:
        return len(self._brokers)

    def shuffle(self) -> None:
        self._chance.shuffle(self._brokers)
        self._partition, self._index = 0, 0

    def next(self, partition: int) -> int | None:
        """Another broker for `partition`; None when it has had each of them."""
        if not self._brokers:
            return None
        if self._partition != partition:
            self._partition = partition
            self._index = 0
            self._offset = (self._offset + 1) % len(self._brokers)
        if self._index >= len(self._brokers):
            return None
        broker = self._brokers[(self._index + self._offset) % len(self._brokers)]
        self._index += 1
        return broker


class _Rack:
    def __init__(self, chance: Chance, brokers: Sequence[UsableBroker]) -> None:
        self.unfenced = _BrokerList(chance, (broker.id for broker in brokers if not broker.fenced))
        self.fenced = _BrokerList(chance, (broker.id for broker in brokers if broker.fenced))

    def next(self, partition: int) -> int | None:
        broker = self.unfenced.next(partition)
        return self.fenced.next(partition) if broker is None else broker

    def shuffle(self) -> None:
        self.unfenced.shuffle()
        self.fenced.shuffle()


class _RackList:
    def __init__(self, chance: Chance, brokers: Sequence[UsableBroker]) -> None:
        self._chance = chance
        by_rack: dict[str | None, list[UsableBroker]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack, []).append(broker)
        names = sorted(by_rack, key=lambda name: (name is not None, name or ""))
        self._racks = [_Rack(chance, by_rack[name]) for name in names]
        self.broker_count = len(brokers)
        self.unfenced_count = sum(not broker.fenced for broker in brokers)
        self._partition = 0
        self._offset = chance.below(len(self._racks)) if self._racks else 0

    def place(self, replication_factor: int) -> tuple[int, ...]:
        if self._partition == self.unfenced_count and self.unfenced_count > 1:
            self._shuffle()  # every broker led once: begin another order, or the same followers would always meet
        first_rack, leader = self._first_unfenced()
        replicas = [leader]
        position = self._offset
        has_skipped_first = False
        while len(replicas) < replication_factor:
            if position == first_rack and not has_skipped_first:
                has_skipped_first = True  # the leader's rack had its turn already
            else:
                broker = self._racks[position].next(self._partition)
                if broker is not None:
                    replicas.append(broker)
            position = (position + 1) % len(self._racks)
        self._partition += 1
        self._offset = (self._offset + 1) % len(self._racks)
        return tuple(replicas)

    def _first_unfenced(self) -> tuple[int, int]:
        for step in range(len(self._racks)):
            rack = (self._offset + step) % len(self._racks)
            broker = self._racks[rack].unfenced.next(self._partition)
            if broker is not None:
                return rack, broker
        raise AssertionError(f"no unfenced broker among {self.broker_count}, though {self.unfenced_count} were counted")

    def _shuffle(self) -> None:
        order = list(range(len(self._racks)))
        self._chance.shuffle(order)
        self._racks = [self._racks[index] for index in order]
        for rack in self._racks:
            rack.shuffle()
        self._partition = 0


class StripedReplicaPlacer:
    def __init__(self, chance: Chance) -> None:
        self._chance = chance

    def place(
        self, partition_count: int, replication_factor: int, brokers: Sequence[UsableBroker]
    ) -> list[tuple[int, ...]]:
        """Replicas of each partition, the first of which can lead.  InvalidReplicationFactorError if impossible."""
        if replication_factor <= 0:
            raise InvalidReplicationFactorError("Invalid replication factor: the replication factor must be positive.")
        racks = _RackList(self._chance, brokers)
        prefix = f"Unable to replicate the partition {replication_factor} time(s): "
        if racks.unfenced_count == 0:
            raise InvalidReplicationFactorError(f"{prefix}All brokers are currently fenced.")
        if replication_factor > racks.broker_count:
            raise InvalidReplicationFactorError(
                f"{prefix}The target replication factor of {replication_factor} cannot be reached because only "
                f"{racks.broker_count} broker(s) are registered."
            )
        return [racks.place(replication_factor) for _ in range(partition_count)]
