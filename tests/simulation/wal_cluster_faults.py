"""What happens to the buckets of a simulated cluster, to the topic that tells of them, and to zones with both."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from broker.common.identifiers import REMOTE_WAL_LOG_METADATA_TOPIC
from broker.objectstore.failing_object_store import Fault, FaultPlan, Latency
from tests.simulation.cluster_faults import SESSION_S, ClusterFaults
from tests.support.sim_buckets import SimBucket, SimBuckets
from tests.support.sim_cluster import SimCluster, host_name
from tests.support.sim_cluster_client import AnyBroker
from tests.support.sim_cluster_work import set_topic_config

TROUBLE_S: Final = 3.0  # of a bucket
SLOW: Final = (Latency(0.1, 0.4), Latency(0.4, 2.0))
DOWN: Final = (Fault.BLACK_HOLE, Fault.RESET, Fault.SLOW_DOWN)
LIES: Final[Sequence[dict[Fault, float]]] = (
    {Fault.FLIPPED_BYTE: 0.5},
    {Fault.FLIPPED_BYTE: 1.0},
    {Fault.SHORT_READ: 0.3, Fault.NOT_FOUND: 0.3},
    {Fault.NOT_FOUND: 1.0},
)
FLAWS: Final[Sequence[dict[Fault, float]]] = (
    {Fault.LOST_REPLY: 0.5},
    {Fault.LOST_REPLY: 1.0},
    {Fault.SLOW_DOWN: 0.5},
    {Fault.RESET: 0.3, Fault.SLOW_DOWN: 0.3, Fault.LOST_REPLY: 0.2, Fault.STALE_LIST: 0.5},
)
OUT_OF_REACH: Final = "4"  # more replicas than there are: nothing can be announced


class WalClusterFaults(ClusterFaults):
    """Those of every cluster, and those of buckets."""

    def __init__(
        self, cluster: SimCluster, clients: Sequence[str], seen: Counter[str], buckets: SimBuckets, admin: AnyBroker
    ) -> None:
        super().__init__(cluster, clients, seen)
        self._buckets = buckets
        self._admin = admin
        self._announcements_held = 0

    def kinds(self) -> dict[Callable[[], Coroutine[Any, Any, None]], int]:
        return super().kinds() | {
            self.slow_bucket: 3,
            self.bucket_down: 4,
            self.lying_bucket: 4,
            self.flawed_bucket: 3,
            self.metadata_topic_down: 3,
            self.zombie_leader: 4,
            self.zone_lost: 4,
        }

    def end(self) -> None:
        super().end()
        for bucket in self._buckets.by_url.values():
            bucket.heal()

    def is_disturbed(self) -> bool:
        """Followers that cannot read leave the ISR as those that cannot be heard do."""
        buckets = self._buckets.by_url.values()
        return super().is_disturbed() or self._announcements_held > 0 or any(each.is_troubled for each in buckets)

    # Buckets

    async def slow_bucket(self) -> None:
        bucket = self._draw_bucket("bucket slow")
        bucket.latency = self._chance.choice(SLOW)
        await self._heal_later(bucket)

    async def bucket_down(self) -> None:
        bucket = self._draw_bucket("bucket down")
        bucket.faults.plan = FaultPlan(down=self._chance.choice(DOWN))
        await self._heal_later(bucket)

    async def lying_bucket(self) -> None:
        bucket = self._draw_bucket("bucket lying")
        bucket.faults.plan = FaultPlan(dict(self._chance.choice(LIES)))
        await self._heal_later(bucket)

    async def flawed_bucket(self) -> None:
        bucket = self._draw_bucket("bucket flawed")
        bucket.faults.plan = FaultPlan(dict(self._chance.choice(FLAWS)))
        await self._heal_later(bucket)

    def _draw_bucket(self, name: str) -> SimBucket:
        self.seen[name] += 1
        return self._buckets.by_url[self._chance.choice(self._buckets.urls)]

    async def _heal_later(self, bucket: SimBucket) -> None:
        """Two troubles of a bucket end together."""
        await asyncio.sleep(self._chance.expovariate(1 / TROUBLE_S))
        bucket.heal()

    # What tells of them

    async def metadata_topic_down(self) -> None:
        """Nothing can be announced, while what was can still be read."""
        self._announcements_held += 1
        try:
            if await self._set_min_isr(OUT_OF_REACH):
                self.seen["metadata topic down"] += 1
                await asyncio.sleep(self._chance.expovariate(1 / TROUBLE_S))
                await self._set_min_isr("2")
        finally:
            self._announcements_held -= 1

    async def _set_min_isr(self, value: str) -> bool:
        return await set_topic_config(self._admin, REMOTE_WAL_LOG_METADATA_TOPIC, "min.insync.replicas", value)

    # Leaders and zones

    async def zombie_leader(self) -> None:
        """A leader that the controller does not hear goes on, with bucket, clients and other brokers in reach."""
        controller = self._cluster.controller_id
        leaders = [
            node_id
            for node_id, node in self._cluster.living()
            if node_id != controller and any(each.is_leader for each in self._cluster.partitions_of(node))
        ]
        if not leaders:
            return
        node_id = self._chance.choice(leaders)
        self.seen["zombie leader"] += 1
        pair = (host_name(node_id), host_name(controller))
        self._cluster.network.cut(*pair)
        self._cluster.network.cut(*reversed(pair))
        await asyncio.sleep(SESSION_S + self._chance.expovariate(1 / TROUBLE_S))
        self._cluster.network.heal_between(*pair)

    async def zone_lost(self) -> None:
        """The brokers of a zone end, and nobody reaches its bucket until they are back, or longer."""
        zone = self._chance.randrange(len(self._buckets.urls))
        of_zone = [node_id for node_id in self._cluster.broker_ids if self._buckets.zone_of(node_id) == zone]
        ending = [each for each in of_zone if each not in self._busy and self._cluster.nodes[each].is_on]
        if not ending:
            return
        self.seen["zone lost"] += 1
        bucket = self._buckets.zone(zone)
        bucket.faults.plan = FaultPlan(down=Fault.BLACK_HOLE)
        for node_id in ending:
            self._busy[node_id] = None
            self._note_leadership(node_id)
            self._cluster.nodes[node_id].kill()
        for node_id in ending:
            await self._stay_off(node_id)
        await self._heal_later(bucket)
