"""GroupCluster: three group coordinators over one replicated partition of `__consumer_offsets`, in virtual time.

The replication is a model of Kafka's, small enough to be seen to be right: followers copy what the leader of their
epoch has, the high watermark is what all in-sync replicas have, and each learns of it a fetch later.  The coordinators
are the product's own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from broker.common.chance import Chance
from broker.common.identifiers import CONSUMER_OFFSETS_TOPIC, TopicPartition
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.config.topic_config import TopicConfig
from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.coordinator.snapshot_writer import LOG_BYTES_MAX
from broker.metrics.coordinator_metrics import CoordinatorMetrics
from broker.metrics.registry import MetricsRegistry
from tests.support.group_world import NODE, GroupRequests
from tests.support.memory_partition_writer import MemoryLog, MemoryPartitionWriter
from tests.support.sim_loop import SimClock, SimLoop

T = TypeVar("T")

TP = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)
NOBODY = -1


def _base_offset(batch: bytes) -> int:
    return int.from_bytes(batch[:8], "big")


def _next_offset(batch: bytes) -> int:
    return _base_offset(batch) + int.from_bytes(batch[23:27], "big") + 1  # the last offset delta


class DisconnectedError(Exception):
    """The broker is not there, or died before it answered."""


class ReplicaLog(MemoryLog):
    """The log of one broker; what the leader appends moves the high watermark when it is alone in sync."""

    def __init__(self, broker: "ClusterBroker") -> None:
        super().__init__(TopicConfig({}))
        self._broker = broker
        self.commits_at_once = False

    def append(self, batch: bytearray) -> int:
        end_offset = super().append(batch)
        self._broker.advance_high_watermark()
        return end_offset

    def truncate_to(self, leader: MemoryLog) -> None:
        """Keep what both have."""
        common = 0
        for own, other in zip(self._from(leader.log_start_offset), leader.batches, strict=False):
            if own != other:
                break
            common += 1
        kept = len(self.batches) - len(list(self._from(leader.log_start_offset))) + common
        del self.batches[kept:]

    def start_at_least_at(self, offset: int) -> None:
        """What the leader has deleted goes here too."""
        if offset > self.log_start_offset:
            self.batches = list(self._from(offset))
            self.log_start_offset = offset

    def _from(self, offset: int) -> Iterator[bytes]:
        return (batch for batch in self.batches if _next_offset(batch) > offset)


class ClusterBroker:
    """One broker: its log, which survives it, and a coordinator that does not.  `heard` is (leader, epoch)."""

    def __init__(self, cluster: "GroupCluster", broker_id: int) -> None:
        self.id = broker_id
        self.cluster = cluster
        self.incarnation = 0
        self.is_up = False
        self.is_cut = False  # neither fetches nor hears
        self.writer = MemoryPartitionWriter()
        self.log = ReplicaLog(self)
        self.writer.logs[TP] = self.log
        self.heard = (NOBODY, -1)
        self.isr: set[int] = set()
        self.follower_end_offsets: dict[int, int] = {}
        self.groups: GroupCoordinator

    async def start(self) -> None:
        self.incarnation += 1
        self.heard = (NOBODY, -1)
        self.writer.is_leader = False
        self.log.listeners = {}
        config = ConfigHolder(BrokerConfig({**NODE, **self.cluster.properties}))
        metrics = CoordinatorMetrics(MetricsRegistry())
        chance = Chance(self.id * 1000 + self.incarnation)
        self.groups = GroupCoordinator(
            config, self.cluster.clock, chance, self.writer, metrics, log_bytes_max=self.cluster.log_bytes_max
        )
        await self.groups.startup()
        self.is_up = True

    async def kill(self) -> None:
        """kill -9: what was written stays, nobody is answered."""
        self.is_up = False
        self.incarnation += 1
        self.writer.is_leader = False
        await self.groups.shutdown()

    def hear(self) -> None:
        """The metadata of the cluster as it is now: first the replica, then the coordinator."""
        leader, epoch = self.cluster.leader, self.cluster.epoch
        if not self.is_up or self.is_cut or epoch <= self.heard[1]:
            return
        self.heard = (leader, epoch)
        self.writer.is_leader = leader == self.id
        if self.writer.is_leader:
            self.isr = set(self.cluster.isr)
            self.follower_end_offsets = {}
            self.advance_high_watermark()
            self.groups.on_election(0, epoch)
        else:
            self.groups.on_resignation(0, epoch)

    def advance_high_watermark(self) -> None:
        if not self.writer.is_leader:
            return
        followers = (self.follower_end_offsets.get(each, 0) for each in self.isr if each != self.id)
        offset = min([self.log.log_end_offset, *followers])
        if offset > self.log.high_watermark:
            self.log.commit(offset)

    def fetch(self) -> None:
        """One round of a follower."""
        leader_id, epoch = self.heard
        leader = self.cluster.brokers.get(leader_id)
        if not self.is_up or self.is_cut or leader is None or leader is self:
            return
        if not leader.is_up or leader.is_cut or leader.heard != self.heard:
            return
        self.log.truncate_to(leader.log)
        self.log.start_at_least_at(leader.log.log_start_offset)
        end_offset, high_watermark = self.log.log_end_offset, leader.log.high_watermark
        leader.follower_end_offsets[self.id] = end_offset
        if self.id not in leader.isr and end_offset >= leader.log.high_watermark:
            self.cluster.change_isr(leader, epoch, leader.isr | {self.id})
        leader.advance_high_watermark()
        self.log.batches += [each for each in leader.log.batches if _base_offset(each) >= end_offset]
        self.log.high_watermark = min(high_watermark, self.log.log_end_offset)  # from before this fetch counted


class GroupCluster:
    """The controller's part, and what makes time pass."""

    def __init__(
        self, loop: SimLoop, properties: dict[str, str] | None = None, *, log_bytes_max: int = LOG_BYTES_MAX
    ) -> None:
        broker_ids = (1, 2, 3)
        self.log_bytes_max = log_bytes_max
        self.loop = loop
        self.clock = SimClock(loop)
        self.properties = properties or {}
        self.leader, self.epoch = NOBODY, 0
        self.isr: set[int] = set(broker_ids)
        self.brokers = {broker_id: ClusterBroker(self, broker_id) for broker_id in broker_ids}
        self.elections = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> "GroupCluster":
        for broker in self.brokers.values():
            await broker.start()
        self.elect(min(self.brokers))
        self._tasks = [asyncio.create_task(self._replicate(broker)) for broker in self.brokers.values()]
        return self

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for broker in self.brokers.values():
            if broker.is_up:
                await broker.groups.shutdown()

    async def _replicate(self, broker: ClusterBroker) -> None:
        while True:
            await asyncio.sleep(self.loop.random.uniform(0.01, 0.3))
            broker.hear()
            broker.fetch()

    def elect(self, leader: int | None = None) -> None:
        """One of the in-sync replicas that are there; brokers hear of it one after the other."""
        able = [each for each in sorted(self.isr) if self.brokers[each].is_up and not self.brokers[each].is_cut]
        if leader is None:
            leader = self.loop.random.choice(able) if able else NOBODY
        self.leader = leader
        self.epoch += 1
        self.elections += leader != NOBODY

    def fence(self, broker_id: int) -> None:
        """The session of a broker is over: it is in sync no more, unless it is the last, and leads no more."""
        if len(self.isr) > 1:
            self.isr = self.isr - {broker_id}
        elif broker_id not in self.isr:
            return
        if self.leader in (broker_id, NOBODY):
            self.elect()
        else:
            self.epoch += 1  # as the partition epoch: the leader hears of its smaller ISR

    def change_isr(self, leader: ClusterBroker, epoch: int, isr: set[int]) -> None:
        """AlterPartition: refused from a leader of the past."""
        if (self.leader, self.epoch) == (leader.id, epoch):
            self.isr = leader.isr = isr


class ClusterClient(GroupRequests):
    """Finds its coordinator as clients do, and asks it; `groups` is that of the broker believed to be it."""

    def __init__(self, cluster: GroupCluster) -> None:
        self.cluster = cluster
        self.coordinator: ClusterBroker | None = None

    def find(self) -> ClusterBroker:
        """As any broker that is up has heard."""
        if self.coordinator is None:
            up = [broker for broker in self.cluster.brokers.values() if broker.is_up]
            leader = self.cluster.loop.random.choice(up).heard[0] if up else NOBODY
            if leader == NOBODY:
                raise DisconnectedError("no coordinator")
            self.coordinator = self.cluster.brokers[leader]
        return self.coordinator

    async def ask(self, request: Callable[[], Awaitable[T]]) -> T:
        """`request` uses `self.groups`.  DisconnectedError, and then the coordinator is forgotten."""
        broker = self.find()
        if not broker.is_up:
            self.coordinator = None
            raise DisconnectedError(f"broker {broker.id} is down")
        incarnation, self.groups = broker.incarnation, broker.groups
        answer = await request()
        if broker.incarnation != incarnation:
            self.coordinator = None
            raise DisconnectedError(f"broker {broker.id} died")
        return answer
