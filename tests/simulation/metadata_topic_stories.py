"""Stories of a topic in which brokers keep their own records, in a simulated cluster with a controller of its own."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from tests.support.sim_cluster import SimCluster
from tests.support.sim_node import NodeLoop, simulate_nodes

Story: TypeAlias = Callable[[SimCluster], Coroutine[Any, Any, None]]


def tell(story: Story, seed: int) -> None:
    async def main(loop: NodeLoop) -> None:
        cluster = SimCluster(loop, dedicated_controller=True)
        await cluster.start()
        await story(cluster)
        cluster.switch_off()

    simulate_nodes(main, seed=seed)


async def until(condition: Callable[[], bool], seconds: float = 30) -> float:
    """How long it took, in virtual seconds."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not condition():
        await asyncio.sleep(0.002)
        assert loop.time() < began + seconds, "not within the time"
    return loop.time() - began
