"""`__remote_wal_log_metadata` on a whole cluster in virtual time (KIP-1176)."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import structlog

from broker.server.wal_metadata_topic import WalMetadataTopic
from tests.support.sim_cluster import SimCluster
from tests.support.sim_metadata_topic import PARTITIONS, SimMember, metadata_partition
from tests.support.sim_node import NodeLoop, simulate_nodes

pytestmark = pytest.mark.simulation


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


def _tell(story: Callable[[SimCluster], Coroutine[Any, Any, None]], seed: int = 7) -> None:
    async def main(loop: NodeLoop) -> None:
        cluster = SimCluster(loop, dedicated_controller=True)
        await cluster.start()
        await story(cluster)
        cluster.switch_off()

    simulate_nodes(main, seed=seed)


async def _until(condition: Callable[[], bool], seconds: float = 30) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not condition():
        await asyncio.sleep(0.002)
        assert loop.time() < began + seconds, "not within the time"
    return loop.time() - began


async def _known(topic: WalMetadataTopic) -> None:
    await _until(lambda: topic.partition_count is not None)


def test_smoke() -> None:
    async def story(cluster: SimCluster) -> None:
        one, other = SimMember(cluster, 1), SimMember(cluster, 2)
        async with one.running() as writer, other.running() as reader:
            await _known(writer)
            await _known(reader)
            reader.assign(range(PARTITIONS))
            for number in range(30):
                await writer.append(number % 3, [f"{number}".encode()])
            await _until(lambda: len(other.told) == 30)
            print(cluster.loop.time(), other.told[:3], await reader.end_offset(0), reader.lag, reader.position(0))

    _tell(story)
