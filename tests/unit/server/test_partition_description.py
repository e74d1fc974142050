from uuid import UUID

import pytest

from broker.common.errors import ErrorCode
from broker.metadata import directory_id
from broker.metadata.partition_registration import PartitionRegistration
from broker.server.partition_description import (
    BrokerNode,
    PartitionDescriber,
    PartitionDescription,
    broker_node,
    broker_nodes,
)
from tests.unit.server.link_support import DIRECTORIES, TOPIC_ID, broker_record, image_with, partition_record

BROKERS = (
    broker_record(3, rack="r"),
    broker_record(1),
    broker_record(2, fenced=True),
    broker_record(4, listeners=("INSIDE",)),
)


def partition(replicas: tuple[int, ...], **fields: object) -> PartitionRegistration:
    return PartitionRegistration.from_record(partition_record(TOPIC_ID, 0, replicas, **fields))


def describe(registration: PartitionRegistration) -> PartitionDescription:
    return PartitionDescriber(image_with(*BROKERS), "PLAINTEXT").describe(6, registration)


def test_nodes_of_a_listener_are_unfenced_and_sorted() -> None:
    image = image_with(*BROKERS)
    assert broker_nodes(image, "PLAINTEXT") == [
        BrokerNode(1, "host-1", 9001, None, False),
        BrokerNode(3, "host-3", 9003, "r", False),
    ]
    assert [node.node_id for node in broker_nodes(image, "PLAINTEXT", include_fenced=True)] == [1, 2, 3]
    assert [node.node_id for node in broker_nodes(image, "INSIDE")] == [4]
    assert broker_node(image, 9, "PLAINTEXT") is None


@pytest.mark.parametrize(
    ("leader", "error", "leader_id"),
    [
        (1, ErrorCode.none, 1),
        (2, ErrorCode.none, 2),  # fenced, but the controller has not moved the leadership yet
        (-1, ErrorCode.leader_not_available, -1),
        (9, ErrorCode.leader_not_available, -1),
        (4, ErrorCode.listener_not_found, -1),
    ],
)
def test_the_leader_and_why_there_is_none(leader: int, error: ErrorCode, leader_id: int) -> None:
    described = describe(partition((1, 2), leader=leader, isr=(1,)))
    assert (described.error_code, described.leader_id, described.leader_epoch) == (error, leader_id, 3)
    assert (described.partition_index, described.replica_nodes, described.isr_nodes) == (6, (1, 2), (1,))


def test_offline_replicas_are_unknown_fenced_or_out_of_reach() -> None:
    assert describe(partition((1, 2, 3, 4, 9))).offline_replicas == (2, 4, 9)


@pytest.mark.parametrize(
    ("directory", "offline"),
    [
        (DIRECTORIES[1], ()),
        (directory_id.UNASSIGNED, ()),
        (directory_id.MIGRATING, ()),
        (directory_id.LOST, (1,)),
        (UUID(int=0xDEAD), (1,)),
    ],
)
def test_a_replica_in_a_lost_directory_is_offline(directory: UUID, offline: tuple[int, ...]) -> None:
    assert describe(partition((1,), directories=(directory,))).offline_replicas == offline


def test_what_repeats_is_remembered_by_all_it_depends_on() -> None:
    describer = PartitionDescriber(image_with(*BROKERS), "PLAINTEXT")
    here, lost = (DIRECTORIES[1], DIRECTORIES[3]), (directory_id.LOST, DIRECTORIES[3])
    answers = [describer.describe(0, partition((1, 3), directories=each)) for each in (here, lost, here)]
    assert [answer.offline_replicas for answer in answers] == [(), (1,), ()]
    assert [describer.describe(0, partition((1, 3), leader=each)).leader_id for each in (1, 3, 9, 1)] == [1, 3, -1, 1]
