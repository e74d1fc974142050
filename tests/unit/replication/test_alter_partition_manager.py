from uuid import UUID

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicIdPartition
from broker.metadata.partition_registration import LeaderRecoveryState
from broker.replication.alter_partition_manager import DetachedAlterPartitionManager, IsrMember, ProposedIsr


def test_a_detached_manager_attempts_nothing() -> None:
    answers: list[object] = []
    DetachedAlterPartitionManager().submit(
        TopicIdPartition(UUID(int=200), "t", 0),
        ProposedIsr(1, 2, (IsrMember(1, 11),), LeaderRecoveryState.RECOVERED),
        answers.append,
    )
    assert answers == [ErrorCode.operation_not_attempted]
