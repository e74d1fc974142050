"""What clients are told about a partition: its leader, replicas and which of them are offline.

Metadata and DescribeTopicPartitions answer from the same facts (Kafka's KRaftMetadataCache).
"""

from dataclasses import dataclass, field
from uuid import UUID

from broker.common.errors import ErrorCode
from broker.common.identifiers import NO_BROKER, BrokerId
from broker.metadata import directory_id
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.partition_registration import PartitionRegistration


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A broker as clients of one listener reach it."""

    node_id: BrokerId
    host: str
    port: int
    rack: str | None
    is_fenced: bool


@dataclass(slots=True)
class PartitionDescription:
    """A partition for clients; fields are named as in the responses, so that Metadata's codec writes it as it is.

    `leader_id` is -1 with an error that says why; the epoch is the real one even then.  Nobody changes one: it is not
    frozen only because that costs most of its making, and an answer can hold ten thousand.
    """

    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    partition_index: int
    leader_id: BrokerId
    leader_epoch: int
    replica_nodes: tuple[BrokerId, ...]
    isr_nodes: tuple[BrokerId, ...]
    offline_replicas: tuple[BrokerId, ...]
    eligible_leader_replicas: tuple[BrokerId, ...]
    last_known_elr: tuple[BrokerId, ...]


def broker_nodes(image: MetadataImage, listener_name: str, *, include_fenced: bool = False) -> list[BrokerNode]:
    """The brokers that clients of a listener may talk to, by id: unfenced ones that have the listener."""
    nodes = []
    for broker_id in sorted(image.brokers):
        node = broker_node(image, broker_id, listener_name)
        if node is not None and (include_fenced or not node.is_fenced):
            nodes.append(node)
    return nodes


def broker_node(image: MetadataImage, broker_id: BrokerId, listener_name: str) -> BrokerNode | None:
    """One registered broker on a listener, fenced or not; None when it is unknown or lacks the listener."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return None
    endpoint = broker.listeners.get(listener_name)
    if endpoint is None:
        return None
    return BrokerNode(broker_id, endpoint.host, endpoint.port, broker.rack, broker.fenced)


class PartitionDescriber:
    """Describes partitions of one image to clients of one listener; made for one answer.

    What it says of a leader or a set of replicas is worked out once, for they repeat over the partitions.
    """

    def __init__(self, image: MetadataImage, listener_name: str) -> None:
        self._brokers = image.brokers
        self._listener_name = listener_name
        self._leaders: dict[BrokerId, tuple[ErrorCode, BrokerId]] = {}
        self._offline: dict[tuple[tuple[BrokerId, ...], tuple[UUID, ...]], tuple[BrokerId, ...]] = {}

    def describe(self, index: int, partition: PartitionRegistration) -> PartitionDescription:
        """LEADER_NOT_AVAILABLE without a registered leader, LISTENER_NOT_FOUND when it lacks the listener."""
        leader = self._leaders.get(partition.leader)
        if leader is None:
            leader = self._leaders[partition.leader] = self._leader(partition.leader)
        placement = (partition.replicas, partition.directories)
        offline = self._offline.get(placement)
        if offline is None:
            offline = self._offline[placement] = tuple(
                replica for replica in partition.replicas if self._is_offline(replica, partition.directory(replica))
            )
        return PartitionDescription(
            leader[0],
            index,
            leader[1],
            partition.leader_epoch,
            partition.replicas,
            partition.isr,
            offline,
            partition.eligible_leader_replicas,
            partition.last_known_elr,
        )

    def _leader(self, broker_id: BrokerId) -> tuple[ErrorCode, BrokerId]:
        broker = self._brokers.get(broker_id)
        if broker is None:
            return ErrorCode.leader_not_available, NO_BROKER
        if self._listener_name not in broker.listeners:
            return ErrorCode.listener_not_found, NO_BROKER
        return ErrorCode.none, broker_id

    def _is_offline(self, broker_id: BrokerId, directory: UUID) -> bool:
        """Its broker is unknown, fenced or not on this listener, or its log directory is gone."""
        broker = self._brokers.get(broker_id)
        return (
            broker is None
            or broker.fenced
            or self._listener_name not in broker.listeners
            or not directory_id.is_online(directory, broker.directories)
        )
