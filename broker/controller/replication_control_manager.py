"""ReplicationControlManager: ISRs and leaders: AlterPartition, elections, what a broker's coming and going means."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

import structlog

from broker.common.errors import ErrorCode
from broker.common.identifiers import NO_EPOCH, TopicPartition
from broker.controller.api_error import NO_ERROR, ApiError
from broker.controller.brokers_to_isrs import PartitionKey
from broker.controller.configuration_control_manager import ConfigurationControlManager
from broker.controller.controller_result import ControllerResult
from broker.controller.controller_state import ControllerState
from broker.controller.partition_change_builder import Election, PartitionTarget
from broker.controller.partition_updates import PartitionUpdates
from broker.metadata import directory_id
from broker.metadata.partition_registration import LeaderRecoveryState, PartitionRegistration
from broker.metadata.topics_image import TopicImage
from broker.schemas.cluster_metadata import MetadataRecord

ELECTIONS_PER_RUN_MAX: Final = 1_000  # MAX_ELECTIONS_PER_IMBALANCE: a batch stays small

log = structlog.get_logger(__name__)


class BrokerState(NamedTuple):
    """A member of a proposed ISR: the epoch pins the process, NO_EPOCH leaves it open."""

    broker_id: int
    broker_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionEntry:
    """What a leader proposes for one partition."""

    partition: int
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[BrokerState, ...]
    leader_recovery_state: int = 0


@dataclass(frozen=True, slots=True)
class AlterPartitionResult:
    """`partition_state` is what the partition became; None with an error."""

    partition: int
    error: ErrorCode
    partition_state: PartitionRegistration | None = None


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


class ReplicationControlManager:
    def __init__(
        self,
        state: ControllerState,
        configuration_control: ConfigurationControlManager,
        updates: PartitionUpdates,
    ) -> None:
        self._state = state
        self._configuration_control = configuration_control
        self._updates = updates

    # AlterPartition

    def alter_partition(
        self, broker_id: int, topics: Mapping[UUID, Sequence[AlterPartitionEntry]]
    ) -> ControllerResult[dict[UUID, list[AlterPartitionResult]]]:
        """A leader's proposals, each judged by itself (KIP-497, KIP-841, KIP-903).

        The broker's epoch has been checked.
        """
        records: list[MetadataRecord] = []
        results: dict[UUID, list[AlterPartitionResult]] = {}
        for topic_id, entries in topics.items():
            topic = self._state.image.topics.topic_by_id(topic_id)
            results[topic_id] = [
                AlterPartitionResult(entry.partition, ErrorCode.unknown_topic_id)
                if topic is None
                else self._alter_one_partition(broker_id, topic, entry, records)
                for entry in entries
            ]
        return ControllerResult(records, results, is_atomic=False)

    def _alter_one_partition(
        self, broker_id: int, topic: TopicImage, entry: AlterPartitionEntry, records: list[MetadataRecord]
    ) -> AlterPartitionResult:
        partition = topic.partitions.get(entry.partition)
        error = self._check_alter_partition(broker_id, partition, entry)
        if partition is None or error is not ErrorCode.none:
            log.info("alter_partition_refused", topic=topic.name, partition=entry.partition, error=error.name)
            return AlterPartitionResult(entry.partition, error)
        target = PartitionTarget(
            isr=tuple(member.broker_id for member in entry.new_isr),
            leader_recovery_state=LeaderRecoveryState(entry.leader_recovery_state),
        )
        record = self._updates.change(topic, entry.partition, target)
        if record is None:
            return AlterPartitionResult(entry.partition, ErrorCode.none, partition)
        records.append(record)
        changed = partition.merge(record)
        if changed.leader != broker_id:
            # The change completed a reassignment that took the leader away: it must read the metadata.
            return AlterPartitionResult(entry.partition, ErrorCode.new_leader_elected)
        return AlterPartitionResult(entry.partition, ErrorCode.none, changed)

    def _check_alter_partition(
        self, broker_id: int, partition: PartitionRegistration | None, entry: AlterPartitionEntry
    ) -> ErrorCode:
        """The order of these checks is part of the protocol (validateAlterPartitionData)."""
        if partition is None:
            return ErrorCode.unknown_topic_or_partition
        if entry.leader_epoch > partition.leader_epoch or entry.partition_epoch > partition.partition_epoch:
            return ErrorCode.not_controller  # the broker has seen a newer controller
        if entry.leader_epoch < partition.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        if broker_id != partition.leader:
            return ErrorCode.invalid_request
        if entry.partition_epoch < partition.partition_epoch:
            return ErrorCode.invalid_update_version
        if not self._is_isr_possible(partition, entry):
            return ErrorCode.invalid_request
        if any(not self._is_eligible(member) for member in entry.new_isr):
            return ErrorCode.ineligible_replica
        return ErrorCode.none

    def _is_isr_possible(self, partition: PartitionRegistration, entry: AlterPartitionEntry) -> bool:
        isr = [member.broker_id for member in entry.new_isr]
        if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
            return False
        if entry.leader_recovery_state == LeaderRecoveryState.RECOVERING:
            return len(isr) == 1 and partition.leader_recovery_state is LeaderRecoveryState.RECOVERING
        return entry.leader_recovery_state == LeaderRecoveryState.RECOVERED

    def _is_eligible(self, member: BrokerState) -> bool:
        broker = self._state.image.brokers.get(member.broker_id)
        if broker is None or not broker.is_active:
            return False
        return member.broker_epoch in (NO_EPOCH, broker.epoch)

    # Brokers come and go

    def records_without_broker(self, broker_id: int, *, with_elr: bool = False) -> Iterator[MetadataRecord]:
        """It is fenced, shuts down, or is unregistered (`with_elr`): it leaves the ISRs and leads nothing."""
        keys = self._state.brokers_to_isrs.partitions_with_broker_in_isr(broker_id)
        return self._updates.leader_and_isr_updates(keys, removed=broker_id, unclean=broker_id if with_elr else None)

    def records_with_broker(self, broker_id: int) -> Iterator[MetadataRecord]:
        """It is unfenced: it leads what waits for it."""
        keys = self._state.brokers_to_isrs.partitions_with_no_leader()
        return self._updates.leader_and_isr_updates(keys, added=broker_id)

    def records_for_restart(self, broker_id: int, *, is_clean: bool) -> Iterator[MetadataRecord]:
        """Another process took its place.  After an unclean stop it may lack records, so it leaves the ELR too."""
        keys = self._state.brokers_to_isrs.partitions_with_broker_in_isr(broker_id)
        if is_clean or not self._updates.is_elr_enabled:
            return self._updates.leader_and_isr_updates(keys, removed=broker_id)
        return self._updates.leader_and_isr_updates(keys, unclean=broker_id)

    def records_without_directories(self, broker_id: int, directories: frozenset[UUID]) -> Iterator[MetadataRecord]:
        """Directories of the broker failed: its replicas there lead nothing and are not in sync."""
        affected: list[PartitionKey] = []
        for key in self._state.brokers_to_isrs.partitions_with_broker_in_isr(broker_id):
            partition = self._state.image.topics.partition_by_id(*key)
            if partition is not None and partition.directory(broker_id) in directories:
                affected.append(key)
        return self._updates.leader_and_isr_updates(affected, removed=broker_id, lost_directories=directories)

    def assign_replicas_to_directories(
        self, broker_id: int, assignments: Mapping[UUID, Mapping[UUID, Sequence[int]]]
    ) -> ControllerResult[dict[PartitionKey, ErrorCode]]:
        """A broker says in which directory its replicas are: {directory: {topic id: partitions}} (KIP-858)."""
        records: list[MetadataRecord] = []
        results: dict[PartitionKey, ErrorCode] = {}
        for directory, topics in assignments.items():
            for topic_id, indexes in topics.items():
                for index in indexes:
                    key = PartitionKey(topic_id, index)
                    results[key] = self._assign_to_directory(broker_id, key, directory, records)
        return ControllerResult(records, results, is_atomic=False)

    def _assign_to_directory(
        self, broker_id: int, key: PartitionKey, directory: UUID, records: list[MetadataRecord]
    ) -> ErrorCode:
        topic = self._state.image.topics.topic_by_id(key.topic_id)
        if topic is None:
            return ErrorCode.unknown_topic_id
        partition = topic.partitions.get(key.partition)
        if partition is None:
            return ErrorCode.unknown_topic_or_partition
        if broker_id not in partition.replicas:
            return ErrorCode.not_leader_or_follower
        target = PartitionTarget(directories={broker_id: directory})
        if not directory_id.is_online(directory, self._state.image.brokers[broker_id].directories):
            # The broker tells us that it lost the replica: it is not in sync.
            target.isr = tuple(replica for replica in partition.isr if replica != broker_id)
        # Whether the replica can lead is asked of the new directory: Apache's controllers still ask the old one.
        rules = self._updates.rules(topic, partition.in_directory(broker_id, directory))
        record = self._updates.change(topic, key.partition, target, rules)
        if record is not None:
            records.append(record)
        return ErrorCode.none

    # Elections

    def elect_leaders(
        self, election_type: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> ControllerResult[dict[TopicPartition, ApiError]]:
        """None means all partitions, of which only those are answered that had something to elect."""
        records: list[MetadataRecord] = []
        results: dict[TopicPartition, ApiError] = {}
        if partitions is not None:
            for topic_partition in partitions:
                results[topic_partition] = self._elect_leader(topic_partition, election_type, records)
        else:
            for key, _ in self._state.image.topics.partitions():
                error = self._elect_leader(key.topic_partition, election_type, records)
                if error.code is not ErrorCode.election_not_needed:
                    results[key.topic_partition] = error
        return ControllerResult(records, results, is_atomic=False)

    def _elect_leader(
        self, topic_partition: TopicPartition, election_type: ElectionType, records: list[MetadataRecord]
    ) -> ApiError:
        topic = self._state.image.topics.topic(topic_partition.topic)
        partition = topic.partitions.get(topic_partition.partition) if topic else None
        if topic is None or partition is None:
            name = f"topic as {topic_partition.topic}" if topic is None else f"partition as {topic_partition}"
            return ApiError(ErrorCode.unknown_topic_or_partition, f"No such {name}")
        is_preferred = election_type is ElectionType.PREFERRED
        if partition.has_preferred_leader if is_preferred else partition.has_leader:
            return ApiError(ErrorCode.election_not_needed)
        election = Election.PREFERRED if is_preferred else Election.UNCLEAN
        record = self._updates.change(topic, topic_partition.partition, PartitionTarget(election=election))
        changed = partition if record is None else partition.merge(record)
        if is_preferred and not changed.has_preferred_leader:
            return ApiError(ErrorCode.preferred_leader_not_available)
        if record is None or not changed.has_leader:
            return ApiError(ErrorCode.eligible_leaders_not_available)
        records.append(record)
        return NO_ERROR

    def balance_partition_leaders(self) -> ControllerResult[bool]:
        """Give leadership back to preferred replicas; answers whether more is left to do."""
        records: list[MetadataRecord] = []
        for key, partition in self._state.image.topics.partitions():
            if partition.has_preferred_leader or not partition.has_leader:
                continue
            topic = self._state.image.topics.by_id[key.topic_id]
            record = self._updates.change(topic, key.partition, PartitionTarget(election=Election.PREFERRED))
            if record is None or record.leader != partition.preferred_replica:
                continue
            records.append(record)
            if len(records) >= ELECTIONS_PER_RUN_MAX:
                return ControllerResult(records, True, is_atomic=False)
        return ControllerResult(records, False, is_atomic=False)

    def elect_unclean_leaders(self) -> ControllerResult[bool]:
        """Leaders for leaderless partitions of topics that prefer a lossy one to none; answers whether more is left."""
        records: list[MetadataRecord] = []
        for key in self._state.brokers_to_isrs.partitions_with_no_leader():
            topic = self._state.image.topics.by_id[key.topic_id]
            if not self._configuration_control.is_unclean_leader_election_enabled(topic.name):
                continue
            record = self._updates.change(topic, key.partition, PartitionTarget(election=Election.UNCLEAN))
            if record is not None:
                log.warning("unclean_leader_elected", topic=topic.name, partition=key.partition, leader=record.leader)
                records.append(record)
            if len(records) >= ELECTIONS_PER_RUN_MAX:
                return ControllerResult(records, True, is_atomic=False)
        return ControllerResult(records, False, is_atomic=False)

    def preferred_imbalance_count(self) -> int:
        """Partitions that are led, but not by their preferred replica."""
        return sum(
            partition.has_leader and not partition.has_preferred_leader
            for topic in self._state.image.topics.by_id.values()
            for partition in topic.partitions.values()
        )
