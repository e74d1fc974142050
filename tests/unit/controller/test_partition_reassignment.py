from broker.controller.partition_reassignment import PartitionReassignment


def test_between_keeps_what_leaves_at_the_end() -> None:
    way = PartitionReassignment.between((1, 2, 3), (4, 3, 5))
    assert way == PartitionReassignment(replicas=(4, 3, 5, 1, 2), removing=(1, 2), adding=(4, 5))
    assert way.is_in_progress
    assert way.original_replicas == (3, 1, 2)


def test_reordering_alone_is_no_reassignment() -> None:
    way = PartitionReassignment.between((1, 2), (2, 1))
    assert way == PartitionReassignment((2, 1), (), ())
    assert not way.is_in_progress
    assert way.maybe_complete((1, 2)) is None


def test_completes_when_the_new_replicas_are_in_sync() -> None:
    way = PartitionReassignment.between((1, 2), (2, 3))
    assert way.maybe_complete((1, 2)) is None
    assert way.maybe_complete((1, 2, 3)) == ((2, 3), (2, 3))
    assert PartitionReassignment.between((1,), ()).maybe_complete((1,)) is None


def test_a_replica_that_stays_and_is_out_of_sync_holds_nothing_up() -> None:
    way = PartitionReassignment.between((1, 2, 3), (1, 2, 4))
    assert way.maybe_complete((1, 3)) is None
    assert way.maybe_complete((1, 3, 4)) == ((1, 2, 4), (1, 4))


def test_fewer_replicas_must_all_be_in_sync() -> None:
    way = PartitionReassignment.between((1, 2, 3), (1, 2))
    assert way.maybe_complete((1, 3)) is None
    assert way.maybe_complete((1, 2, 3)) == ((1, 2), (1, 2))


def test_the_last_replica_in_sync_does_not_leave() -> None:
    way = PartitionReassignment.between((1, 2), (2,))
    assert way.maybe_complete((1,)) is None
