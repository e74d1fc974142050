"""The states of an ISR: agreed with the controller, or a proposal in flight (Kafka's PartitionState)."""

from dataclasses import dataclass
from typing import TypeAlias

from broker.metadata.partition_registration import LeaderRecoveryState


@dataclass(frozen=True, slots=True, eq=False)
class CommittedPartitionState:
    """The ISR the controller has agreed to.  States compare by identity: a late answer belongs to one proposal."""

    isr: tuple[int, ...]
    leader_recovery_state: LeaderRecoveryState

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Every replica that may be in the ISR as the controller knows it: the high watermark waits for them all."""
        return self.isr

    @property
    def is_inflight(self) -> bool:
        return False


class _PendingChange:
    """What proposals have in common: until the answer, what was committed counts."""

    __slots__ = ()
    last_committed: CommittedPartitionState

    @property
    def isr(self) -> tuple[int, ...]:
        return self.last_committed.isr

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self.last_committed.isr

    @property
    def leader_recovery_state(self) -> LeaderRecoveryState:
        return LeaderRecoveryState.RECOVERED

    @property
    def is_inflight(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, eq=False)
class PendingExpandIsr(_PendingChange):
    """A caught-up replica is proposed: until the answer it counts for the high watermark, not for the ISR."""

    new_in_sync_replica_id: int
    last_committed: CommittedPartitionState

    @property
    def proposed_isr(self) -> tuple[int, ...]:
        return (*self.last_committed.isr, self.new_in_sync_replica_id)

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return (*self.last_committed.isr, self.new_in_sync_replica_id)


@dataclass(frozen=True, slots=True, eq=False)
class PendingShrinkIsr(_PendingChange):
    """Lagging replicas are proposed to leave: until the answer they still hold the high watermark back."""

    out_of_sync_replica_ids: tuple[int, ...]
    last_committed: CommittedPartitionState

    @property
    def proposed_isr(self) -> tuple[int, ...]:
        return tuple(member for member in self.last_committed.isr if member not in self.out_of_sync_replica_ids)


@dataclass(frozen=True, slots=True, eq=False)
class PendingRecovery(_PendingChange):
    """A leader elected uncleanly says that it goes on with what it has; the ISR stays as it is."""

    last_committed: CommittedPartitionState

    @property
    def proposed_isr(self) -> tuple[int, ...]:
        return self.last_committed.isr


PendingPartitionChange: TypeAlias = PendingExpandIsr | PendingShrinkIsr | PendingRecovery
PartitionState: TypeAlias = CommittedPartitionState | PendingPartitionChange
