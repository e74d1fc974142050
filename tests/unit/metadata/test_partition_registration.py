from uuid import UUID

from broker.metadata.directory_id import MIGRATING, UNASSIGNED
from broker.metadata.partition_registration import LeaderRecoveryState, PartitionRegistration
from tests.unit.metadata.image_support import TOPIC, change_record, directory_of, partition_record

PARTITION = PartitionRegistration.from_record(partition_record(replicas=(1, 2)))


def test_from_record_and_back() -> None:
    record = partition_record(
        replicas=(1, 2),
        isr=(1,),
        adding_replicas=(2,),
        leader_recovery_state=1,
        leader_epoch=3,
        partition_epoch=7,
        eligible_leader_replicas=(2,),
        last_known_elr=(1,),
    )
    partition = PartitionRegistration.from_record(record)
    assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERING
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((2,), (1,))
    assert partition.to_record(TOPIC, 0) == record


def test_what_a_change_does_not_mention_stays_and_the_partition_epoch_rises() -> None:
    changed = PARTITION.merge(change_record(isr=(1,)))
    assert (changed.isr, changed.leader, changed.leader_epoch, changed.partition_epoch) == ((1,), 1, 0, 1)
    assert changed.replicas == PARTITION.replicas


def test_a_named_leader_raises_its_epoch_even_if_it_is_the_same_or_none() -> None:
    for leader in (1, 2, -1):
        changed = PARTITION.merge(change_record(leader=leader))
        assert (changed.leader, changed.leader_epoch) == (leader, 1)


def test_recovery_elr_and_directories_change_when_given() -> None:
    changed = PARTITION.merge(
        change_record(
            leader_recovery_state=1,
            eligible_leader_replicas=(2,),
            last_known_elr=(1,),
            directories=(UUID(int=0x900), directory_of(2)),
        )
    )
    assert changed.leader_recovery_state == 1
    assert (changed.eligible_leader_replicas, changed.last_known_elr) == ((2,), (1,))
    assert changed.directories == (UUID(int=0x900), directory_of(2))
    cleared = changed.without_eligible_leader_replicas()
    assert (cleared.eligible_leader_replicas, cleared.last_known_elr) == ((), ())
    assert cleared.partition_epoch == changed.partition_epoch


def test_directories_stay_parallel_to_replicas() -> None:
    old = PartitionRegistration.from_record(partition_record(directories=()))
    assert old.directories == (MIGRATING, MIGRATING)
    assert old.merge(change_record(replicas=(1, 2, 3))).directories == (MIGRATING,) * 3
    assert PARTITION.merge(change_record(replicas=(2, 3))).directories == (directory_of(2), UNASSIGNED)


def test_questions() -> None:
    assert PARTITION.has_leader
    assert PARTITION.has_preferred_leader
    assert not PARTITION.merge(change_record(leader=2)).has_preferred_leader
    assert not PARTITION.merge(change_record(leader=-1)).has_leader
    assert not PARTITION.is_reassigning
    assert PARTITION.merge(change_record(adding_replicas=(3,))).is_reassigning
    assert (PARTITION.directory(2), PARTITION.directory(9)) == (directory_of(2), UNASSIGNED)
    assert PARTITION.preferred_replica == 1
