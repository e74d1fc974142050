"""The story of a cluster whose topic is replicated through buckets (KIP-1176), one per zone, which fail as well.

All that holds of other topics holds of this one.  Some runs have no fault but those of clients: in them no broker sends
records to another, and every object is read once by each follower.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Final

from broker.broker_server import BrokerServer
from broker.common.identifiers import REMOTE_WAL_LOG_METADATA_TOPIC, TopicPartition
from broker.objectstore.decorated import Operation
from broker.replication.topic_stats import ReplicationPath
from broker.wal.remote_wal_stats import RemoteWalStats
from tests.simulation.cluster import RACK_AWARE, TOPIC, ClusterStory, Outcome, Worker, spare_the_collector
from tests.simulation.cluster_faults import ClusterFaults
from tests.simulation.wal_cluster_faults import WalClusterFaults
from tests.support.sim_buckets import STORAGE_MANAGER, SimBuckets
from tests.support.sim_client import Violation
from tests.support.sim_cluster import SimCluster
from tests.support.sim_cluster_client import AnyBroker, LeaderClient
from tests.support.sim_cluster_work import RecordDeleter, TopicSwitch
from tests.support.sim_node import NodeLoop, simulate_nodes

HEALTHY_S: Final = 12.0  # a run without faults
FALLBACK_LAG_MS: Final = 1_500  # less than half of replica.lag.time.max.ms
COUNTS: Final = ("fenced_metadata", "stale_metadata", "corrupt", "fallback_bytes", "republish_bytes", "copy_errors")


def run(seed: int) -> Outcome:
    try:
        return simulate_nodes(lambda loop: WalClusterStory(loop).tell(), seed=seed)
    finally:
        spare_the_collector()


def wal_stats_of(broker: BrokerServer) -> RemoteWalStats:
    """What a process has counted of replication through buckets."""
    assert broker.wal is not None
    return broker.wal.stats


class WalClusterStory(ClusterStory):
    """`is_healthy`: nothing fails."""

    pauses_per_s = 10.0  # several objects are on their way at a time

    def __init__(self, loop: NodeLoop) -> None:
        super().__init__(loop)
        deleting = self.partitions if self.chance.random() < 0.3 else []
        self.deleters = {
            reader.partition: RecordDeleter(
                LeaderClient(*self._place("deleter"), reader.partition), lambda reader=reader: len(reader.values)
            )
            for reader in self.readers
            if reader.partition in deleting
        }
        self.switches = [
            TopicSwitch(AnyBroker(*self._place("switch")), TOPIC, "remote.wal.enable")
            for _ in range(self.chance.choice((0, 0, 0, 1)))
        ]

    async def tell(self) -> Outcome:
        self.buckets.install()
        return await super().tell()

    @property
    def workers(self) -> tuple[Worker, ...]:
        return (*super().workers, *self.deleters.values(), *self.switches)

    def gone_below(self, partition: TopicPartition) -> int:
        deleter = self.deleters.get(partition)
        return 0 if deleter is None else deleter.gone_below

    def make_cluster(self) -> SimCluster:
        chance = self.chance
        self.is_healthy = chance.random() < 0.15
        self.may_fall_back = chance.random() < 0.6
        self.buckets = buckets = SimBuckets(self.loop, chance.choice((2, 3)), self.loop.trace)
        return SimCluster(
            self.loop,
            dedicated_controller=chance.random() < 0.7,
            properties={
                **(RACK_AWARE if chance.random() < 0.5 else {}),
                "replica.high.watermark.checkpoint.interval.ms": chance.choice(("700", "60000")),
                "remote.wal.storage.system.enable": "true",
                "remote.wal.storage.manager.class.name": STORAGE_MANAGER,
                "remote.wal.fallback.enable": str(self.may_fall_back).lower(),
                "remote.wal.fallback.lag.ms": str(FALLBACK_LAG_MS),
                "remote.wal.metadata.slice.events.enable": chance.choice(("true", "false")),
                "remote.wal.fetch.lag.wait.ms": chance.choice(("5", "20")),
                "log.retention.check.interval.ms": "1000",  # deletes files of records that were deleted
                "remote.wal.combine.interval.ms": chance.choice(("10", "50")),
                "remote.wal.combine.partition.max.bytes": chance.choice(("1024", "131072")),
                "remote.wal.upload.timeout.ms": "1000",
                "remote.wal.fetch.timeout.ms": "1000",
                "rwlmm.config.remote.wal.log.metadata.topic.num.partitions": "3",
                "rwlmm.config.remote.wal.log.metadata.topic.replication.factor": "3",
            },
            properties_of=lambda node_id: {
                "broker.rack": f"rack-{buckets.zone_of(node_id)}",
                "rwsm.config.bucket": buckets.urls[buckets.zone_of(node_id)],
            },
        )

    def make_faults(self) -> ClusterFaults:
        admin = AnyBroker(*self._place("admin"))
        return WalClusterFaults(self.cluster, self.hosts, self.seen, self.buckets, admin)

    def topic_configs(self) -> dict[str, str]:
        return {**super().topic_configs(), "remote.wal.enable": "true"}

    def written(self) -> list[TopicPartition]:
        image = self.cluster.image
        topic = None if image is None else image.topics.topic(REMOTE_WAL_LOG_METADATA_TOPIC)
        numbers = () if topic is None else tuple(topic.partitions)
        return [*super().written(), *(TopicPartition(REMOTE_WAL_LOG_METADATA_TOPIC, number) for number in numbers)]

    async def trouble(self, tasks: asyncio.TaskGroup) -> None:
        if self.is_healthy:
            await asyncio.sleep(HEALTHY_S)
        else:
            await super().trouble(tasks)

    # What must hold in the end

    def check_traffic(self) -> None:
        if not self.is_healthy or self.switches or self.reassigners:  # a new replica reads everything again
            return
        received = self.received()
        if not self.may_fall_back and received.keys() - {ReplicationPath.WAL}:
            raise Violation(f"{TOPIC}: brokers have sent records to each other: {dict(received)}")
        stored = sum(bucket.count(Operation.PUT_IF_ABSENT) for bucket in self.buckets.by_url.values())
        reads = sum(bucket.count(Operation.GET_RANGE) for bucket in self.buckets.by_url.values())
        followers = len(self.cluster.broker_ids) - 1
        if not self.may_fall_back and not 0 < reads <= stored * followers:
            raise Violation(f"{reads} reads of {stored} objects for {followers} followers")

    def received(self) -> Counter[ReplicationPath]:
        """Bytes of the topic that followers have taken, by the way they came."""
        received: Counter[ReplicationPath] = Counter()
        for broker in self._processes():
            stats = broker.replicas.topic_stats.topics.get(TOPIC)
            for (path, _), count in ({} if stats is None else stats.received_bytes).items():
                received[path] += count
        return received

    def _processes(self) -> Iterator[BrokerServer]:
        """Every life of every broker."""
        for node in self.cluster.nodes.values():
            for process in node.processes:
                if process.broker is not None:
                    yield process.broker

    def outcome(self) -> Outcome:
        outcome = super().outcome()
        seen = outcome.seen
        for each in (*self.deleters.values(), *self.switches):
            seen += each.seen
        seen["healthy run"] += self.is_healthy
        seen["run without fallback"] += not self.may_fall_back
        seen += self.buckets.occurred
        for bucket in self.buckets.by_url.values():
            for operation in Operation:
                seen[f"request {operation}"] += bucket.count(operation)
        for path, count in self.received().items():
            seen[f"bytes by {path}"] += count
        for broker in self._processes():
            for counts in wal_stats_of(broker).topics.values():
                for name in COUNTS:
                    seen[name.replace("_", " ")] += getattr(counts, name)
                    seen[f"runs of a broker with {name.replace('_', ' ')}"] += getattr(counts, name) > 0
        return outcome
