"""What clients are told about a partition: its leader, replicas and which of them are offline.

Metadata and DescribeTopicPartitions answer from the same facts (Kafka's KRaftMetadataCache).
"""

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """`leader_id` is -1 with an error that says why; the epoch is the real one even then."""

    error: ErrorCode
    partition: int
    leader_id: BrokerId
    leader_epoch: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
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


def describe_partition(
    image: MetadataImage, listener_name: str, index: int, registration: PartitionRegistration
) -> PartitionDescription:
    """One partition as seen from a listener.

    The error is LEADER_NOT_AVAILABLE without a registered leader, LISTENER_NOT_FOUND when the leader lacks the
    listener.
    """
    error, leader_id = ErrorCode.none, registration.leader
    leader = image.brokers.get(registration.leader)
    if leader is None:
        error, leader_id = ErrorCode.leader_not_available, NO_BROKER
    elif listener_name not in leader.listeners:
        error, leader_id = ErrorCode.listener_not_found, NO_BROKER
    return PartitionDescription(
        error=error,
        partition=index,
        leader_id=leader_id,
        leader_epoch=registration.leader_epoch,
        replicas=tuple(registration.replicas),
        isr=tuple(registration.isr),
        offline_replicas=offline_replicas(image, listener_name, registration),
        eligible_leader_replicas=tuple(registration.eligible_leader_replicas),
        last_known_elr=tuple(registration.last_known_elr),
    )


def offline_replicas(
    image: MetadataImage, listener_name: str, registration: PartitionRegistration
) -> tuple[BrokerId, ...]:
    """Replicas whose broker is unknown, fenced or not on this listener, or whose log directory is gone."""
    offline = []
    for broker_id in registration.replicas:
        broker = image.brokers.get(broker_id)
        if (
            broker is None
            or broker.fenced
            or listener_name not in broker.listeners
            or not directory_id.is_online(registration.directory(broker_id), broker.directories)
        ):
            offline.append(broker_id)
    return tuple(offline)
