"""The port through which a leader asks the controller for another ISR (Kafka's AlterPartitionManager)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicIdPartition
from broker.metadata.partition_registration import LeaderRecoveryState


@dataclass(frozen=True, slots=True)
class IsrMember:
    """A proposed member with the broker epoch its leader last saw, -1 when it has seen none (KIP-903)."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ProposedIsr:
    """What a leader proposes (the body of one partition in AlterPartition)."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]
    leader_recovery_state: LeaderRecoveryState


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """What the controller has decided."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: LeaderRecoveryState
    partition_epoch: int


AlterPartitionAnswer: TypeAlias = LeaderAndIsr | ErrorCode


class AlterPartitionManager(Protocol):
    def submit(
        self, partition: TopicIdPartition, proposal: ProposedIsr, on_complete: Callable[[AlterPartitionAnswer], None]
    ) -> None:
        """Ask; `on_complete` is called once, later or at once, with the decision or the error.

        OPERATION_NOT_ATTEMPTED means that another proposal for this partition is still queued.
        """
