"""Timing rules of replication on a whole cluster in virtual time (Kafka's Partition: ISR and high watermark)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.protocol.api_keys import ApiKey
from broker.records.memory_records_builder import MemoryRecordsBuilder
from tests.support.sim_client import TopicChurner, produce_request
from tests.support.sim_cluster import SimCluster, host_name
from tests.support.sim_cluster_client import AnyBroker, LeaderClient
from tests.support.sim_node import NodeLoop, simulate_nodes

pytestmark = pytest.mark.simulation

BUSY: Final = TopicPartition("t", 0)
IDLE: Final = TopicPartition("t", 1)
ACKS_ALL: Final = -1
POLL_S: Final = 0.05


class _World:
    """Three brokers, a controller of its own, and a topic with two partitions of three replicas."""

    def __init__(self, loop: NodeLoop, properties: dict[str, str]) -> None:
        self.loop = loop
        self.cluster = SimCluster(loop, dedicated_controller=True, properties=properties)
        place = (self.cluster.network.host("client"), self.cluster.bootstrap, loop.random)
        self.producer = LeaderClient(*place, BUSY)
        self.topics = TopicChurner(AnyBroker(*place))

    async def start(self) -> None:
        await self.cluster.start()
        await self.topics.create(BUSY.topic, 2, {}, 3)
        while self.isr(BUSY) is None or not await self.produce(ACKS_ALL):
            await asyncio.sleep(POLL_S)

    def isr(self, partition: TopicPartition) -> tuple[int, ...] | None:
        registration = self.cluster.registration(partition)
        return None if registration is None else tuple(sorted(registration.isr))

    def leader(self) -> int:
        leader = self.cluster.leader_of(BUSY)
        assert leader is not None
        return leader

    def followers(self) -> list[int]:
        return [node_id for node_id in self.cluster.broker_ids if node_id != self.leader()]

    async def produce(self, acks: int) -> bool:
        """One record, once; whether it was acknowledged."""
        builder = MemoryRecordsBuilder()
        builder.append(1_700_000_000_000, None, b"value")
        request = produce_request(7, BUSY, acks, bytes(builder.build()))
        try:
            answer = await self.producer.ask_once(ApiKey.PRODUCE, 7, request)
        except (ConnectionError, TimeoutError):
            self.producer.on_refused()
            return False
        return ErrorCode(answer.responses[0].partition_responses[0].error_code) is ErrorCode.none

    async def insist(self) -> float:
        """One record to all replicas, however often it takes; returns the seconds it took."""
        started = self.loop.time()
        while not await self.produce(ACKS_ALL):
            await asyncio.sleep(0.001)
        return self.loop.time() - started

    def cut(self, one: int, other: int) -> None:
        self.cluster.network.cut(host_name(one), host_name(other))
        self.cluster.network.cut(host_name(other), host_name(one))


Story = Callable[[_World], Coroutine[Any, Any, None]]


def _tell(story: Story, **properties: str) -> None:
    async def main(loop: NodeLoop) -> None:
        world = _World(loop, {name.replace("_", "."): text for name, text in properties.items()})
        await world.start()
        await story(world)
        world.cluster.switch_off()

    simulate_nodes(main, seed=7)


def test_a_stopped_follower_delays_acks_all_once_and_no_longer_than_one_and_a_half_lag_times() -> None:
    async def story(world: _World) -> None:
        world.cut(world.leader(), world.followers()[0])
        first = await world.insist()
        assert 4.0 - 0.5 <= first <= 4.0 * 1.5 + 0.1
        later = [await world.insist() for _ in range(50)]
        assert max(later) < 0.1
        assert len(world.isr(BUSY) or ()) == 2

    _tell(story, replica_lag_time_max_ms="4000")


def test_a_silent_follower_leaves_the_isr_of_a_busy_partition_and_stays_in_that_of_an_idle_one() -> None:
    """Behaviour 9: between one and one and a half replica.lag.time.max.ms after it was last caught up."""

    async def story(world: _World) -> None:
        idle_leader = world.cluster.leader_of(IDLE)
        silent = next(node_id for node_id in world.followers() if node_id != idle_leader)
        await asyncio.sleep(1)
        world.cut(world.leader(), silent)
        assert idle_leader is not None
        world.cut(idle_leader, silent)
        since = world.loop.time()
        while silent in (world.isr(BUSY) or ()):
            await world.produce(1)
            await asyncio.sleep(1)
        assert 29.0 <= world.loop.time() - since <= 46.5
        await asyncio.sleep(60)
        assert silent in (world.isr(IDLE) or ())

    _tell(story, replica_lag_time_max_ms="30000")


def test_a_follower_that_is_always_a_fetch_behind_stays_in_the_isr() -> None:
    """Behaviour 10: it reaches at each fetch what there was at its last one."""

    async def story(world: _World) -> None:
        leader, slow = world.leader(), world.followers()[0]
        for pair in ((leader, slow), (slow, leader)):
            world.cluster.network.delay(host_name(pair[0]), host_name(pair[1]), 0.15)
        behind = 0
        deadline = world.loop.time() + 9.0
        while world.loop.time() < deadline:
            await world.produce(1)
            end_offset = world.cluster.end_offset(BUSY)
            log = world.cluster.log_of(slow, BUSY)
            assert log is not None
            behind += log.log_end_offset < end_offset
            assert world.isr(BUSY) == (1, 2, 3)
            await asyncio.sleep(0.02)
        assert behind > 100

    _tell(story, replica_lag_time_max_ms="3000")


def test_a_follower_below_the_start_of_the_epoch_is_not_added_though_it_has_the_high_watermark() -> None:
    """Behaviour 11: the new leader knows an old high watermark only; more than that was committed before it."""

    async def story(world: _World) -> None:
        cluster = world.cluster
        first, behind, next_leader = world.leader(), *world.followers()
        world.cut(first, behind)
        world.cut(next_leader, behind)
        while behind in (world.isr(BUSY) or ()):
            await world.insist()
        for _ in range(30):
            await world.insist()
        await asyncio.sleep(1)
        epoch_start = cluster.end_offset(BUSY)
        for node_id in (first, next_leader):
            cluster.nodes[node_id].kill()
        cluster.network.heal()
        cluster.network.delay(host_name(next_leader), host_name(behind), 0.3)
        await cluster.keep_starting(next_leader)
        await _expect_no_early_member(world, next_leader, behind, epoch_start)

    _tell(story, replica_lag_time_max_ms="3000", replica_high_watermark_checkpoint_interval_ms="3600000")


async def _expect_no_early_member(world: _World, leader: int, follower: int, epoch_start: int) -> None:
    seen_between = 0
    while follower not in (world.isr(BUSY) or ()):
        partition = world.cluster.hosted(leader, BUSY)
        if partition is not None and partition.is_leader and follower in partition.remote_replicas:
            replica = partition.remote_replicas[follower]
            assert partition.leader_epoch_start_offset == epoch_start
            seen_between += partition.log.high_watermark <= replica.log_end_offset < epoch_start
            if follower in partition.maximal_isr:
                assert replica.log_end_offset >= epoch_start
        await asyncio.sleep(0.01)
    assert seen_between > 0
