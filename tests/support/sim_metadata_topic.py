"""Members: brokers of a simulated cluster that share `__remote_wal_log_metadata`, each by the product's own class."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from broker.common.identifiers import REMOTE_WAL_LOG_METADATA_TOPIC, TopicPartition
from broker.common.metadata_topic import MetadataRecord
from broker.config.config_holder import ConfigHolder
from broker.server.leader_connector import LeaderConnector
from broker.server.metadata_topic.metadata_topic_client import MetadataTopicClient
from broker.server.outside import Outside
from broker.server.wal.wal_metadata_topic import wal_metadata_topic
from tests.support.builders import broker_config
from tests.support.sim_cluster import SimCluster
from tests.support.sim_disk import SimFileSystem
from tests.support.sim_loop import SimClock
from tests.support.sim_node import SimDiskExecutor

PREFIX = "rwlmm.config.remote.wal.log.metadata"
PARTITIONS = 3
PROPERTIES = {
    "remote.wal.storage.system.enable": "true",
    "remote.wal.storage.manager.class.name": "LocalWalStorageManager",
    "rwsm.config.bucket": "file:///bucket",
    "broker.rack": "zone",
    f"{PREFIX}.topic.num.partitions": str(PARTITIONS),
}
DIRECTORY = Path("/member")


class SimMember:
    """What one broker's metadata topic is told, with the disk that outlives its runs.

    It lives beside the broker, in a process that does not die with it.
    """

    def __init__(
        self, cluster: SimCluster, broker_id: int, properties: Mapping[str, str] | None = None, read_again: float = 60.0
    ) -> None:
        self.broker_id = broker_id
        self.clock = SimClock(cluster.loop)
        self.file_system = SimFileSystem(self.clock.now_ms)
        self.file_system.make_directories(DIRECTORY)
        self.told: list[tuple[int, MetadataRecord]] = []
        self._cluster = cluster
        self._properties = {**PROPERTIES, **(properties or {}), "node.id": str(broker_id)}
        self._read_again = read_again

    def values(self, partition: int) -> list[bytes]:
        return [record.value for number, record in self.told if number == partition]

    def _on_metadata(self, partition: int, records: Sequence[MetadataRecord]) -> None:
        self.told += [(partition, record) for record in records]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[MetadataTopicClient]:
        """With the metadata of the broker as it is now."""
        node = self._cluster.nodes[self.broker_id]
        assert node.node is not None and node.node.broker is not None
        broker = node.node.broker
        config = ConfigHolder(
            broker_config(
                {
                    "controller.quorum.voters": f"{self.broker_id}@127.0.0.1:9190",
                    "request.timeout.ms": "3000",
                    "log.dirs": str(DIRECTORY),
                    **self._properties,
                }
            )
        )
        host = self._cluster.network.host(f"member-{self.broker_id}")
        connector = LeaderConnector(self.broker_id, config, broker.cache, lambda: -1, host)
        topic = wal_metadata_topic(
            self.broker_id,
            config,
            broker.cache,
            broker.forwarding,
            connector.address_of,
            self._on_metadata,
            Outside(self.clock, node.chance(), self.file_system, SimDiskExecutor(self._cluster.loop), host),
            read_again_seconds=self._read_again,
        )
        async with topic.running():
            yield topic


def metadata_partition(partition: int) -> TopicPartition:
    return TopicPartition(REMOTE_WAL_LOG_METADATA_TOPIC, partition)
