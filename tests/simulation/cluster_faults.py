"""What happens to the machines, disks, clocks and network of a simulated cluster, drawn from its seed."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from broker.metadata.metadata_image import MetadataImage
from tests.support.sim_client import Violation
from tests.support.sim_cluster import SESSION_MS, SimCluster, host_name
from tests.support.sim_node import LOG_DIRECTORY, Crashed

STOP_S: Final = 30.0  # no clean stop takes longer, whatever it cannot reach
CUT_S: Final = 2.5
OFF_S: Final = 2.0
DELAY_S: Final = 3.0
TROUBLE_S: Final = 1.5  # of a disk
WRONG_BY_MS_MAX: Final = 3_000_000  # less than message.timestamp.after.max.ms, beyond which brokers refuse records
SESSION_S: Final = SESSION_MS / 1000
POLL_S: Final = 0.05

# What does not take a broker from the ISRs it is in: goes on while another one lacks bytes.
HARMLESS: Final = frozenset({"slow_disk", "clock_jump", "cut_client"})


class ClusterFaults:
    """`strike` draws one fault, lets it last, and ends it.  Several may be under way; a node has one at a time."""

    def __init__(self, cluster: SimCluster, clients: Sequence[str], seen: Counter[str]) -> None:
        self.seen = seen
        self._cluster = cluster
        self._clients = clients
        self._chance = cluster.loop.random
        self._busy: dict[int, None] = {}
        self._image: MetadataImage | None = None  # the last one the controller was seen with
        self._wrong_by_ms: dict[int, int] = {}  # clocks
        self._lost_in: dict[int, int] = {}  # the broker epoch in which a broker has lost bytes
        for node_id, node in cluster.nodes.items():
            node.file_system.on_cut = lambda node_id=node_id: self.lose_power(node_id)

    async def strike(self) -> None:
        weights = self.kinds()
        (kind,) = self._chance.choices(list(weights), weights=list(weights.values()))
        if kind.__name__ not in HARMLESS:
            await self.all_have_their_bytes()
        self._trace(kind.__name__)
        await kind()

    async def all_have_their_bytes(self) -> None:
        while self._somebody_lacks_bytes():
            await asyncio.sleep(POLL_S)

    def kinds(self) -> dict[Callable[[], Coroutine[Any, Any, None]], int]:
        """What may happen, and how often beside the others."""
        return {
            self.power_cut: 3,
            self.power_cut_in_mid_sentence: 3,
            self.kill: 3,
            self.clean_restart: 2,
            self.controller_restart: 2,
            self.cut_pair: 4,
            self.cut_off: 3,
            self.cut_client: 1,
            self.delay_messages: 2,
            self.slow_disk: 1,
            self.full_disk: 1,
            self.failing_disk: 1,
            self.clock_jump: 1,
        }

    def end(self) -> None:
        """No fault any more, but for nodes that are off."""
        self._cluster.network.heal()
        for node in self._cluster.nodes.values():
            node.file_system.cut_after = None
            node.file_system.heal()
            node.disk.slowness = 1.0

    # Machines

    async def power_cut(self) -> None:
        node_id = self._draw_node()
        if node_id is not None:
            self.lose_power(node_id)
            await self._stay_off(node_id)

    async def power_cut_in_mid_sentence(self) -> None:
        """Before one of the next operations of the disk."""
        node_id = self._draw_node()
        if node_id is None:
            return
        node = self._cluster.nodes[node_id]
        before = self._chance.choice((None, None, ("write", ".log"), ("write", ".log"), ("sync", ".log")))
        node.crash_after(self._chance.randrange(6 if before else 30), before=before)
        for _ in range(200):
            if not node.is_on:
                self.seen["power cut in mid-sentence"] += 1
                break
            await asyncio.sleep(0.02)
        node.file_system.cut_after = None
        await self._stay_off(node_id)

    async def kill(self) -> None:
        node_id = self._draw_node()
        if node_id is not None:
            self.seen["kill -9"] += 1
            self._note_leadership(node_id)
            self._cluster.nodes[node_id].kill()
            await self._stay_off(node_id)

    async def clean_restart(self) -> None:
        node_id = self._draw_node()
        if node_id is not None:
            await self._stop(node_id)
            await self._stay_off(node_id)

    async def controller_restart(self) -> None:
        node_id = self._cluster.controller_id
        if node_id in self._busy:
            return
        self._busy[node_id] = None
        self.seen["controller restart"] += 1
        kind = self._chance.randrange(3)
        if kind == 0:
            self.lose_power(node_id)
        elif kind == 1:
            self._cluster.nodes[node_id].kill()
        else:
            await self._stop(node_id)
        await self._stay_off(node_id)

    def lose_power(self, node_id: int) -> None:
        """Cut the power, when the cluster promises to survive that; else end the process alone."""
        self._note_leadership(node_id)
        if self._may_lose_bytes(node_id):
            self.seen["power cut"] += 1
            if self._image is not None and node_id in self._image.brokers:
                self._lost_in[node_id] = self._image.brokers[node_id].epoch
            self._cluster.nodes[node_id].crash()
        else:
            self.seen["kill -9 for want of another whole replica"] += 1
            self._cluster.nodes[node_id].kill()

    def _may_lose_bytes(self, node_id: int) -> bool:
        """Whether every partition has all its bytes elsewhere, in its ISR, on a broker nobody can miss meanwhile."""
        image = self._newest_image()
        if image is None or self.is_disturbed() or self._somebody_lacks_bytes():
            return False
        if not all(self._cluster.nodes[other].is_running for other in self._cluster.broker_ids if other != node_id):
            return False
        for topic in image.topics.by_id.values():
            for partition in topic.partitions.values():
                if partition.isr == (node_id,):
                    return False
        return True

    def is_disturbed(self) -> bool:
        """Whether something is under way that may take a broker out of an ISR."""
        return self._cluster.network.is_disturbed

    def _somebody_lacks_bytes(self) -> bool:
        """Whether a broker has lost bytes and is still in the ISRs of its registration from before."""
        image = self._newest_image()
        if image is None:
            return False
        registered = {node_id: image.brokers.get(node_id) for node_id in self._lost_in}
        return any(each is not None and each.epoch == self._lost_in[node_id] for node_id, each in registered.items())

    def _newest_image(self) -> MetadataImage | None:
        self._image = self._cluster.image or self._image
        return self._image

    async def _stop(self, node_id: int) -> None:
        self.seen["clean stop"] += 1
        self._note_leadership(node_id)
        self._newest_image()
        try:
            async with asyncio.timeout(STOP_S):
                await self._cluster.nodes[node_id].stop()
        except Crashed:
            pass
        except TimeoutError:
            raise Violation(f"node {node_id} has not stopped within {STOP_S} s") from None

    async def _stay_off(self, node_id: int) -> None:
        """For a while that may be shorter or longer than a session; then start, and be free for the next fault."""
        node = self._cluster.nodes[node_id]
        if not node.is_on:
            await asyncio.sleep(self._chance.choice((0.01, self._chance.expovariate(1 / OFF_S), SESSION_S + 1)))
            if self._chance.random() < 0.1:
                node.crash_after(self._chance.randrange(40))
            await self._cluster.keep_starting(node_id)
            node.file_system.cut_after = None
        self._busy.pop(node_id, None)

    def _draw_node(self) -> int | None:
        """One that runs and has no trouble yet, as busy from now on."""
        free = [node_id for node_id, node in self._cluster.nodes.items() if node_id not in self._busy and node.is_on]
        if not free:
            return None
        node_id = self._chance.choice(free)
        self._busy[node_id] = None
        return node_id

    def _note_leadership(self, node_id: int) -> None:
        self._newest_image()
        node = self._cluster.nodes[node_id]
        hosted = self._cluster.partitions_of(node) if self._is_broker(node_id) else ()
        leads = [partition for partition in hosted if partition.is_leader]
        self.seen["a leader goes"] += bool(leads)
        self.seen["a coordinator goes"] += any(each.topic_partition.topic.startswith("__") for each in leads)

    def _is_broker(self, node_id: int) -> bool:
        return any(node_id == living for living, _ in self._cluster.living())

    # Network

    async def cut_pair(self) -> None:
        """Between two nodes, in one direction or both."""
        one, other = self._chance.sample(list(self._cluster.nodes), 2)
        await self._cut([(host_name(one), host_name(other))], "link cut")

    async def cut_off(self) -> None:
        """One node from all others."""
        node_id = self._chance.choice(list(self._cluster.nodes))
        others = [other for other in self._cluster.nodes if other != node_id]
        await self._cut([(host_name(node_id), host_name(other)) for other in others], "node cut off")

    async def cut_client(self) -> None:
        node_id = self._chance.choice(self._cluster.broker_ids)
        await self._cut([(self._chance.choice(self._clients), host_name(node_id))], "client cut off")

    async def _cut(self, pairs: Sequence[tuple[str, str]], name: str) -> None:
        network = self._cluster.network
        directions = self._chance.choice(("out", "in", "both", "both"))
        self.seen[f"{name}, {'both ways' if directions == 'both' else 'one way'}"] += 1
        for one, other in pairs:
            if directions != "in":
                network.cut(one, other)
            if directions != "out":
                network.cut(other, one)
        await asyncio.sleep(self._chance.expovariate(1 / CUT_S))
        for one, other in pairs:
            network.heal_between(one, other)

    async def delay_messages(self) -> None:
        one, other = (host_name(node_id) for node_id in self._chance.sample(list(self._cluster.nodes), 2))
        mean_s = self._chance.choice((0.02, 0.1, 0.4))
        self.seen["messages delayed"] += 1
        self._cluster.network.delay(one, other, mean_s)
        self._cluster.network.delay(other, one, mean_s)
        await asyncio.sleep(self._chance.expovariate(1 / DELAY_S))
        self._cluster.network.heal_between(one, other)

    # Disks and clocks

    async def slow_disk(self) -> None:
        node = self._cluster.nodes[self._chance.choice(list(self._cluster.nodes))]
        self.seen["slow disk"] += 1
        node.disk.slowness = self._chance.choice((30.0, 300.0))
        await asyncio.sleep(self._chance.expovariate(1 / TROUBLE_S))
        node.disk.slowness = 1.0

    async def full_disk(self) -> None:
        node_id = self._draw_node()
        if node_id is None:
            return
        disk = self._cluster.nodes[node_id].file_system
        self.seen["full disk"] += 1
        disk.budget_bytes = disk.used_bytes() + self._chance.randrange(1_000)
        await asyncio.sleep(self._chance.expovariate(1 / TROUBLE_S))
        disk.heal()
        await self._stay_off(node_id)

    async def failing_disk(self) -> None:
        """The disk of one broker refuses something in the directory of one log."""
        node_id = self._draw_node()
        if node_id is None:
            return
        disk = self._cluster.nodes[node_id].file_system
        self.seen["failing disk"] += 1
        directory = self._chance.choice(("t-0", "t-1", "__consumer_offsets-0"))
        operations = self._chance.choice((("write",), ("sync",), ("write", "sync", "truncate")))
        disk.fail(LOG_DIRECTORY / directory, *operations)
        await asyncio.sleep(self._chance.expovariate(1 / TROUBLE_S))
        disk.heal()
        await self._stay_off(node_id)

    async def clock_jump(self) -> None:
        node_id = self._chance.choice(list(self._cluster.nodes))
        self.seen["clock jump"] += 1
        wrong_by_ms = self._chance.randint(-WRONG_BY_MS_MAX, WRONG_BY_MS_MAX)
        self._cluster.nodes[node_id].clock.jump(wrong_by_ms - self._wrong_by_ms.get(node_id, 0))
        self._wrong_by_ms[node_id] = wrong_by_ms

    def _trace(self, what: str) -> None:
        self._cluster.loop.trace(f"{self._cluster.loop.time():.9f} {what}")
