"""SimCluster: brokers and a controller, each the product's own Node on a machine of its own, in one process.

The controller runs in broker 1 or on a machine of its own.  Every machine has a disk, a clock and a place in the
network that stay when its process does not.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from broker.common.identifiers import TopicIdPartition, TopicPartition
from broker.log.unified_log import UnifiedLog
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.partition_registration import PartitionRegistration
from broker.node import NodeError
from broker.replication.partition import Partition
from tests.support.sim_cluster_client import Address
from tests.support.sim_network import SimNetwork
from tests.support.sim_node import BROKER_PORT, Crashed, NodeLoop, SimNode

CONTROLLER_PORT: Final = 9093
DEDICATED_CONTROLLER: Final = 100
SESSION_MS: Final = 3_000
LAG_TIME_MAX_MS: Final = 4_000
START_AGAIN_S: Final = 0.5  # after a start that failed, as a supervisor does

PROPERTIES: Final = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "broker.heartbeat.interval.ms": "600",
    "replica.lag.time.max.ms": str(LAG_TIME_MAX_MS),
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "replica.high.watermark.checkpoint.interval.ms": "700",
    "log.flush.offset.checkpoint.interval.ms": "900",
    "log.segment.delete.delay.ms": "100",
    "metadata.log.max.record.bytes.between.snapshots": "8000",
    "leader.imbalance.check.interval.seconds": "2",
    "request.timeout.ms": "3000",
    "controlled.shutdown.enable": "true",
}


class SimCluster:
    """`start`, then crash, kill, stop and start nodes at will; `running_partitions` is what they think they host."""

    def __init__(
        self,
        loop: NodeLoop,
        *,
        brokers: int = 3,
        dedicated_controller: bool = False,
        properties: Mapping[str, str] | None = None,
        properties_of: Callable[[int], Mapping[str, str]] = lambda node_id: {},
    ) -> None:
        self.loop = loop
        self.network = SimNetwork(loop, loop.trace)
        self.seen: Counter[str] = Counter()
        self.controller_id = DEDICATED_CONTROLLER if dedicated_controller else 1
        self.broker_ids = tuple(range(1, brokers + 1))
        self.nodes: dict[int, SimNode] = {}
        for node_id in (*self.broker_ids, self.controller_id):
            if node_id not in self.nodes:
                settings = {**PROPERTIES, **(properties or {}), **self._roles(node_id), **properties_of(node_id)}
                self.nodes[node_id] = SimNode(loop, self.network, host_name(node_id), settings)
        self.bootstrap = [Address(host_name(node_id), BROKER_PORT) for node_id in self.broker_ids]

    def _roles(self, node_id: int) -> dict[str, str]:
        name, voter = host_name(node_id), f"{self.controller_id}@{host_name(self.controller_id)}:{CONTROLLER_PORT}"
        roles, listeners = [], []
        if node_id in self.broker_ids:
            roles.append("broker")
            listeners.append(f"PLAINTEXT://{name}:{BROKER_PORT}")
        if node_id == self.controller_id:
            roles.append("controller")
            listeners.append(f"CONTROLLER://{name}:{CONTROLLER_PORT}")
        return {
            "process.roles": ",".join(roles),
            "node.id": str(node_id),
            "listeners": ",".join(listeners),
            "controller.quorum.voters": voter,
        }

    # Life of nodes

    async def start(self) -> None:
        """All nodes at once, as after a blackout."""
        async with asyncio.TaskGroup() as starting:
            for node_id in self.nodes:
                starting.create_task(self.start_node(node_id), name=f"start-{node_id}")

    async def start_node(self, node_id: int) -> None:
        """Until it serves: a start that fails is repeated.  Crashed when its power is cut meanwhile."""
        node = self.nodes[node_id]
        while True:
            try:
                await node.start()
                return
            except NodeError as error:
                self.seen["start failed"] += 1
                self.loop.trace(f"{self.loop.time():.9f} node {node_id} could not start: {error}")
                node.give_up()
                await asyncio.sleep(START_AGAIN_S)

    async def keep_starting(self, node_id: int) -> None:
        """`start_node`, whatever happens on the way."""
        while not self.nodes[node_id].is_on:
            try:
                await self.start_node(node_id)
            except Crashed:
                self.seen["cut while starting"] += 1

    def switch_off(self) -> None:
        for node in self.nodes.values():
            if node.is_on:
                node.crash()

    # What an observer sees

    def living(self) -> Iterator[tuple[int, SimNode]]:
        """Brokers whose process runs, whatever the cluster thinks of them."""
        for node_id in self.broker_ids:
            node = self.nodes[node_id]
            if node.is_on and node.node is not None and node.node.broker is not None:
                yield node_id, node

    def partitions_of(self, node: SimNode) -> Iterator[Partition]:
        assert node.node is not None and node.node.broker is not None
        return node.node.broker.replicas.partitions()

    def hosted(self, node_id: int, partition: TopicPartition) -> Partition | None:
        node = self.nodes[node_id].node
        return None if node is None or node.broker is None else node.broker.replicas.hosted_partition(partition)

    def log_of(self, node_id: int, partition: TopicPartition) -> UnifiedLog | None:
        hosted = self.hosted(node_id, partition)
        return None if hosted is None else hosted.local_log

    def is_registered(self, node_id: int) -> bool:
        """Whether the controller knows this very process: then its ISR is about what the process has."""
        node = self.nodes[node_id].node
        registration = self.image.brokers.get(node_id) if self.image is not None else None
        if node is None or node.broker is None or registration is None:
            return False
        return registration.epoch == node.broker.lifecycle.broker_epoch

    def end_offset(self, partition: TopicPartition) -> int:
        """The longest log of those that run; -1 without any."""
        logs = [self.log_of(node_id, partition) for node_id, _ in self.living()]
        return max((int(log.log_end_offset) for log in logs if log is not None), default=-1)

    @property
    def image(self) -> MetadataImage | None:
        """The truth: what the controller has written; None while it does not lead."""
        node = self.nodes[self.controller_id].node
        controller = None if node is None or node.controller is None else node.controller.controller
        return controller.image if controller is not None and controller.is_active else None

    def registration(self, partition: TopicPartition | TopicIdPartition) -> PartitionRegistration | None:
        """What the controller says; None too for a topic of that name with another id."""
        image = self.image
        if image is None:
            return None
        if isinstance(partition, TopicPartition):
            return image.topics.partition(partition)
        topic = image.topics.by_id.get(partition.topic_id)
        return None if topic is None else topic.partitions.get(partition.partition)

    def leader_of(self, partition: TopicPartition) -> int | None:
        registration = self.registration(partition)
        return None if registration is None or registration.leader < 0 else int(registration.leader)


def host_name(node_id: int) -> str:
    return "controller" if node_id == DEDICATED_CONTROLLER else f"node-{node_id}"
