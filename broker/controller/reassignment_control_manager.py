"""ReassignmentControlManager: partitions move to other replicas (KIP-455)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from broker.common.errors import (
    ErrorCode,
    InvalidReplicaAssignmentError,
    KafkaError,
    UnknownTopicOrPartitionError,
)
from broker.common.identifiers import TopicPartition
from broker.controller.api_error import NO_ERROR, ApiError, ApiException
from broker.controller.configuration_control_manager import ConfigurationControlManager
from broker.controller.controller_result import ControllerResult
from broker.controller.controller_state import ControllerState
from broker.controller.partition_change_builder import PartitionTarget
from broker.controller.partition_reassignment import PartitionReassignment
from broker.controller.partition_updates import PartitionUpdates
from broker.metadata.partition_registration import PartitionRegistration
from broker.metadata.topics_image import TopicImage
from broker.schemas.cluster_metadata import MetadataRecord, PartitionChangeRecord


class OngoingReassignment(NamedTuple):
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ReassignmentControlManager:
    def __init__(
        self,
        state: ControllerState,
        configuration_control: ConfigurationControlManager,
        updates: PartitionUpdates,
    ) -> None:
        self._state = state
        self._configuration_control = configuration_control
        self._updates = updates

    def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, tuple[int, ...] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> ControllerResult[dict[TopicPartition, ApiError]]:
        """Begin moving each partition to its target, or cancel the move (None)."""
        records: list[MetadataRecord] = []
        results: dict[TopicPartition, ApiError] = {}
        for topic_partition, target in targets.items():
            try:
                topic, partition = self._find(topic_partition)
                if target is None:
                    record = self._cancel(topic, topic_partition.partition, partition)
                else:
                    self._check_target(target)
                    if not allow_replication_factor_change and len(target) != self._current_factor(partition):
                        raise ApiException(
                            ErrorCode.invalid_replication_factor,
                            f"The replication factor is changed from {self._current_factor(partition)} "
                            f"to {len(target)}",
                        )
                    record = self._reassign(topic, topic_partition.partition, partition, target)
                if record is not None:
                    records.append(record)
                results[topic_partition] = NO_ERROR
            except KafkaError as error:
                results[topic_partition] = ApiError.of(error)
        return ControllerResult(records, results, is_atomic=False)

    def _find(self, topic_partition: TopicPartition) -> tuple[TopicImage, PartitionRegistration]:
        topic = self._state.image.topics.topic(topic_partition.topic)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"Unable to find a topic named {topic_partition.topic}.")
        partition = topic.partitions.get(topic_partition.partition)
        if partition is None:
            raise UnknownTopicOrPartitionError(f"Unable to find partition {topic_partition}.")
        return topic, partition

    def _check_target(self, target: tuple[int, ...]) -> None:
        if not target:
            raise InvalidReplicaAssignmentError("The manual partition assignment includes an empty replica list.")
        for replica in target:
            if target.count(replica) > 1:
                raise InvalidReplicaAssignmentError(
                    f"The manual partition assignment includes the broker {replica} more than once."
                )
            if replica not in self._state.image.brokers:
                raise InvalidReplicaAssignmentError(
                    f"The manual partition assignment includes broker {replica}, but no such broker is registered."
                )

    def _current_factor(self, partition: PartitionRegistration) -> int:
        return len([replica for replica in partition.replicas if replica not in partition.adding_replicas])

    def _reassign(
        self, topic: TopicImage, index: int, partition: PartitionRegistration, target: tuple[int, ...]
    ) -> PartitionChangeRecord | None:
        way = _ongoing(partition).replaced_by(target, partition.isr)
        wanted = PartitionTarget(replicas=way.replicas, removing=way.removing, adding=way.adding)
        return self._updates.change(topic, index, wanted)

    def _cancel(self, topic: TopicImage, index: int, partition: PartitionRegistration) -> PartitionChangeRecord | None:
        if not partition.is_reassigning:
            raise ApiException(ErrorCode.no_reassignment_in_progress)
        original = _ongoing(partition).original_replicas
        isr = tuple(replica for replica in partition.isr if replica in original)
        if not isr:
            if not self._configuration_control.is_unclean_leader_election_enabled(topic.name):
                raise InvalidReplicaAssignmentError(
                    f"Unable to cancel partition reassignment of {topic.name}-{index}, because doing so would "
                    "require an unclean leader election, which is disabled."
                )
            isr = original[:1]
        return self._updates.change(topic, index, PartitionTarget(replicas=original, removing=(), adding=(), isr=isr))

    def list_partition_reassignments(
        self, topics: Mapping[str, Sequence[int]] | None
    ) -> dict[TopicPartition, OngoingReassignment]:
        """Moves under way, of the named partitions or of all (None)."""
        found: dict[TopicPartition, OngoingReassignment] = {}
        for topic in self._state.image.topics.by_name.values():
            if topics is not None and topic.name not in topics:
                continue
            for index, partition in topic.partitions.items():
                if partition.is_reassigning and (topics is None or index in topics[topic.name]):
                    found[TopicPartition(topic.name, index)] = OngoingReassignment(
                        partition.replicas, partition.adding_replicas, partition.removing_replicas
                    )
        return found


def _ongoing(partition: PartitionRegistration) -> PartitionReassignment:
    return PartitionReassignment(partition.replicas, partition.removing_replicas, partition.adding_replicas)
