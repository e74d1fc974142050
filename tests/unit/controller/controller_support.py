"""What the controller's tests share: its managers over one state, and whole controllers on a simulated disk."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from broker.common.chance import Chance
from broker.common.clock import Clock
from broker.common.disk import InlineDiskExecutor
from broker.common.file_system import FileSystem
from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.controller.cluster_control_manager import (
    BrokerHeartbeat,
    BrokerHeartbeatReply,
    BrokerRegistrationRequest,
    ClusterControlManager,
)
from broker.controller.configuration_control_manager import ConfigurationControlManager
from broker.controller.controller import Controller
from broker.controller.controller_result import ControllerResult
from broker.controller.controller_state import ControllerState
from broker.controller.feature_control_manager import FeatureControlManager
from broker.controller.partition_updates import PartitionUpdates
from broker.controller.producer_id_control_manager import ProducerIdControlManager
from broker.controller.reassignment_control_manager import ReassignmentControlManager
from broker.controller.replication_control_manager import (
    AlterPartitionEntry,
    AlterPartitionResult,
    BrokerState,
    ReplicationControlManager,
)
from broker.controller.topic_control_manager import CreatableTopic, TopicControlManager
from broker.metadata.broker_registration import BrokerRegistration, Endpoint, VersionRange
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.partition_registration import PartitionRegistration
from broker.metrics.controller_metrics import ControllerMetrics
from broker.metrics.registry import MetricsRegistry
from broker.schemas.cluster_metadata import FeatureLevelRecord

T = TypeVar("T")

CLUSTER_ID = "Nk018hRAQFytWskYqtQduw"
DIRECTORY = Path("/data")
SESSION_S = 9.0
FEATURES = {
    "metadata.version": VersionRange(7, 29),
    "kraft.version": VersionRange(0, 1),
    "eligible.leader.replicas.version": VersionRange(0, 1),
}


class FixedClock:
    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now


def broker_config(**properties: str) -> BrokerConfig:
    """The default single node with some properties (`a__b` for `a.b`) in place."""
    given = {name.replace("__", "."): value for name, value in properties.items()}
    return BrokerConfig({**DEFAULT_SINGLE_NODE, **given})


def directory_of(broker_id: int) -> UUID:
    return UUID(int=0x1000 + broker_id)


def registration_request(broker_id: int, incarnation: int = 1, **fields: Any) -> BrokerRegistrationRequest:
    values: dict[str, Any] = {
        "cluster_id": CLUSTER_ID,
        "listeners": {"PLAINTEXT": Endpoint(f"host-{broker_id}", 9092)},
        "features": FEATURES,
        "directories": (directory_of(broker_id),),
    }
    incarnation_id = UUID(int=broker_id * 1000 + incarnation)
    return BrokerRegistrationRequest(broker_id=broker_id, incarnation_id=incarnation_id, **{**values, **fields})


class ControlWorld:
    """The managers of a controller without its log: what a command decides is applied at once."""

    def __init__(self, *, elr: bool = False, metadata_version: int = 29, **properties: str) -> None:
        self.config = broker_config(**properties)
        self.state = ControllerState()
        self.now = 100.0
        self.next_offset = 0
        self.configuration = ConfigurationControlManager(self.config, self.state)
        self.updates = PartitionUpdates(self.state, self.configuration)
        self.replication = ReplicationControlManager(self.state, self.configuration, self.updates)
        self.topics = TopicControlManager(self.config, Chance(7), self.state, self.configuration, self.updates)
        self.reassignments = ReassignmentControlManager(self.state, self.configuration, self.updates)
        self.features = FeatureControlManager(self.state)
        self.producer_ids = ProducerIdControlManager(self.state)
        self.cluster = ClusterControlManager(CLUSTER_ID, int(SESSION_S * 1000), self.state, self.replication)
        self.records: list[Any] = []  # of the last command
        levels = [FeatureLevelRecord(name="metadata.version", feature_level=metadata_version)]
        if elr:
            levels.append(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
        self.apply(ControllerResult(levels, None))

    @property
    def image(self) -> MetadataImage:
        return self.state.image

    def apply(self, result: ControllerResult[T]) -> T:
        self.records = list(result.records)
        if self.records:
            self.state.replay(self.records, self.next_offset, 1)
            self.next_offset += len(self.records)
        return result.response

    def register(self, broker_id: int, incarnation: int = 1, **fields: Any) -> int:
        request = registration_request(broker_id, incarnation, **fields)
        return self.apply(self.cluster.register_broker(request, self.next_offset, self.now))

    def heartbeat(self, broker_id: int, **fields: Any) -> BrokerHeartbeatReply:
        values: dict[str, Any] = {
            "broker_epoch": self.broker(broker_id).epoch,
            "current_metadata_offset": self.next_offset - 1,
            "want_fence": False,
            "want_shut_down": False,
        }
        request = BrokerHeartbeat(broker_id=broker_id, **{**values, **fields})
        result = self.cluster.process_heartbeat(request, self.now)
        reply = self.apply(result)
        if reply.begins_controlled_shutdown:
            self.cluster.heartbeats.begin_controlled_shutdown(broker_id, self.next_offset - 1)
        return reply

    def start_brokers(self, *broker_ids: int) -> None:
        """Registered and unfenced."""
        for broker_id in broker_ids:
            self.register(broker_id)
            assert not self.heartbeat(broker_id).is_fenced

    def fence(self, broker_id: int) -> None:
        self.heartbeat(broker_id, want_fence=True)

    def create_topic(self, name: str, *replicas: Sequence[int], **configs: str) -> UUID:
        """A topic with a partition for each sequence of replicas."""
        topic = CreatableTopic(
            name=name,
            assignments=tuple((index, tuple(each)) for index, each in enumerate(replicas)),
            configs={key.replace("__", "."): value for key, value in configs.items()},
        )
        (result,) = self.apply(self.topics.create_topics([topic]))
        assert not result.error.is_failure, result.error
        assert result.topic_id is not None
        return result.topic_id

    def broker(self, broker_id: int) -> BrokerRegistration:
        return self.image.brokers[broker_id]

    def partition(self, name: str, index: int = 0) -> PartitionRegistration:
        return self.image.topics.by_name[name].partitions[index]

    def leadership(self, name: str, index: int = 0) -> tuple[int, tuple[int, ...]]:
        """Leader and ISR."""
        partition = self.partition(name, index)
        return partition.leader, partition.isr

    def alter_isr(self, name: str, *isr: int, index: int = 0, **fields: Any) -> AlterPartitionResult:
        """The leader's proposal, right in everything that `fields` does not change."""
        topic = self.image.topics.by_name[name]
        partition = topic.partitions[index]
        values: dict[str, Any] = {
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "new_isr": tuple(BrokerState(broker_id) for broker_id in isr),
        }
        broker_id = fields.pop("broker_id", partition.leader)
        entry = AlterPartitionEntry(partition=index, **{**values, **fields})
        results = self.apply(self.replication.alter_partition(broker_id, {topic.id: [entry]}))
        return results[topic.id][0]


def build_controller(
    file_system: FileSystem,
    *,
    clock: Clock | None = None,
    directory: Path = DIRECTORY,
    disk: Any = None,
    seed: int = 1,
    **properties: str,
) -> Controller:
    file_system.make_directories(directory)
    return Controller(
        broker_config(**properties),
        directory,
        CLUSTER_ID,
        clock or FixedClock(),
        Chance(seed),
        file_system,
        disk or InlineDiskExecutor(),
        ControllerMetrics(MetricsRegistry()),
    )


@asynccontextmanager
async def running_controller(file_system: FileSystem, **options: Any) -> AsyncIterator[Controller]:
    controller = build_controller(file_system, **options)
    await controller.start()
    async with controller.running():
        yield controller


async def start_broker(controller: Controller, broker_id: int = 1, incarnation: int = 1, **fields: Any) -> int:
    """Registered and unfenced; answers the broker epoch."""
    epoch = await controller.register_broker(registration_request(broker_id, incarnation, **fields))
    reply = await beat(controller, broker_id, epoch)
    assert not reply.is_fenced
    return epoch


async def beat(controller: Controller, broker_id: int, epoch: int, **fields: Any) -> BrokerHeartbeatReply:
    values: dict[str, Any] = {
        "current_metadata_offset": controller.high_watermark - 1,
        "want_fence": False,
        "want_shut_down": False,
    }
    return await controller.process_heartbeat(
        BrokerHeartbeat(broker_id=broker_id, broker_epoch=epoch, **{**values, **fields})
    )
