from broker.metadata.partition_registration import LeaderRecoveryState
from broker.replication.partition_state import (
    CommittedPartitionState,
    PendingExpandIsr,
    PendingRecovery,
    PendingShrinkIsr,
)

COMMITTED = CommittedPartitionState((1, 2), LeaderRecoveryState.RECOVERING)


def test_a_committed_state_is_its_own_maximal_isr() -> None:
    assert (COMMITTED.isr, COMMITTED.maximal_isr, COMMITTED.is_inflight) == ((1, 2), (1, 2), False)


def test_an_expansion_counts_the_new_replica_for_the_high_watermark_only() -> None:
    pending = PendingExpandIsr(3, COMMITTED)
    assert (pending.isr, pending.maximal_isr, pending.is_inflight) == ((1, 2), (1, 2, 3), True)
    assert pending.proposed_isr == (1, 2, 3)
    assert pending.leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_a_shrink_still_counts_those_who_leave() -> None:
    pending = PendingShrinkIsr((2,), COMMITTED)
    assert pending.proposed_isr == (1,)
    assert (pending.isr, pending.maximal_isr, pending.is_inflight) == ((1, 2), (1, 2), True)
    assert pending.leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_a_recovery_proposes_the_isr_as_it_is() -> None:
    pending = PendingRecovery(COMMITTED)
    assert (pending.isr, pending.maximal_isr, pending.proposed_isr) == ((1, 2), (1, 2), (1, 2))
    assert pending.is_inflight
    assert pending.leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_equal_states_are_different_proposals() -> None:
    assert PendingExpandIsr(3, COMMITTED) != PendingExpandIsr(3, COMMITTED)
