"""AlterPartition and elections.  The numbers are behaviours of a KRaft controller."""

from typing import Any
from uuid import UUID

import pytest

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.controller.api_error import NO_ERROR
from broker.controller.brokers_to_isrs import PartitionKey
from broker.controller.replication_control_manager import AlterPartitionEntry, BrokerState, ElectionType
from broker.metadata.directory_id import LOST, UNASSIGNED
from tests.unit.controller.controller_support import ControlWorld, directory_of

PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


@pytest.fixture
def world() -> ControlWorld:
    world = ControlWorld()
    world.start_brokers(1, 2, 3)
    world.create_topic("t", (1, 2, 3))
    return world


def test_30_shrink_and_expand_move_the_partition_epoch_only(world: ControlWorld) -> None:
    shrunk = world.alter_isr("t", 1, 2)
    assert shrunk.partition_state is not None
    assert (shrunk.error, shrunk.partition_state.isr) == (ErrorCode.none, (1, 2))
    assert (shrunk.partition_state.leader_epoch, shrunk.partition_state.partition_epoch) == (0, 1)
    assert world.alter_isr("t", 1, 2, 3).error is ErrorCode.none
    assert (world.partition("t").leader_epoch, world.partition("t").partition_epoch) == (0, 2)


def test_30_the_same_isr_is_none_without_a_record(world: ControlWorld) -> None:
    same = world.alter_isr("t", 1, 2, 3)
    assert same.partition_state is not None
    assert (same.error, same.partition_state.partition_epoch, world.records) == (ErrorCode.none, 0, [])


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"partition_epoch": 0}, ErrorCode.invalid_update_version),
        ({"leader_epoch": 0}, ErrorCode.fenced_leader_epoch),
        ({"leader_epoch": 2}, ErrorCode.not_controller),
        ({"partition_epoch": 9}, ErrorCode.not_controller),
        ({"broker_id": 1}, ErrorCode.invalid_request),
        ({"leader_recovery_state": 1}, ErrorCode.invalid_request),
        ({"leader_recovery_state": 7}, ErrorCode.invalid_request),
    ],
)
def test_31_stale_and_future_epochs(world: ControlWorld, fields: dict[str, Any], error: ErrorCode) -> None:
    world.fence(1)  # leader epoch 1, partition epoch 1, leader 2
    assert (world.partition("t").leader, world.partition("t").leader_epoch) == (2, 1)
    assert world.alter_isr("t", 2, **fields).error is error
    assert world.records == []


@pytest.mark.parametrize("isr", [(2, 3), (1, 1), (1, 4), ()])
def test_an_isr_that_cannot_be(world: ControlWorld, isr: tuple[int, ...]) -> None:
    world.start_brokers(4)
    assert world.alter_isr("t", *isr).error is ErrorCode.invalid_request


def test_33_ineligible_members(world: ControlWorld) -> None:
    world.alter_isr("t", 1)
    world.fence(2)
    assert world.alter_isr("t", 1, 2).error is ErrorCode.ineligible_replica
    stale = (BrokerState(1), BrokerState(3, world.broker(3).epoch - 1))
    assert world.alter_isr("t", new_isr=stale).error is ErrorCode.ineligible_replica
    right = (BrokerState(1, world.broker(1).epoch), BrokerState(3, world.broker(3).epoch))
    assert world.alter_isr("t", new_isr=right).error is ErrorCode.none


def test_33_a_broker_that_shuts_down_is_not_eligible(world: ControlWorld) -> None:
    world.create_topic("led-by-3", (3, 1))
    world.alter_isr("t", 1, 2)
    world.heartbeat(3, want_shut_down=True)
    assert world.alter_isr("t", 1, 2, 3).error is ErrorCode.ineligible_replica


def test_34_a_repeated_request_is_idempotent(world: ControlWorld) -> None:
    epoch = world.partition("t").partition_epoch
    assert world.alter_isr("t", 1, 2, partition_epoch=epoch).error is ErrorCode.none
    assert world.alter_isr("t", 1, 2, partition_epoch=epoch).error is ErrorCode.invalid_update_version
    assert world.leadership("t") == (1, (1, 2))


def test_unknown_topics_and_partitions(world: ControlWorld) -> None:
    entry = AlterPartitionEntry(partition=9, leader_epoch=0, partition_epoch=0, new_isr=(BrokerState(1),))
    topic_id = world.image.topics.by_name["t"].id
    results = world.apply(world.replication.alter_partition(1, {UUID(int=5): [entry], topic_id: [entry]}))
    assert [each.error for each in results[UUID(int=5)]] == [ErrorCode.unknown_topic_id]
    assert [each.error for each in results[topic_id]] == [ErrorCode.unknown_topic_or_partition]


def test_35_recovering_then_recovered(world: ControlWorld) -> None:
    world.create_topic("u", (1, 2), unclean__leader__election__enable="true")
    world.alter_isr("u", 1)
    world.fence(1)
    assert (world.leadership("u"), world.partition("u").leader_recovery_state) == ((2, (2,)), 1)
    world.heartbeat(1)
    assert world.alter_isr("u", 2, 1, leader_recovery_state=1).error is ErrorCode.invalid_request
    assert world.alter_isr("u", 2, leader_recovery_state=0).error is ErrorCode.none
    assert world.partition("u").leader_recovery_state == 0
    assert world.alter_isr("u", 2, 1).error is ErrorCode.none


def elect(world: ControlWorld, kind: ElectionType, *partitions: tuple[str, int]) -> dict[TopicPartition, Any]:
    wanted = [TopicPartition(*each) for each in partitions] if partitions else None
    return world.apply(world.replication.elect_leaders(kind, wanted))


def test_preferred_elections(world: ControlWorld) -> None:
    assert elect(world, PREFERRED, ("t", 0))[TopicPartition("t", 0)].code is ErrorCode.election_not_needed
    world.fence(1)
    not_available = elect(world, PREFERRED, ("t", 0))[TopicPartition("t", 0)]
    assert not_available.code is ErrorCode.preferred_leader_not_available
    world.heartbeat(1)
    world.alter_isr("t", 2, 3, 1)
    assert elect(world, PREFERRED, ("t", 0)) == {TopicPartition("t", 0): NO_ERROR}
    assert world.leadership("t") == (1, (2, 3, 1))
    unknown = elect(world, PREFERRED, ("t", 9), ("x", 0))
    assert [error.code for error in unknown.values()] == [ErrorCode.unknown_topic_or_partition] * 2


def test_unclean_elections(world: ControlWorld) -> None:
    assert elect(world, UNCLEAN, ("t", 0))[TopicPartition("t", 0)].code is ErrorCode.election_not_needed
    world.create_topic("u", (1, 2))
    world.alter_isr("u", 1)
    world.fence(1)
    assert elect(world, UNCLEAN) == {TopicPartition("u", 0): NO_ERROR}
    assert (world.leadership("u"), world.partition("u").leader_recovery_state) == ((2, (2,)), 1)
    for broker_id in (3, 2):
        world.fence(broker_id)
    assert elect(world, UNCLEAN, ("u", 0))[TopicPartition("u", 0)].code is ErrorCode.eligible_leaders_not_available


def test_without_a_list_only_those_acted_on_are_answered(world: ControlWorld) -> None:
    world.create_topic("u", (2, 1))
    world.fence(2)
    world.heartbeat(2)
    world.alter_isr("u", 1, 2)
    assert elect(world, PREFERRED) == {TopicPartition("u", 0): NO_ERROR}


def test_balance_and_its_count(world: ControlWorld) -> None:
    world.create_topic("u", (2, 1), (2, 1))
    world.fence(2)
    world.heartbeat(2)
    for index in (0, 1):
        world.alter_isr("u", 1, 2, index=index)
    assert world.replication.preferred_imbalance_count() == 2
    assert world.apply(world.replication.balance_partition_leaders()) is False
    assert [world.leadership("u", index)[0] for index in (0, 1)] == [2, 2]
    assert world.replication.preferred_imbalance_count() == 0


def test_directories_are_assigned(world: ControlWorld) -> None:
    world.register(4, directories=(UUID(int=0x700), UUID(int=0x701)))
    world.heartbeat(4)
    topic_id = world.create_topic("d", (4, 1))
    assert world.partition("d").directories == (UNASSIGNED, directory_of(1))
    assignments = {UUID(int=0x701): {topic_id: [0, 5], UUID(int=9): [0]}}
    results = world.apply(world.replication.assign_replicas_to_directories(4, assignments))
    assert results == {
        PartitionKey(topic_id, 0): ErrorCode.none,
        PartitionKey(topic_id, 5): ErrorCode.unknown_topic_or_partition,
        PartitionKey(UUID(int=9), 0): ErrorCode.unknown_topic_id,
    }
    assert world.partition("d").directories == (UUID(int=0x701), directory_of(1))
    assert world.partition("d").leader_epoch == 0
    other = world.apply(world.replication.assign_replicas_to_directories(2, {directory_of(2): {topic_id: [0]}}))
    assert list(other.values()) == [ErrorCode.not_leader_or_follower]


def test_a_replica_in_a_directory_that_works_leads_at_once(world: ControlWorld) -> None:
    first, second = UUID(int=0x700), UUID(int=0x701)
    world.register(4, directories=(first, second))
    world.heartbeat(4)
    topic_id = world.create_topic("d", (4,))
    world.apply(world.replication.assign_replicas_to_directories(4, {first: {topic_id: [0]}}))
    world.heartbeat(4, offline_directories=(first,))
    assert world.leadership("d") == (-1, (4,))
    world.apply(world.replication.assign_replicas_to_directories(4, {second: {topic_id: [0]}}))
    assert (world.leadership("d"), world.partition("d").leader_epoch) == ((4, (4,)), 2)


def test_a_replica_in_a_directory_that_failed_leads_no_more(world: ControlWorld) -> None:
    topic_id = world.image.topics.by_name["t"].id
    world.apply(world.replication.assign_replicas_to_directories(1, {LOST: {topic_id: [0]}}))
    assert world.leadership("t") == (2, (2, 3))
    assert world.partition("t").directories == (LOST, directory_of(2), directory_of(3))
