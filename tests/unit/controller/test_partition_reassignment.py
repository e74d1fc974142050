from collections.abc import Sequence

from broker.controller.partition_reassignment import PartitionReassignment


def between(current: Sequence[int], target: Sequence[int]) -> PartitionReassignment:
    return PartitionReassignment(tuple(current), (), ()).replaced_by(target, isr=current)


def test_what_leaves_stays_at_the_end() -> None:
    way = between((1, 2, 3), (4, 3, 5))
    assert way == PartitionReassignment(replicas=(4, 3, 5, 1, 2), removing=(1, 2), adding=(4, 5))
    assert way.is_in_progress
    assert way.original_replicas == (3, 1, 2)


def test_reordering_alone_is_no_reassignment() -> None:
    way = between((1, 2), (2, 1))
    assert way == PartitionReassignment((2, 1), (), ())
    assert not way.is_in_progress
    assert way.maybe_complete((1, 2)) is None


def test_completes_when_the_new_replicas_are_in_sync() -> None:
    way = between((1, 2), (2, 3))
    assert way.maybe_complete((1, 2)) is None
    assert way.maybe_complete((1, 2, 3)) == ((2, 3), (2, 3))
    assert between((1,), ()).maybe_complete((1,)) is None


def test_a_replica_that_stays_and_is_out_of_sync_holds_nothing_up() -> None:
    way = between((1, 2, 3), (1, 2, 4))
    assert way.maybe_complete((1, 3)) is None
    assert way.maybe_complete((1, 3, 4)) == ((1, 2, 4), (1, 4))


def test_fewer_replicas_must_all_be_in_sync() -> None:
    way = between((1, 2, 3), (1, 2))
    assert way.maybe_complete((1, 3)) is None
    assert way.maybe_complete((1, 2, 3)) == ((1, 2), (1, 2))


def test_the_last_replica_in_sync_does_not_leave() -> None:
    way = between((1, 2), (2,))
    assert way.maybe_complete((1,)) is None


def test_another_target_on_the_way() -> None:
    on_the_way = between((1, 2), (3, 4))
    back = PartitionReassignment(replicas=(1, 2), removing=(), adding=())
    assert on_the_way.replaced_by((1, 2), isr=(1, 2)) == back
    without_four = PartitionReassignment(replicas=(3, 5, 1, 2), removing=(1, 2), adding=(3, 5))
    assert on_the_way.replaced_by((3, 5), isr=(1, 2, 3)) == without_four
    with_four = PartitionReassignment(replicas=(3, 5, 1, 2, 4), removing=(1, 2, 4), adding=(3, 5))
    assert on_the_way.replaced_by((3, 5), isr=(4,)) == with_four
