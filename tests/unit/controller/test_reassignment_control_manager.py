import pytest

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.controller.api_error import NO_ERROR, ApiError
from broker.controller.reassignment_control_manager import OngoingReassignment
from tests.unit.controller.controller_support import ControlWorld

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def world() -> ControlWorld:
    world = ControlWorld()
    world.start_brokers(1, 2, 3)
    world.create_topic("t", (1, 2))
    return world


def reassign(
    world: ControlWorld, target: tuple[int, ...] | None, partition: TopicPartition = PARTITION, *, change: bool = True
) -> ApiError:
    results = world.reassignments.alter_partition_reassignments(
        {partition: target}, allow_replication_factor_change=change
    )
    return world.apply(results)[partition]


def test_37_add_complete_and_leader_among_those_that_leave(world: ControlWorld) -> None:
    assert reassign(world, (3, 2)) == NO_ERROR
    partition = world.partition("t")
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == ((3, 2, 1), (3,), (1,))
    assert world.reassignments.list_partition_reassignments(None) == {
        PARTITION: OngoingReassignment((3, 2, 1), (3,), (1,))
    }
    # The leader reports the new replica in sync: the move completes, and takes its leadership away.
    assert world.alter_isr("t", 1, 2, 3).error is ErrorCode.new_leader_elected
    partition = world.partition("t")
    assert (partition.replicas, partition.isr, partition.leader) == ((3, 2), (2, 3), 3)
    assert world.reassignments.list_partition_reassignments(None) == {}


def test_37_cancel_goes_back(world: ControlWorld) -> None:
    reassign(world, (3, 2))
    assert reassign(world, None) == NO_ERROR
    partition = world.partition("t")
    assert (sorted(partition.replicas), partition.isr, partition.leader) == ([1, 2], (1, 2), 1)
    assert not partition.is_reassigning
    assert reassign(world, None).code is ErrorCode.no_reassignment_in_progress


def test_a_new_target_replaces_the_older_one(world: ControlWorld) -> None:
    reassign(world, (3, 2))
    assert reassign(world, (1, 3)) == NO_ERROR
    partition = world.partition("t")
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == ((1, 3, 2), (3,), (2,))


def test_reordering_is_done_at_once(world: ControlWorld) -> None:
    assert reassign(world, (2, 1)) == NO_ERROR
    assert (world.partition("t").replicas, world.partition("t").is_reassigning) == ((2, 1), False)


@pytest.mark.parametrize("target", [(), (1, 1), (1, 9)])
def test_targets_that_cannot_be(world: ControlWorld, target: tuple[int, ...]) -> None:
    assert reassign(world, target).code is ErrorCode.invalid_replica_assignment
    assert world.records == []


def test_unknown_partitions_and_forbidden_factor_changes(world: ControlWorld) -> None:
    assert reassign(world, (1,), TopicPartition("u", 0)).code is ErrorCode.unknown_topic_or_partition
    assert reassign(world, (1,), TopicPartition("t", 7)).code is ErrorCode.unknown_topic_or_partition
    assert reassign(world, (1, 2, 3), change=False).code is ErrorCode.invalid_replication_factor
    assert reassign(world, (3, 2), change=False) == NO_ERROR


def test_listing_names_only_what_was_asked_for(world: ControlWorld) -> None:
    reassign(world, (3, 2))
    assert world.reassignments.list_partition_reassignments({"t": [1]}) == {}
    assert list(world.reassignments.list_partition_reassignments({"t": [0], "u": [0]})) == [PARTITION]


def test_a_cancel_that_would_lose_records_is_refused(world: ControlWorld) -> None:
    world.start_brokers(4)
    reassign(world, (3, 4))
    world.alter_isr("t", 1, 3)
    world.fence(1)
    assert world.leadership("t") == (3, (3,))
    refused = reassign(world, None)
    assert refused.code is ErrorCode.invalid_replica_assignment
    assert "unclean leader election" in (refused.message or "")
    assert world.partition("t").is_reassigning


def test_replacing_a_target_keeps_who_alone_has_the_records(world: ControlWorld) -> None:
    """3 was being added and is all that is left in sync; the next target does not name it."""
    world.start_brokers(4)
    reassign(world, (3, 4))
    world.alter_isr("t", 1, 3)
    world.fence(1)
    assert world.leadership("t") == (3, (3,))
    assert reassign(world, (2, 4)) == NO_ERROR
    partition = world.partition("t")
    assert (partition.replicas, partition.removing_replicas) == ((2, 4, 1, 3), (1, 3))
    assert (partition.adding_replicas, partition.leader, partition.isr) == ((4,), 3, (3,))
    assert world.alter_isr("t", 3, 2, 4).error is ErrorCode.new_leader_elected
    partition = world.partition("t")
    assert (partition.replicas, partition.leader, partition.isr) == ((2, 4), 2, (2, 4))


def test_a_new_target_keeps_what_is_in_sync_until_the_new_replicas_are(world: ControlWorld) -> None:
    """2 is away: without 3, which the older target was adding, there would be one copy for a while."""
    world.start_brokers(4)
    reassign(world, (3, 4))
    world.alter_isr("t", 1, 3)
    assert reassign(world, (1, 4)) == NO_ERROR
    partition = world.partition("t")
    assert (partition.replicas, partition.isr) == ((1, 4, 2, 3), (1, 3))
    assert (partition.adding_replicas, partition.removing_replicas) == ((4,), (2, 3))
    assert world.alter_isr("t", 1, 3, 4).error is ErrorCode.none
    partition = world.partition("t")
    assert (partition.replicas, partition.isr, partition.is_reassigning) == ((1, 4), (1, 4), False)


def test_a_target_that_is_what_was_before_ends_the_move(world: ControlWorld) -> None:
    reassign(world, (3, 2))
    assert reassign(world, (1, 2)) == NO_ERROR
    partition = world.partition("t")
    assert (partition.replicas, partition.isr, partition.is_reassigning) == ((1, 2), (1, 2), False)


def test_37_a_replica_that_is_dead_does_not_hold_up_the_replacement_of_another() -> None:
    world = ControlWorld()
    world.start_brokers(1, 2, 3, 4)
    world.create_topic("t", (1, 2, 3))
    world.fence(2)
    assert reassign(world, (1, 2, 4)) == NO_ERROR
    assert world.alter_isr("t", 1, 3, 4).error is ErrorCode.none
    partition = world.partition("t")
    assert (partition.replicas, partition.leader, partition.isr) == ((1, 2, 4), 1, (1, 4))
    assert not partition.is_reassigning
