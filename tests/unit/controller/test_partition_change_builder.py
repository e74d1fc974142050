"""The pure function that elects leaders.  35 and 36 are behaviours of a KRaft controller."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

from broker.controller.partition_change_builder import (
    Election,
    PartitionChangeRules,
    PartitionTarget,
    build_partition_change,
)
from broker.metadata.partition_registration import LeaderRecoveryState, PartitionRegistration
from broker.schemas.cluster_metadata import PartitionChangeRecord

TOPIC = UUID(int=0x999)
DIRECTORIES = {broker_id: UUID(int=0x1000 + broker_id) for broker_id in range(10)}


def partition(replicas: tuple[int, ...] = (1, 2, 3), **fields: Any) -> PartitionRegistration:
    values: dict[str, Any] = {
        "isr": replicas,
        "leader": replicas[0],
        "directories": tuple(DIRECTORIES[replica] for replica in replicas),
    }
    return PartitionRegistration(replicas=replicas, **{**values, **fields})


def change(
    before: PartitionRegistration,
    *,
    alive: Collection[int] = (1, 2, 3, 4, 5),
    elr: bool = False,
    min_isr: int = 1,
    metadata_version: int = 29,
    **target: Any,
) -> PartitionChangeRecord | None:
    rules = PartitionChangeRules(
        is_acceptable_leader=lambda broker_id: broker_id in alive,
        metadata_version=metadata_version,
        min_isr=min_isr,
        is_elr_enabled=elr,
        default_directory=DIRECTORIES.__getitem__,
    )
    return build_partition_change(before, TOPIC, 0, PartitionTarget(**target), rules)


def record(**fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=0, topic_id=TOPIC, **fields)


def test_nothing_to_change_is_no_record() -> None:
    assert change(partition()) is None
    assert change(partition(), isr=(1, 2, 3)) is None


def test_an_isr_shrink_does_not_name_the_leader() -> None:
    assert change(partition(), isr=(1, 2)) == record(isr=(1, 2))


def test_before_3_6_an_isr_shrink_bumped_the_leader_epoch() -> None:
    assert change(partition(), isr=(1, 2), metadata_version=11) == record(isr=(1, 2), leader=1)
    assert change(partition(isr=(1,)), isr=(1, 2), metadata_version=11) == record(isr=(1, 2))


def test_a_leader_that_left_is_replaced_by_the_first_valid_replica() -> None:
    assert change(partition(), isr=(2, 3), alive=(2, 3)) == record(isr=(2, 3), leader=2)
    assert change(partition(isr=(1, 3)), isr=(3,), alive=(2, 3)) == record(isr=(3,), leader=3)


def test_a_valid_leader_stays_unless_a_preferred_one_is_asked_for() -> None:
    before = partition(leader=2)
    assert change(before) is None
    assert change(before, election=Election.PREFERRED) == record(leader=1)
    assert change(before, election=Election.PREFERRED, alive=(2, 3)) is None
    assert change(partition(leader=3), election=Election.PREFERRED, alive=(2,)) == record(leader=2)


def test_35_without_elr_the_last_member_stays_and_there_is_no_leader() -> None:
    before = partition(isr=(1,))
    assert change(before, isr=(), alive=(2, 3)) == record(leader=-1)
    leaderless = before.merge(record(leader=-1))
    assert change(leaderless, alive=(2, 3)) is None
    assert change(leaderless, alive=(1,)) == record(leader=1)


def test_35_an_unclean_election_takes_the_first_live_replica_and_says_so() -> None:
    leaderless = partition(isr=(1,), leader=-1)
    unclean = change(leaderless, alive=(2, 3), election=Election.UNCLEAN)
    assert unclean == record(leader=2, isr=(2,), leader_recovery_state=1)
    assert change(leaderless, alive=(1, 2), election=Election.UNCLEAN) == record(leader=1)
    assert change(leaderless, alive=(), election=Election.UNCLEAN) is None


def test_the_leader_reports_that_it_recovered() -> None:
    before = partition(isr=(1,), leader_recovery_state=LeaderRecoveryState.RECOVERING)
    expected = record(leader_recovery_state=0)
    assert change(before, leader_recovery_state=LeaderRecoveryState.RECOVERED) == expected


def test_36_the_elr_trace_step_by_step() -> None:
    options: dict[str, Any] = {"elr": True, "min_isr": 2}
    state = partition((1, 2))

    def step(**fields: Any) -> PartitionRegistration:
        made = change(state, **options, **fields)
        return state if made is None else state.merge(made)

    def facts() -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        return state.leader, state.isr, state.eligible_leader_replicas, state.last_known_elr

    state = step(isr=(1,))
    assert facts() == (1, (1,), (2,), ())
    state = step(isr=(), alive=(2,))
    assert facts() == (2, (2,), (1,), ())
    state = step(isr=(), alive=())
    assert facts() == (-1, (), (1, 2), (2,))
    state = step(isr=(), alive=(), unclean_shutdown_replicas=frozenset({2}))
    assert facts() == (-1, (), (1,), (2,))
    state = step(alive=(2,))  # 2 is unfenced: not eligible any more
    assert facts() == (-1, (), (1,), (2,))
    state = step(alive=(1, 2))
    assert facts() == (1, (1,), (), ())


def test_a_full_isr_clears_the_elr() -> None:
    before = partition((1, 2, 3), isr=(1,), eligible_leader_replicas=(2, 3))
    made = change(before, isr=(1, 2), elr=True, min_isr=2)
    assert made == record(isr=(1, 2), eligible_leader_replicas=())


def test_the_last_known_leader_is_elected_only_when_it_is_alive() -> None:
    before = partition((1, 2), isr=(), leader=-1, last_known_elr=(2,))
    assert change(before, elr=True, min_isr=2, alive=(1,)) is None
    made = change(before, elr=True, min_isr=2, alive=(1, 2))
    assert made == record(leader=2, isr=(2,), leader_recovery_state=1, last_known_elr=())


def test_an_unclean_election_with_elr_forgets_the_others() -> None:
    before = partition((1, 2, 3), isr=(), leader=-1, eligible_leader_replicas=(1,), last_known_elr=(1,))
    made = change(before, elr=True, min_isr=2, alive=(3,), election=Election.UNCLEAN)
    assert made == record(leader=3, isr=(3,), leader_recovery_state=1, eligible_leader_replicas=(), last_known_elr=())


def test_37_a_reassignment_adds_first_and_completes_when_all_are_in_sync() -> None:
    before = partition((1, 2))
    started = change(before, replicas=(2, 3, 1), removing=(1,), adding=(3,))
    assert started == record(
        replicas=(2, 3, 1),
        removing_replicas=(1,),
        adding_replicas=(3,),
        directories=(DIRECTORIES[2], DIRECTORIES[3], DIRECTORIES[1]),
    )
    assert started is not None
    under_way = before.merge(started)
    assert (under_way.leader, under_way.leader_epoch) == (1, 0)
    completed = change(under_way, isr=(1, 2, 3))
    assert completed == record(
        isr=(2, 3),
        leader=2,
        replicas=(2, 3),
        removing_replicas=(),
        adding_replicas=(),
        directories=(DIRECTORIES[2], DIRECTORIES[3]),
    )


def test_removing_a_replica_bumps_the_epoch_of_a_leader_that_stays() -> None:
    before = partition((1, 2, 3), removing_replicas=(3,))
    made = change(before, isr=(1, 2))
    assert made is not None
    assert (made.leader, made.replicas, made.isr) == (1, (1, 2), (1, 2))


def test_directories_are_kept_set_and_left_out_before_3_7() -> None:
    before = partition((1, 2))
    moved = UUID(int=0x5555)
    assert change(before, directories={2: moved}) == record(directories=(DIRECTORIES[1], moved))
    assert change(before, directories={2: moved}, metadata_version=16) is None
