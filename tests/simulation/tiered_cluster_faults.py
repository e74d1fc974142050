"""What happens to the bucket of a simulated cluster whose topics are tiered, and to what tells of it."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from broker.common.identifiers import REMOTE_LOG_METADATA_TOPIC, TopicPartition
from broker.objectstore.decorated import Operation
from broker.objectstore.failing_object_store import Fault, FaultPlan
from tests.simulation.cluster_faults import SESSION_S, ClusterFaults
from tests.simulation.wal_cluster_faults import DOWN, OUT_OF_REACH, SLOW, TROUBLE_S, WalClusterFaults
from tests.support.sim_buckets import SimBucket
from tests.support.sim_cluster_work import set_topic_config
from tests.support.sim_remote_storage import BUCKET

FLAWS: Final[Sequence[dict[Fault, float]]] = (
    {Fault.LOST_REPLY: 0.5},
    {Fault.LOST_REPLY: 1.0},
    {Fault.SLOW_DOWN: 0.5},
    {Fault.SHORT_READ: 0.3, Fault.NOT_FOUND: 0.3},
    {Fault.RESET: 0.3, Fault.SLOW_DOWN: 0.3, Fault.LOST_REPLY: 0.2, Fault.STALE_LIST: 0.5},
)


class TieredClusterFaults(WalClusterFaults):
    """Those of every cluster and of tiering; those of replication through buckets where `has_wal`."""

    has_wal = False
    unclean: TopicPartition | None = None
    clocks_jump = True

    def kinds(self) -> dict[Callable[[], Coroutine[Any, Any, None]], int]:
        kinds = super().kinds() if self.has_wal else {**ClusterFaults.kinds(self), self.zombie_leader: 4}
        if not self.clocks_jump:
            del kinds[self.clock_jump]
        if self.unclean is not None:
            kinds[self.unclean_election] = 10
        return kinds | {
            self.slow_tier: 2,
            self.tier_down: 5,
            self.flawed_tier: 4,
            self.failing_deletes: 2,
            self.remote_log_metadata_down: 3,
            self.empty_replacement: 5,
        }

    def is_disturbed(self) -> bool:
        """Nobody leaves an ISR for want of remote storage."""
        buckets = (self._buckets.by_url[url] for url in self._buckets.urls)
        return (
            ClusterFaults.is_disturbed(self)
            or self._announcements_held > 0
            or any(each.is_troubled for each in buckets)
        )

    @property
    def _tier(self) -> SimBucket:
        return self._buckets.by_url[BUCKET]

    async def slow_tier(self) -> None:
        self.seen["tier slow"] += 1
        self._tier.latency = self._chance.choice(SLOW)
        await self._heal_later(self._tier)

    async def tier_down(self) -> None:
        self.seen["tier down"] += 1
        self._tier.faults.plan = FaultPlan(down=self._chance.choice(DOWN))
        await self._heal_later(self._tier)

    async def flawed_tier(self) -> None:
        self.seen["tier flawed"] += 1
        self._tier.faults.plan = FaultPlan(dict(self._chance.choice(FLAWS)))
        await self._heal_later(self._tier)

    async def failing_deletes(self) -> None:
        self.seen["tier keeps what is deleted"] += 1
        self._tier.refused = frozenset({Operation.DELETE_MANY})
        await self._heal_later(self._tier)

    async def remote_log_metadata_down(self) -> None:
        """Nothing can be told of segments, while what was can still be read."""
        topic, name = REMOTE_LOG_METADATA_TOPIC, "min.insync.replicas"
        if await set_topic_config(self._admin, topic, name, OUT_OF_REACH):
            self.seen["remote log metadata down"] += 1
            await asyncio.sleep(self._chance.expovariate(1 / TROUBLE_S))
            await set_topic_config(self._admin, topic, name, "2")

    async def unclean_election(self) -> None:
        """A leader goes on alone, and then is not there when the others are."""
        leader = None if self.unclean is None else self._cluster.leader_of(self.unclean)
        if leader is None or self._busy or not all(node.is_running for node in self._cluster.nodes.values()):
            return
        others = [node_id for node_id in self._cluster.broker_ids if node_id != leader]
        self._busy.update(dict.fromkeys((*others, leader)))
        for node_id in others:
            self._cluster.nodes[node_id].kill()
        await asyncio.sleep(SESSION_S + 1 + self._chance.expovariate(1.0))
        self._cluster.nodes[leader].kill()
        first = self._chance.choice(others)
        await self._cluster.keep_starting(first)
        await asyncio.sleep(SESSION_S + 1)
        if self._cluster.leader_of(self.unclean) == first:
            self.seen["unclean election"] += 1
            await asyncio.sleep(self._chance.expovariate(1 / TROUBLE_S))
        for node_id in (*others, leader):
            await self._stay_off(node_id)

    async def empty_replacement(self) -> None:
        """The machine of a broker is replaced by one with an empty disk, where a power cut would be survived."""
        free = [
            node_id
            for node_id in self._cluster.broker_ids
            if node_id != self._cluster.controller_id
            and node_id not in self._busy
            and self._cluster.nodes[node_id].is_on
            and self._may_lose_bytes(node_id)
        ]
        if not free:
            return
        node_id = self._chance.choice(free)
        self._busy[node_id] = None
        self.seen["empty replacement"] += 1
        self.lose_power(node_id)
        self._cluster.nodes[node_id].empty_disk()
        await self._stay_off(node_id)
