"""PartitionRegistration: one partition as the controller decided it."""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final
from uuid import UUID

from broker.common.identifiers import NO_BROKER
from broker.metadata.directory_id import MIGRATING, UNASSIGNED
from broker.schemas.cluster_metadata import (
    NO_LEADER_CHANGE,
    NO_RECOVERY_STATE_CHANGE,
    PartitionChangeRecord,
    PartitionRecord,
)

NO_LEADER: Final = NO_BROKER


class LeaderRecoveryState(IntEnum):
    """RECOVERING: elected uncleanly, and the leader has not said that it dealt with it."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRegistration:
    """Replicas, who leads, who is in sync.

    `directories[i]` is the log directory of `replicas[i]`.  The leader epoch rises with every election, the
    partition epoch with every change whatever it is.
    """

    replicas: tuple[int, ...]
    directories: tuple[UUID, ...] = ()
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader: int
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    leader_epoch: int = 0
    partition_epoch: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @classmethod
    def from_record(cls, record: PartitionRecord) -> "PartitionRegistration":
        return cls(
            replicas=tuple(record.replicas),
            directories=_directories(record.directories, len(record.replicas)),
            isr=tuple(record.isr),
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            leader=record.leader,
            leader_recovery_state=LeaderRecoveryState(record.leader_recovery_state),
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
        )

    def to_record(self, topic_id: UUID, partition_id: int) -> PartitionRecord:
        return PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=self.replicas,
            isr=self.isr,
            removing_replicas=self.removing_replicas,
            adding_replicas=self.adding_replicas,
            leader=self.leader,
            leader_recovery_state=int(self.leader_recovery_state),
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=self.directories,
            eligible_leader_replicas=self.eligible_leader_replicas or None,
            last_known_elr=self.last_known_elr or None,
        )

    def merge(self, change: PartitionChangeRecord) -> "PartitionRegistration":
        """The partition after a change: what the record does not mention stays (PartitionRegistration.merge)."""
        replicas = self.replicas if change.replicas is None else tuple(change.replicas)
        is_leader_set = change.leader != NO_LEADER_CHANGE
        recovery = change.leader_recovery_state
        return PartitionRegistration(
            replicas=replicas,
            directories=self._directories_after(change, replicas),
            isr=self.isr if change.isr is None else tuple(change.isr),
            removing_replicas=_unless_absent(change.removing_replicas, self.removing_replicas),
            adding_replicas=_unless_absent(change.adding_replicas, self.adding_replicas),
            leader=change.leader if is_leader_set else self.leader,
            leader_recovery_state=(
                self.leader_recovery_state if recovery == NO_RECOVERY_STATE_CHANGE else LeaderRecoveryState(recovery)
            ),
            # A leader that is named again is elected again: the epoch rises even for the same leader, and for none.
            leader_epoch=self.leader_epoch + 1 if is_leader_set else self.leader_epoch,
            partition_epoch=self.partition_epoch + 1,
            eligible_leader_replicas=_unless_absent(change.eligible_leader_replicas, self.eligible_leader_replicas),
            last_known_elr=_unless_absent(change.last_known_elr, self.last_known_elr),
        )

    def _directories_after(self, change: PartitionChangeRecord, replicas: tuple[int, ...]) -> tuple[UUID, ...]:
        if change.directories is not None:
            return _directories(change.directories, len(replicas))
        if replicas == self.replicas:
            return self.directories
        if not any(directory != MIGRATING for directory in self.directories):
            return (MIGRATING,) * len(replicas)
        # Records of Kafka always carry directories with new replicas; this keeps the arrays parallel all the same.
        return tuple(self.directory(replica) for replica in replicas)

    def without_eligible_leader_replicas(self) -> "PartitionRegistration":
        """After a ClearElrRecord."""
        return replace(self, eligible_leader_replicas=(), last_known_elr=())

    def in_directory(self, replica: int, directory: UUID) -> "PartitionRegistration":
        """As it will be when the broker of `replica` has it in `directory`."""
        directories = (directory if each == replica else self.directory(each) for each in self.replicas)
        return replace(self, directories=tuple(directories))

    def directory(self, replica: int) -> UUID:
        """The log directory of a replica; UNASSIGNED for one that has none here."""
        try:
            return self.directories[self.replicas.index(replica)]
        except (ValueError, IndexError):
            return UNASSIGNED

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def preferred_replica(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def has_preferred_leader(self) -> bool:
        return self.leader == self.preferred_replica

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing_replicas or self.adding_replicas)


def _unless_absent(new: tuple[int, ...] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else tuple(new)


def _directories(directories: tuple[UUID, ...], count: int) -> tuple[UUID, ...]:
    return tuple(directories) if len(directories) == count else (MIGRATING,) * count
