"""Stories of a cluster in three zones, each with a bucket of its own, in virtual time (KIP-1176)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from broker.broker_server import BrokerServer
from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.objectstore.decorated import Operation
from broker.objectstore.failing_object_store import Fault, FaultPlan, Latency
from broker.protocol.api_keys import ApiKey
from broker.records.memory_records_builder import MemoryRecordsBuilder
from broker.replication.topic_stats import ReplicationPath
from tests.support.sim_buckets import STORAGE_MANAGER, SimBucket, SimBuckets
from tests.support.sim_client import TopicChurner, produce_request
from tests.support.sim_cluster import SESSION_MS, SimCluster, host_name
from tests.support.sim_cluster_client import AnyBroker, LeaderClient
from tests.support.sim_cluster_work import ClusterReader
from tests.support.sim_node import NodeLoop, simulate_nodes
from tests.support.sim_observer import ClusterObserver

pytestmark = pytest.mark.simulation

T: Final = TopicPartition("t", 0)
ACKS_ALL: Final = -1
POLL_S: Final = 0.05
STORE_LATENCY: Final = Latency(0.010)


class _World:
    """Three brokers, a controller of its own, and a topic of one partition with three replicas."""

    def __init__(self, loop: NodeLoop, properties: dict[str, str]) -> None:
        self.loop = loop
        self.buckets = buckets = SimBuckets(loop, zones=3)
        for bucket in buckets.by_url.values():
            bucket.latency = STORE_LATENCY
        self.cluster = SimCluster(
            loop,
            dedicated_controller=True,
            properties={
                "remote.wal.storage.system.enable": "true",
                "remote.wal.storage.manager.class.name": STORAGE_MANAGER,
                "remote.wal.fallback.enable": "false",
                "rwlmm.config.remote.wal.log.metadata.topic.num.partitions": "3",
                "remote.wal.fallback.lag.ms": "1900",
                **properties,
            },
            properties_of=lambda node_id: {
                "broker.rack": f"rack-{node_id}",
                "rwsm.config.bucket": buckets.urls[buckets.zone_of(node_id)],
            },
        )
        self._place = (self.cluster.network.host("client"), self.cluster.bootstrap, loop.random)
        self.producer = LeaderClient(*self._place, T)
        self.topics = TopicChurner(AnyBroker(*self._place))
        self.acknowledged: list[bytes] = []
        self._number = 0

    async def start(self) -> None:
        self.buckets.install()
        await self.cluster.start()
        await self.topics.create(T.topic, 1, {"remote.wal.enable": "true"}, 3)
        while not await self.produce(ACKS_ALL):
            await asyncio.sleep(POLL_S)

    def leader(self) -> int:
        leader = self.cluster.leader_of(T)
        assert leader is not None
        return leader

    def bucket_of(self, node_id: int) -> SimBucket:
        return self.buckets.zone(self.buckets.zone_of(node_id))

    async def produce(self, acks: int) -> bool:
        """One record, once; whether it was acknowledged."""
        value = b"%d" % self._number
        self._number += 1
        builder = MemoryRecordsBuilder()
        builder.append(1_700_000_000_000, None, value)
        try:
            answer = await self.producer.ask_once(
                ApiKey.PRODUCE, 7, produce_request(7, T, acks, bytes(builder.build()))
            )
        except (ConnectionError, TimeoutError):
            self.producer.on_refused()
            return False
        is_acknowledged = ErrorCode(answer.responses[0].partition_responses[0].error_code) is ErrorCode.none
        if is_acknowledged and acks == ACKS_ALL:
            self.acknowledged.append(value)
        if not is_acknowledged:
            self.producer.distrust()
        return is_acknowledged

    async def insist(self) -> float:
        """One record to all replicas, however often it takes; returns the seconds it took."""
        started = self.loop.time()
        async with asyncio.timeout(60):
            while not await self.produce(ACKS_ALL):
                await asyncio.sleep(0.001)
        return self.loop.time() - started

    async def get_well(self) -> None:
        """Nothing fails any more: every replica is in sync and has everything."""
        self.cluster.network.heal()
        for bucket in self.buckets.by_url.values():
            bucket.faults.plan = FaultPlan()
        for node_id in self.cluster.nodes:
            await self.cluster.keep_starting(node_id)
        async with asyncio.timeout(60):
            while not self.is_level():
                await asyncio.sleep(POLL_S)

    def is_level(self) -> bool:
        """In the topic, and in those of metadata: `check` compares them all."""
        registration = self.cluster.registration(T)
        if registration is None or len(registration.isr) != 3:
            return False
        ends: dict[TopicPartition, list[tuple[int, int]]] = {}
        for _, node in self.cluster.living():
            for hosted in self.cluster.partitions_of(node):
                log = hosted.local_log
                if log is None:
                    return False
                ends.setdefault(hosted.topic_partition, []).append((log.log_end_offset, log.high_watermark))
        return len(ends[T]) == 3 and all(len(set(each)) == 1 for each in ends.values())

    async def check(self) -> None:
        """Replicas are equal, and what was acknowledged is there."""
        observer = ClusterObserver(self.cluster)
        observer.check_logs()
        observer.check_equality()
        reader = ClusterReader(LeaderClient(*self._place, T))
        await reader.read_everything()
        assert [value for value in reader.values if value in set(self.acknowledged)] == self.acknowledged

    def end_of(self, node_id: int) -> int:
        log = self.cluster.log_of(node_id, T)
        assert log is not None
        return log.log_end_offset

    def processes(self) -> list[BrokerServer]:
        return [
            process.broker
            for node in self.cluster.nodes.values()
            for process in node.processes
            if process.broker is not None
        ]

    def received(self, path: ReplicationPath) -> int:
        """Bytes of the topic that came to followers on that path."""
        counts = [broker.replicas.topic_stats.of(T.topic).received_bytes for broker in self.processes()]
        return sum(size for each in counts for (way, _), size in each.items() if way is path)

    def counted(self, name: str) -> int:
        """The sum over brokers of one of the stats of the topic."""
        return sum(getattr(broker.wal.stats.of(T.topic), name) for broker in self.processes() if broker.wal is not None)

    def requests(self) -> int:
        return sum(len(bucket.asked) for bucket in self.buckets.by_url.values())


Story = Callable[[_World], Coroutine[Any, Any, None]]


def _tell(story: Story, **properties: str) -> None:
    async def main(loop: NodeLoop) -> None:
        world = _World(loop, {name.replace("_", "."): text for name, text in properties.items()})
        await world.start()
        await story(world)
        world.cluster.switch_off()

    simulate_nodes(main, seed=7)


def test_after_a_long_silence_one_record_reaches_all_replicas_at_once() -> None:
    async def story(world: _World) -> None:
        await asyncio.sleep(5)
        before = world.requests()
        await asyncio.sleep(300)
        assert world.requests() == before  # nobody asks a bucket for nothing
        assert await world.insist() < 0.2
        assert world.requests() - before == 3  # one PUT, and one GET for each follower
        await world.get_well()
        await world.check()
        assert world.received(ReplicationPath.FETCH) == world.received(ReplicationPath.FALLBACK) == 0

    _tell(story)


def test_without_fallback_acks_all_waits_for_a_bucket_that_cannot_be_read() -> None:
    async def story(world: _World) -> None:
        await world.insist()
        bucket = world.bucket_of(world.leader())
        bucket.faults.plan = FaultPlan(down=Fault.BLACK_HOLE)
        waiting = asyncio.get_running_loop().create_task(world.insist())
        await asyncio.sleep(2.5)
        assert not waiting.done()
        assert await world.produce(1)  # which has nothing to do with buckets
        bucket.faults.plan = FaultPlan()
        await waiting
        await world.get_well()
        await world.check()
        assert world.received(ReplicationPath.FALLBACK) == 0

    _tell(story)


def test_a_zone_is_lost_with_its_leader_and_bucket() -> None:
    """Behaviours 29 and 49: the others go on from another zone, and nothing acknowledged is lost."""

    async def story(world: _World) -> None:
        for _ in range(30):
            await world.insist()
        lost = world.leader()
        world.bucket_of(lost).faults.plan = FaultPlan(down=Fault.BLACK_HOLE)
        world.cluster.nodes[lost].kill()
        stall = await world.insist()
        assert SESSION_MS / 1000 - 1 < stall < 10
        assert world.leader() != lost
        puts = world.bucket_of(world.leader()).count(Operation.PUT_IF_ABSENT)
        assert puts > 0
        later = [await world.insist() for _ in range(30)]
        assert max(later) < 1
        assert world.bucket_of(world.leader()).count(Operation.PUT_IF_ABSENT) > puts
        await world.get_well()
        await world.check()

    _tell(story)


def test_a_deposed_leader_with_a_live_bucket_announces_in_vain() -> None:
    """Behaviour 30: it uploads and announces what it has appended, and nobody takes it."""

    async def story(world: _World) -> None:
        for _ in range(10):
            await world.insist()
        zombie = world.leader()
        bucket, controller = world.bucket_of(zombie), host_name(world.cluster.controller_id)
        world.cluster.network.cut(host_name(zombie), controller)
        world.cluster.network.cut(controller, host_name(zombie))
        bucket.faults.plan = FaultPlan(down=Fault.RESET)
        for _ in range(5):
            assert await world.produce(1)
        while world.cluster.leader_of(T) in (zombie, None):
            await asyncio.sleep(POLL_S)
        others = [each for each in world.cluster.broker_ids if each != zombie]
        ends = [world.end_of(each) for each in others]
        assert world.end_of(zombie) == ends[0] + 5 == ends[1] + 5
        puts = len(bucket.objects)
        bucket.faults.plan = FaultPlan()
        await asyncio.sleep(6)
        assert len(bucket.objects) > puts
        assert [world.end_of(each) for each in others] == ends
        assert world.counted("fenced_metadata") >= 1
        world.producer.on_refused()
        for _ in range(10):
            await world.insist()
        await world.get_well()
        await world.check()

    _tell(story)
