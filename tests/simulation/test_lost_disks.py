"""Disks that are lost, as docs/operations.md tells it: of a broker, and of the controller with the metadata log."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from broker.common.errors import ErrorCode
from broker.common.file_system import FileSystem, read_file, write_file_atomically
from broker.common.identifiers import TopicPartition
from broker.config.setting import ConfigError
from broker.controller.metadata_log import DIRECTORY_NAME, RESERVE_FILE
from broker.protocol.api_keys import ApiKey
from broker.records.memory_records_builder import MemoryRecordsBuilder
from broker.server.broker_lifecycle_manager import BrokerReplacedError
from broker.server.meta_properties import format_directory, read_meta_properties
from broker.server.metadata_observer import ClusterIdMismatchError
from broker.server.metadata_tail import MetadataDivergedError
from tests.support.sim_client import TopicChurner, produce_request
from tests.support.sim_cluster import SimCluster
from tests.support.sim_cluster_client import AnyBroker, LeaderClient
from tests.support.sim_node import LOG_DIRECTORY, NodeLoop, SimNode, simulate_nodes

pytestmark = pytest.mark.simulation

PARTITION: Final = TopicPartition("t", 0)
SINCE_MS: Final = 1_700_000_000_000
SESSION_S: Final = 12.0  # and some more
POLL_S: Final = 0.05
PATIENCE_S: Final = 60.0
METADATA: Final = LOG_DIRECTORY / DIRECTORY_NAME


class _World:
    """Three brokers, a controller of its own, and a partition with three replicas and five records."""

    def __init__(self, loop: NodeLoop) -> None:
        self.loop = loop
        self.cluster = SimCluster(loop, dedicated_controller=True, properties={"min.insync.replicas": "1"})
        self._place = (self.cluster.network.host("client"), self.cluster.bootstrap, loop.random)
        self.topics = TopicChurner(AnyBroker(*self._place))

    async def start(self) -> None:
        await self.cluster.start()
        await self.topics.create(PARTITION.topic, 1, {}, 3)
        await self.produce(5)

    @property
    def controller(self) -> SimNode:
        return self.cluster.nodes[self.cluster.controller_id]

    @property
    def brokers(self) -> list[SimNode]:
        return [self.cluster.nodes[node_id] for node_id in self.cluster.broker_ids]

    def leader(self) -> int:
        leader = self.cluster.leader_of(PARTITION)
        assert leader is not None
        return leader

    def isr(self) -> list[int]:
        registration = self.cluster.registration(PARTITION)
        return [] if registration is None else sorted(registration.isr)

    def ends(self) -> list[int]:
        logs = [self.cluster.log_of(node_id, PARTITION) for node_id in self.cluster.broker_ids]
        return [-1 if log is None else log.log_end_offset for log in logs]

    async def produce(self, count: int) -> None:
        """To all replicas in sync, however often it takes."""
        client = LeaderClient(*self._place, PARTITION)
        for _ in range(count):
            async with asyncio.timeout(PATIENCE_S):
                while not await self._produce_once(client):
                    await asyncio.sleep(POLL_S)
        client.close()

    async def _produce_once(self, client: LeaderClient) -> bool:
        builder = MemoryRecordsBuilder()
        builder.append(SINCE_MS, None, b"value")
        request = produce_request(7, PARTITION, -1, bytes(builder.build()))
        try:
            answer = await client.ask_once(ApiKey.PRODUCE, 7, request)
        except (ConnectionError, TimeoutError):
            client.on_refused()
            return False
        if ErrorCode(answer.responses[0].partition_responses[0].error_code) is ErrorCode.none:
            return True
        client.on_refused()
        return False

    def endings(self) -> set[type]:
        """Why brokers asked to be ended until now: what the loop's handler was told, which a process acts upon."""
        told, self.loop.failures = self.loop.failures, []
        return {type(context["exception"]) for context in told}

    async def becomes(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not reached():
                await asyncio.sleep(POLL_S)


def _tell(story: Callable[[_World], Coroutine[Any, Any, None]]) -> None:
    async def main(loop: NodeLoop) -> None:
        world = _World(loop)
        await world.start()
        await story(world)
        world.cluster.switch_off()

    simulate_nodes(main, seed=7)


def _cluster_id(file_system: FileSystem) -> str:
    meta = read_meta_properties(file_system, LOG_DIRECTORY)
    assert meta is not None
    return meta.cluster_id


def _names(node: SimNode) -> set[str]:
    return set(node.file_system.list_directory(LOG_DIRECTORY))


def test_a_broker_that_comes_back_empty_is_filled_from_its_leaders() -> None:
    async def story(world: _World) -> None:
        lost = world.cluster.nodes[world.leader()]
        lost.kill()
        lost.empty_disk()
        await asyncio.sleep(SESSION_S)
        assert len(world.isr()) == 2
        await lost.start()
        await world.becomes(lambda: len(world.isr()) == 3)
        await world.produce(1)
        assert world.ends() == [6, 6, 6]

    _tell(story)


def test_a_broker_that_comes_back_empty_and_was_alone_in_sync_empties_the_others() -> None:
    async def story(world: _World) -> None:
        lost = world.cluster.nodes[world.leader()]
        others = [node for node in world.brokers if node is not lost]
        for node in others:
            node.kill()
        await asyncio.sleep(SESSION_S)
        await world.produce(1)
        lost.kill()
        lost.empty_disk()
        for node in others:
            await node.start()
        await asyncio.sleep(SESSION_S)
        registration = world.cluster.registration(PARTITION)
        assert registration is not None
        assert registration.leader == -1  # what kafka-topics.sh --unavailable-partitions lists
        assert len(world.isr()) == 1
        await lost.start()
        await world.becomes(lambda: len(world.isr()) == 3)
        assert world.ends() == [0, 0, 0]

    _tell(story)


def test_a_controller_that_comes_back_empty_leads_another_cluster_which_no_broker_joins() -> None:
    async def story(world: _World) -> None:
        before = _cluster_id(world.controller.file_system)
        world.controller.kill()
        world.controller.empty_disk()
        await world.controller.start()
        assert _cluster_id(world.controller.file_system) != before
        await asyncio.sleep(SESSION_S)
        assert world.endings() == {ClusterIdMismatchError}
        for node in world.brokers:
            assert not node.is_running
            node.kill()
            with pytest.raises(ConfigError, match="this data is of another cluster"):
                await node.start()
            node.give_up()
            assert str(PARTITION) in _names(node)

    _tell(story)


def test_brokers_set_their_logs_aside_when_the_metadata_log_alone_is_lost() -> None:
    async def story(world: _World) -> None:
        world.controller.kill()
        for name in world.controller.file_system.list_directory(METADATA):
            world.controller.file_system.remove(METADATA / name)
        await world.controller.start()
        await asyncio.sleep(SESSION_S)
        assert world.endings() == {MetadataDivergedError, BrokerReplacedError}
        for node in world.brokers:
            assert not node.is_running
            node.kill()
            await node.start()
            assert [name for name in _names(node) if name.startswith("t-") and name.endswith("-stray")]

    _tell(story)


def test_a_copy_of_the_metadata_log_brings_the_cluster_back_but_for_what_came_later() -> None:
    async def story(world: _World) -> None:
        file_system, cluster_id = world.controller.file_system, _cluster_id(world.controller.file_system)
        paths = [METADATA / name for name in file_system.list_directory(METADATA) if name != RESERVE_FILE]
        copy = {path: bytes(read_file(file_system, path)) for path in paths}  # while it runs
        await world.topics.create("late", 1, {}, 3)
        for node in (*world.brokers, world.controller):
            node.kill()
        world.controller.empty_disk()
        clock, node_id = world.controller.clock, world.cluster.controller_id
        format_directory(
            file_system, clock, world.controller.chance(), LOG_DIRECTORY, node_id=node_id, cluster_id=cluster_id
        )
        file_system.make_directories(METADATA)
        for path, content in copy.items():
            write_file_atomically(file_system, path, content)
        await world.controller.start()
        for node in world.brokers:
            await node.start()
        await world.becomes(lambda: len(world.isr()) == 3)
        await world.produce(1)
        await world.becomes(lambda: world.ends() == [6, 6, 6])
        for node in world.brokers:
            assert [name for name in _names(node) if name.startswith("late-0.") and name.endswith("-stray")]

    _tell(story)
