"""Keepers: brokers of a simulated cluster that share `__remote_log_metadata`, each by the product's own classes."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

from broker.common.identifiers import TopicIdPartition
from broker.config.config_holder import ConfigHolder
from broker.server.outside import Outside
from broker.server.tiering.remote_log_metadata import RemoteLogMetadata, remote_log_metadata
from tests.support.builders import broker_config
from tests.support.sim_cluster import SimCluster
from tests.support.sim_disk import SimFileSystem
from tests.support.sim_loop import SimClock
from tests.support.sim_node import SimDiskExecutor

PREFIX: Final = "rlmm.config.remote.log.metadata"
PARTITIONS: Final = 3
PROPERTIES: Final = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "LocalTieredStorage",
    "rsm.config.bucket": "file:///bucket",
    f"{PREFIX}.topic.num.partitions": str(PARTITIONS),
    "request.timeout.ms": "3000",
}
USER_TOPIC: Final = UUID(int=0xF00)
USER_PARTITIONS: Final = tuple(TopicIdPartition(USER_TOPIC, "foo", number) for number in range(12))


class SimKeeper:
    """It lives beside a broker, in a process that does not die with it; nothing of it outlives a run."""

    def __init__(self, cluster: SimCluster, broker_id: int, properties: Mapping[str, str] | None = None) -> None:
        self.broker_id = broker_id
        self.fatal: list[str] = []
        self._cluster = cluster
        self._properties = {**PROPERTIES, **(properties or {}), "node.id": str(broker_id)}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[RemoteLogMetadata]:
        """With the metadata of the broker as it is now."""
        node = self._cluster.nodes[self.broker_id]
        assert node.node is not None and node.node.broker is not None
        broker, clock = node.node.broker, SimClock(self._cluster.loop)
        properties = {"controller.quorum.voters": f"{self.broker_id}@127.0.0.1:9190", **self._properties}
        made = remote_log_metadata(
            self.broker_id,
            ConfigHolder(broker_config(properties)),
            broker.cache,
            broker.forwarding,
            Outside(
                clock,
                node.chance(),
                SimFileSystem(clock.now_ms),
                SimDiskExecutor(self._cluster.loop),
                self._cluster.network.host(f"keeper-{self.broker_id}"),
            ),
            lambda error: self.fatal.append(str(error)),
        )
        async with made.manager.running():
            yield made
