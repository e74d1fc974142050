"""The pure function that elects leaders: from a partition and a wish to the record that changes it, or none.

Kafka's PartitionChangeBuilder; eligible leader replicas are KIP-966.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, TypeVar
from uuid import UUID

from broker.controller.partition_reassignment import PartitionReassignment
from broker.metadata.directory_id import UNASSIGNED
from broker.metadata.metadata_version import MetadataVersion
from broker.metadata.partition_registration import NO_LEADER, LeaderRecoveryState, PartitionRegistration
from broker.schemas.cluster_metadata import NO_LEADER_CHANGE, NO_RECOVERY_STATE_CHANGE, PartitionChangeRecord

T = TypeVar("T")


class Election(Enum):
    ONLINE = auto()  # keep the leader while it is valid
    PREFERRED = auto()  # the first replica, if it is valid
    UNCLEAN = auto()  # rather one that lost records than none


class ElectionResult(NamedTuple):
    leader: int
    is_unclean: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRules:
    """What the cluster says about elections, apart from the partition itself.

    `is_acceptable_leader` is true for a broker that is active and has the replica's directory online.
    """

    is_acceptable_leader: Callable[[int], bool]
    metadata_version: int
    min_isr: int
    is_elr_enabled: bool = False
    default_directory: Callable[[int], UUID] = lambda replica: UNASSIGNED


@dataclass(slots=True, kw_only=True)
class PartitionTarget:
    """What the partition should become; None leaves a field as it is."""

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    leader_recovery_state: LeaderRecoveryState | None = None
    directories: dict[int, UUID] | None = None  # by replica
    unclean_shutdown_replicas: frozenset[int] = frozenset()
    election: Election = Election.ONLINE


def build_partition_change(
    partition: PartitionRegistration,
    topic_id: UUID,
    partition_id: int,
    target: PartitionTarget,
    rules: PartitionChangeRules,
) -> PartitionChangeRecord | None:
    """The change that leads towards `target`, leader included; None when there is nothing to change."""
    return _PartitionChange(partition, target, rules).build(topic_id, partition_id)


class _PartitionChange:
    def __init__(self, partition: PartitionRegistration, target: PartitionTarget, rules: PartitionChangeRules) -> None:
        self._partition = partition
        self._rules = rules
        self._election = target.election
        self._unclean_shutdown_replicas = target.unclean_shutdown_replicas
        self._replicas = _or(target.replicas, partition.replicas)
        self._isr = _or(target.isr, partition.isr)
        self._removing = _or(target.removing, partition.removing_replicas)
        self._adding = _or(target.adding, partition.adding_replicas)
        self._elr = partition.eligible_leader_replicas
        self._last_known_elr = partition.last_known_elr
        self._directories = target.directories
        self._recovery_state = (
            partition.leader_recovery_state if target.leader_recovery_state is None else target.leader_recovery_state
        )
        self._leader = NO_LEADER_CHANGE

    def build(self, topic_id: UUID, partition_id: int) -> PartitionChangeRecord | None:
        self._complete_reassignment_if_needed()
        self._maybe_populate_elr()
        self._elect()
        self._keep_last_isr_member()
        self._bump_leader_epoch_if_needed()
        self._maybe_update_last_known_leader()
        record = self._record(topic_id, partition_id)
        return None if record == PartitionChangeRecord(partition_id=partition_id, topic_id=topic_id) else record

    def _complete_reassignment_if_needed(self) -> None:
        reassignment = PartitionReassignment(self._replicas, self._removing, self._adding)
        completed = reassignment.maybe_complete(self._isr)
        if completed is not None:
            self._replicas, self._isr = completed
            self._removing = self._adding = ()

    def _maybe_populate_elr(self) -> None:
        if not self._rules.is_elr_enabled:
            return
        if len(self._isr) >= min(self._rules.min_isr, len(self._replicas)):
            self._elr = self._last_known_elr = ()
            return
        candidates = dict.fromkeys((*self._partition.eligible_leader_replicas, *self._partition.isr))
        left_out = self._unclean_shutdown_replicas.union(self._isr)
        self._elr = tuple(sorted(replica for replica in candidates if replica not in left_out))

    def _elect(self) -> None:
        result = self._choose_leader()
        if result.leader != self._partition.leader:
            self._leader = result.leader
        if result.leader == NO_LEADER or result.leader in self._isr:
            return
        # Elected from outside the ISR: it alone is in sync with itself.
        self._isr = (result.leader,)
        if result.is_unclean:
            self._elr = ()  # whatever the others have, it is not the new leader's history
            self._recovery_state = LeaderRecoveryState.RECOVERING
        else:
            self._elr = tuple(replica for replica in self._elr if replica != result.leader)

    def _choose_leader(self) -> ElectionResult:
        if self._election is Election.PREFERRED and self._is_valid_new_leader(self._replicas[0]):
            return ElectionResult(self._replicas[0])
        if self._is_valid_new_leader(self._partition.leader):
            return ElectionResult(self._partition.leader)
        for replica in self._replicas:
            if self._is_valid_new_leader(replica):
                return ElectionResult(replica)
        if self._can_elect_last_known_leader():
            return ElectionResult(self._partition.last_known_elr[0], is_unclean=True)
        if self._election is Election.UNCLEAN:
            for replica in self._replicas:
                if self._rules.is_acceptable_leader(replica):
                    return ElectionResult(replica, is_unclean=True)
        return ElectionResult(NO_LEADER)

    def _is_valid_new_leader(self, replica: int) -> bool:
        is_candidate = replica in self._isr or (self._rules.is_elr_enabled and not self._isr and replica in self._elr)
        return is_candidate and self._rules.is_acceptable_leader(replica)

    def _can_elect_last_known_leader(self) -> bool:
        last_known = self._partition.last_known_elr
        return (
            self._rules.is_elr_enabled
            and not self._elr
            and not self._isr
            and len(last_known) == 1
            and self._rules.is_acceptable_leader(last_known[0])
        )

    def _keep_last_isr_member(self) -> None:
        """Without ELR an empty ISR would forget who has the records: the old one stays."""
        if not self._isr and not self._rules.is_elr_enabled:
            self._isr = self._partition.isr

    def _bump_leader_epoch_if_needed(self) -> None:
        """Naming the leader again raises its epoch, which fences fetches of a replica that was removed."""
        if self._leader != NO_LEADER_CHANGE:
            return
        is_replica_removed = not set(self._partition.replicas) <= set(self._replicas)
        is_isr_shrunk = not set(self._partition.isr) <= set(self._isr)
        is_shrink_bump_needed = self._rules.metadata_version < MetadataVersion.IBP_3_6_IV0
        if is_replica_removed or (is_isr_shrunk and is_shrink_bump_needed):
            self._leader = self._partition.leader

    def _maybe_update_last_known_leader(self) -> None:
        if not self._rules.is_elr_enabled:
            return
        leader = self._partition.leader if self._leader == NO_LEADER_CHANGE else self._leader
        if leader != NO_LEADER:
            self._last_known_elr = ()
        elif not self._isr and self._partition.isr and self._partition.leader != NO_LEADER:
            self._last_known_elr = (self._partition.leader,)  # only when the partition becomes leaderless

    def _record(self, topic_id: UUID, partition_id: int) -> PartitionChangeRecord:
        before = self._partition
        recovery_state = (
            NO_RECOVERY_STATE_CHANGE
            if self._recovery_state == before.leader_recovery_state
            else int(self._recovery_state)
        )
        return PartitionChangeRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            isr=_if_changed(self._isr, before.isr),
            leader=self._leader,
            replicas=_if_changed(self._replicas, before.replicas),
            removing_replicas=_if_changed(self._removing, before.removing_replicas),
            adding_replicas=_if_changed(self._adding, before.adding_replicas),
            leader_recovery_state=recovery_state,
            eligible_leader_replicas=_if_changed(self._elr, before.eligible_leader_replicas),
            last_known_elr=_if_changed(self._last_known_elr, before.last_known_elr),
            directories=self._changed_directories(),
        )

    def _changed_directories(self) -> tuple[UUID, ...] | None:
        if self._rules.metadata_version < MetadataVersion.IBP_3_7_IV2:
            return None
        wanted = self._directories or {}
        directories = tuple(
            wanted[replica]
            if replica in wanted
            else self._partition.directory(replica)
            if replica in self._partition.replicas
            else self._rules.default_directory(replica)
            for replica in self._replicas
        )
        return _if_changed(directories, self._partition.directories)


def _or(wanted: tuple[int, ...] | None, current: tuple[int, ...]) -> tuple[int, ...]:
    return current if wanted is None else wanted


def _if_changed(after: tuple[T, ...], before: tuple[T, ...]) -> tuple[T, ...] | None:
    return None if after == before else after
