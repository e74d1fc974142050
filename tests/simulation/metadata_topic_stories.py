"""Stories of a topic in which brokers keep their own records, in a simulated cluster with a controller of its own."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from tests.support.sim_cluster import SimCluster, host_name
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


async def strike(cluster: SimCluster, fault: str, victim: int, user: str) -> None:
    """`cut`: from the other nodes and from the topic's users, who are hosts called `<user>-<broker id>`."""
    node = cluster.nodes[victim]
    match fault:
        case "kill":
            node.kill()
        case "crash":
            node.crash()
        case "stop":
            await node.stop()
        case "cut":
            others = [host_name(each) for each in (*cluster.broker_ids, cluster.controller_id) if each != victim]
            for host in [*others, *(f"{user}-{each}" for each in cluster.broker_ids)]:
                cluster.network.cut(host, host_name(victim))
                cluster.network.cut(host_name(victim), host)


async def heal(cluster: SimCluster, fault: str, victim: int) -> None:
    if fault == "cut":
        cluster.network.heal()
    else:
        await cluster.start_node(victim)
