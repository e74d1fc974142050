from broker.metadata.partition_registration import LeaderRecoveryState
from broker.replication.alter_partition_manager import IsrMember, LeaderAndIsr, ProposedIsr


def test_proposals_and_decisions_compare_by_value() -> None:
    members = (IsrMember(1, 11), IsrMember(2, -1))
    assert ProposedIsr(1, 2, members, LeaderRecoveryState.RECOVERED) == ProposedIsr(
        leader_epoch=1, partition_epoch=2, isr=members, leader_recovery_state=LeaderRecoveryState.RECOVERED
    )
    assert LeaderAndIsr(1, 2, (1,), LeaderRecoveryState.RECOVERED, 3) != LeaderAndIsr(
        1, 2, (1,), LeaderRecoveryState.RECOVERED, 4
    )
