from pathlib import Path

import pytest

from broker.common.errors import ErrorCode
from broker.metadata.partition_registration import LeaderRecoveryState
from broker.replication.alter_partition_manager import IsrMember, LeaderAndIsr
from broker.replication.partition_state import (
    CommittedPartitionState,
    PendingExpandIsr,
    PendingRecovery,
    PendingShrinkIsr,
)
from broker.schemas.cluster_metadata import BrokerRegistrationChangeRecord
from tests.support.builders import ReplicaWorld, batch


def replicated(tmp_path: Path, **topic: object) -> ReplicaWorld:
    world = ReplicaWorld(tmp_path)
    world.register_brokers(1, 2, 3)
    world.create_topic(**{"replicas": (1, 2, 3), **topic})  # type: ignore[arg-type]
    return world


def follower_fetches(world: ReplicaWorld, broker_id: int, offset: int) -> None:
    partition = world.partition()
    partition.update_follower_fetch_state(
        broker_id,
        fetch_offset=offset,
        log_start_offset=0,
        leader_log_end_offset=partition.log.log_end_offset,
        replica_epoch=10 + broker_id,
    )


def test_a_proposal_names_the_epochs_it_was_made_in(tmp_path: Path) -> None:
    world = replicated(tmp_path, isr=(1, 2), leader_epoch=4)
    follower_fetches(world, 3, 0)
    ((partition, proposal, _),) = world.alter_partition.proposals
    assert (partition.topic, partition.partition, partition.topic_id) == ("t", 0, world.partition().topic_id)
    assert (proposal.leader_epoch, proposal.partition_epoch) == (4, 0)
    assert proposal.isr == (IsrMember(1, 11), IsrMember(2, -1), IsrMember(3, 13))  # broker 2 has not fetched yet
    assert proposal.leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_only_one_proposal_at_a_time(tmp_path: Path) -> None:
    world = replicated(tmp_path, isr=(1,))
    follower_fetches(world, 2, 0)
    follower_fetches(world, 3, 0)
    world.append(batch("a"))
    world.now_ms += 60_000
    world.replicas.maybe_shrink_isrs()
    assert len(world.alter_partition.proposals) == 1
    assert isinstance(world.partition().state, PendingExpandIsr)


@pytest.mark.parametrize("error", [55, 107])
def test_some_errors_restore_the_committed_isr(tmp_path: Path, error: int) -> None:
    world = replicated(tmp_path, isr=(1, 2))
    committed = world.partition().state
    follower_fetches(world, 3, 0)
    world.alter_partition.answer(ErrorCode(error))
    assert world.partition().state is committed
    assert world.replicas.isr_stats.failed_updates == 1


@pytest.mark.parametrize("error", [3, 100, 74, 95, 42, 108])
def test_some_errors_wait_for_the_metadata(tmp_path: Path, error: int) -> None:
    world = replicated(tmp_path, isr=(1, 2))
    follower_fetches(world, 3, 0)
    pending = world.partition().state
    world.alter_partition.answer(ErrorCode(error))
    assert world.partition().state is pending
    assert world.alter_partition.proposals == []


@pytest.mark.parametrize("error", [-1, 7, 41])
def test_other_errors_are_asked_again(tmp_path: Path, error: int) -> None:
    world = replicated(tmp_path, isr=(1, 2))
    follower_fetches(world, 3, 0)
    world.alter_partition.answer(ErrorCode(error))
    assert world.alter_partition.proposed_isr == (1, 2, 3)
    world.alter_partition.agree()
    assert world.partition().isr == (1, 2, 3)


def test_what_is_asked_again_is_about_the_processes_it_was_asked_about_first(tmp_path: Path) -> None:
    world = replicated(tmp_path, isr=(1, 2))
    world.append(batch("a", "b"))
    follower_fetches(world, 2, 2)
    follower_fetches(world, 3, 2)
    ((_, first, _),) = world.alter_partition.proposals
    assert first.isr == (IsrMember(1, 11), IsrMember(2, 12), IsrMember(3, 13))
    world.register_brokers(3, epoch=99)  # it comes back without its records
    world.partition().update_follower_fetch_state(
        3, fetch_offset=0, log_start_offset=0, leader_log_end_offset=2, replica_epoch=99
    )
    world.alter_partition.answer(ErrorCode.not_controller)
    ((_, again, _),) = world.alter_partition.proposals
    assert again == first
    world.alter_partition.answer(ErrorCode.ineligible_replica)
    assert (world.partition().maximal_isr, world.partition().log.high_watermark) == ((1, 2), 2)


def test_a_late_answer_belongs_to_a_state_that_is_gone(tmp_path: Path) -> None:
    world = replicated(tmp_path, isr=(1, 2))
    follower_fetches(world, 3, 0)
    world.place(isr=(1, 2))
    decided = world.partition().state
    world.alter_partition.agree()
    assert world.partition().state is decided


def test_the_high_watermark_waits_for_a_replica_that_could_be_proposed(tmp_path: Path) -> None:
    world = replicated(tmp_path, isr=(1,))
    follower_fetches(world, 2, 0)
    world.alter_partition.answer(ErrorCode.operation_not_attempted)
    world.append(batch("a"))
    assert (world.partition().maximal_isr, world.partition().log.high_watermark) == ((1,), 0)
    world.now_ms += 30_001  # it was caught up longer ago than replica.lag.time.max.ms
    world.append(batch("b"))
    assert world.partition().log.high_watermark == 2


def test_a_replica_without_state_is_out_of_sync(tmp_path: Path) -> None:
    world = replicated(tmp_path, isr=(1, 2, 3))
    del world.partition().remote_replicas[3]
    world.replicas.maybe_shrink_isrs()
    state = world.partition().state
    assert isinstance(state, PendingShrinkIsr)
    assert state.out_of_sync_replica_ids == (3,)


def test_an_answer_of_another_epoch_does_not_commit(tmp_path: Path) -> None:
    world = replicated(tmp_path, isr=(1, 2))
    follower_fetches(world, 3, 0)
    state = world.partition().state
    world.alter_partition.answer(LeaderAndIsr(1, 9, (1, 2, 3), state.leader_recovery_state, 5))
    assert world.partition().state is state
    assert world.replicas.isr_stats.failed_updates == 1


def test_committed_changes_are_counted(tmp_path: Path) -> None:
    world = replicated(tmp_path, isr=(1, 2))
    follower_fetches(world, 3, 0)
    world.alter_partition.agree()
    world.append(batch("a"))
    world.now_ms += 31_000
    world.replicas.maybe_shrink_isrs()
    assert world.alter_partition.proposed_isr == (1,)
    world.alter_partition.agree()
    stats = world.replicas.isr_stats
    assert (stats.expands, stats.shrinks, stats.failed_updates) == (1, 1, 0)
    assert world.partition().isr == (1,)
    assert world.partition().partition_epoch == 2
    assert isinstance(world.partition().state, CommittedPartitionState)
    assert world.partition().log.high_watermark == 1


def test_an_unclean_election_is_answered_with_recovered_at_once(tmp_path: Path) -> None:
    world = replicated(tmp_path, isr=(2,), leader=2)
    world.place(isr=(1,), leader=1, leader_epoch=1, leader_recovery_state=1)
    ((_, proposal, _),) = world.alter_partition.proposals
    assert proposal.isr == (IsrMember(1, 11),)
    assert (proposal.leader_epoch, proposal.partition_epoch) == (1, 1)
    assert proposal.leader_recovery_state is LeaderRecoveryState.RECOVERED
    world.alter_partition.agree()
    assert world.partition().partition_epoch == 2
    world.now_ms += 60_000
    world.replicas.maybe_shrink_isrs()  # told once is told
    assert world.alter_partition.proposals == []
    stats = world.replicas.isr_stats
    assert (stats.expands, stats.shrinks, stats.failed_updates) == (0, 0, 0)


def test_a_recovery_that_could_not_be_told_is_told_later(tmp_path: Path) -> None:
    world = replicated(tmp_path, isr=(2,), leader=2)
    world.place(isr=(1,), leader=1, leader_epoch=1, leader_recovery_state=1)
    world.alter_partition.answer(ErrorCode.operation_not_attempted)
    assert world.alter_partition.proposals == []
    world.replicas.maybe_shrink_isrs()
    assert isinstance(world.partition().state, PendingRecovery)


def test_the_answer_to_a_partition_that_has_left_is_dropped(tmp_path: Path) -> None:
    for answer in (ErrorCode.unknown_server_error, ErrorCode.ineligible_replica, None):
        world = replicated(tmp_path / str(answer), isr=(1, 2))
        follower_fetches(world, 3, 0)
        world.delete_topic()
        if answer is None:
            world.alter_partition.agree()
        else:
            world.alter_partition.answer(answer)
        assert world.alter_partition.proposals == []


def test_a_fenced_or_leaving_follower_is_never_proposed(tmp_path: Path) -> None:
    world = replicated(tmp_path, isr=(1, 2))
    world.register_brokers(3, fenced=True)
    follower_fetches(world, 3, 0)
    assert world.alter_partition.proposals == []
    world.register_brokers(3)
    world.replay(BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=13, in_controlled_shutdown=1))
    follower_fetches(world, 3, 0)
    assert world.alter_partition.proposals == []
    world.register_brokers(3)
    follower_fetches(world, 3, 0)
    assert world.alter_partition.proposed_isr == (1, 2, 3)


def test_a_follower_below_the_start_of_the_epoch_is_not_added(tmp_path: Path) -> None:
    world = replicated(tmp_path, isr=(1, 2, 3))
    world.append(batch("a"), batch("b"))
    assert world.partition().log.high_watermark == 0
    world.place(isr=(1, 2), leader_epoch=1)
    assert world.partition().leader_epoch_start_offset == 2
    follower_fetches(world, 3, 1)  # above the high watermark, and not what this leader has begun with
    assert world.alter_partition.proposals == []
    follower_fetches(world, 3, 2)
    assert world.alter_partition.proposed_isr == (1, 2, 3)


def test_metadata_that_tells_what_an_answer_has_told_leaves_the_next_proposal_alone(tmp_path: Path) -> None:
    """Its answer may be on the way, and whom the controller has let in must be waited for from the proposal on."""
    world = replicated(tmp_path, isr=(1,))
    follower_fetches(world, 2, 0)
    world.alter_partition.agree()
    assert (world.partition().isr, world.partition().partition_epoch) == ((1, 2), 1)
    follower_fetches(world, 3, 0)
    pending = world.partition().state
    assert isinstance(pending, PendingExpandIsr)
    world.place(isr=(1, 2), partition_epoch=1)
    assert world.partition().state is pending
    world.append(batch("a"))
    world.now_ms += 60_000  # broker 3 is in sync by the controller's word alone
    follower_fetches(world, 2, 1)
    assert world.partition().log.high_watermark == 0
    world.alter_partition.agree()
    assert world.partition().isr == (1, 2, 3)
    assert world.partition().log.high_watermark == 0


def test_a_change_is_counted_once_whoever_tells_it_first(tmp_path: Path) -> None:
    """The metadata with the change, or the answer to the proposal."""
    world = replicated(tmp_path, isr=(1, 2))
    stats = world.replicas.isr_stats
    follower_fetches(world, 3, 0)
    world.place(isr=(1, 2, 3))
    assert (stats.expands, stats.failed_updates) == (1, 0)
    world.alter_partition.agree()
    assert (stats.expands, stats.failed_updates) == (1, 0)
    world.append(batch("a"))
    world.now_ms += 60_000
    world.replicas.maybe_shrink_isrs()
    world.place(isr=(1, 2))  # not what was proposed
    assert stats.shrinks == 0
    world.replicas.maybe_shrink_isrs()
    world.place(isr=(1,))
    assert stats.shrinks == 1
