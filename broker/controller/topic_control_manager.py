"""TopicControlManager: topics are created, grow and are deleted."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from broker.common.chance import Chance
from broker.common.errors import (
    ErrorCode,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from broker.common.identifiers import (
    CLUSTER_METADATA_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
    REMOTE_WAL_LOG_METADATA_TOPIC,
)
from broker.config.broker_config import BrokerConfig
from broker.config.describe import ConfigEntry
from broker.controller.api_error import NO_ERROR, ApiError, ApiException
from broker.controller.configuration_control_manager import ConfigurationControlManager
from broker.controller.controller_result import ControllerResult
from broker.controller.controller_state import ControllerState
from broker.controller.partition_updates import PartitionUpdates
from broker.controller.replica_placer import StripedReplicaPlacer, UsableBroker
from broker.controller.topic_names import check_topic_name, unified_name
from broker.metadata.configs_image import ConfigResourceType
from broker.metadata.metadata_version import MetadataVersion
from broker.metadata.partition_registration import PartitionRegistration
from broker.metadata.topics_image import TopicImage
from broker.schemas.cluster_metadata import ConfigRecord, MetadataRecord, RemoveTopicRecord, TopicRecord

RECORDS_PER_COMMAND_MAX = 10_000  # QuorumController.MAX_RECORDS_PER_USER_OP: a command is one batch
_NEEDED_BY_TIERED_STORAGE = ApiError(
    ErrorCode.policy_violation,
    f"{REMOTE_LOG_METADATA_TOPIC} tells where the records in tiered storage are: without it they are lost. It can be "
    "deleted when no node has remote.log.storage.system.enable=true any more.",
)

Replicas = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatableTopic:
    """-1 asks for the default; with `assignments` (replicas by partition) both numbers have to be -1."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, Replicas], ...] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicResult:
    """`configs` are the topic's effective configs."""

    name: str
    error: ApiError = NO_ERROR
    topic_id: UUID | None = None
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Sequence[ConfigEntry] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsTopic:
    """`count` is the number of partitions afterwards; `assignments` are for the new ones, None to place them."""

    name: str
    count: int
    assignments: tuple[Replicas, ...] | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopicResult:
    name: str | None
    topic_id: UUID | None
    error: ApiError = NO_ERROR


class TopicControlManager:
    def __init__(
        self,
        config: BrokerConfig,
        chance: Chance,
        state: ControllerState,
        configuration_control: ConfigurationControlManager,
        updates: PartitionUpdates,
    ) -> None:
        self._config = config
        self._chance = chance
        self._state = state
        self._configuration_control = configuration_control
        self._updates = updates
        self._placer = StripedReplicaPlacer(chance)

    # Creation

    def create_topics(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool = False
    ) -> ControllerResult[list[CreateTopicResult]]:
        """Each topic by itself, all that pass in one batch."""
        records: list[MetadataRecord] = []
        results: list[CreateTopicResult] = []
        counts = Counter(topic.name for topic in topics)
        taken: dict[str, str] = {}  # by this command
        for name, topic in {topic.name: topic for topic in topics}.items():
            try:
                if counts[name] > 1:
                    raise InvalidRequestError("Duplicate topic name.")
                self._check_name(name, taken)
                topic_records, result = self._create_topic(topic)
            except KafkaError as error:
                results.append(CreateTopicResult(name=name, error=ApiError.of(error)))
                continue
            taken[unified_name(name)] = name
            records += topic_records
            results.append(result)
        if len(records) > RECORDS_PER_COMMAND_MAX:
            raise PolicyViolationError("Unable to perform excessively large batch operation.")
        return ControllerResult(() if validate_only else records, results)

    def _check_name(self, name: str, taken: Mapping[str, str]) -> None:
        if name == CLUSTER_METADATA_TOPIC:
            raise InvalidRequestError(f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited.")
        check_topic_name(name)
        if name in self._state.image.topics.by_name:
            raise TopicAlreadyExistsError(f"Topic '{name}' already exists.")
        other = self._state.unified_names.find(name) or taken.get(unified_name(name))
        if other is not None:
            raise InvalidTopicError(f"Topic '{name}' collides with existing topic: {other}")

    def _create_topic(self, topic: CreatableTopic) -> tuple[list[MetadataRecord], CreateTopicResult]:
        configs = self._configuration_control.validate_topic_configs(topic.name, topic.configs)
        assignments = self._manual_assignments(topic) if topic.assignments else self._placed_assignments(topic)
        topic_id = self._new_topic_id()
        records: list[MetadataRecord] = [TopicRecord(name=topic.name, topic_id=topic_id)]
        records += [
            ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
            for name, value in configs.items()
        ]
        records += [
            self._new_partition(replicas).to_record(topic_id, index) for index, replicas in enumerate(assignments)
        ]
        result = CreateTopicResult(
            name=topic.name,
            topic_id=topic_id,
            num_partitions=len(assignments),
            replication_factor=len(assignments[0]),
            configs=self._configuration_control.describe_topic(topic.name, configs),
        )
        return records, result

    def _new_topic_id(self) -> UUID:
        topic_id = self._chance.uuid()
        while topic_id in self._state.image.topics.by_id:
            topic_id = self._chance.uuid()
        return topic_id

    def _placed_assignments(self, topic: CreatableTopic) -> list[Replicas]:
        if topic.replication_factor == 0 or topic.replication_factor < -1:
            raise InvalidReplicationFactorError(
                "Replication factor must be larger than 0, or -1 to use the default value."
            )
        if topic.num_partitions == 0 or topic.num_partitions < -1:
            raise InvalidPartitionsError("Number of partitions was set to an invalid non-positive value.")
        count = self._config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
        if count > RECORDS_PER_COMMAND_MAX:
            raise PolicyViolationError("Unable to perform excessively large batch operation.")
        factor = self._config.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
        return self._placer.place(count, factor, self._usable_brokers())

    def _manual_assignments(self, topic: CreatableTopic) -> list[Replicas]:
        if topic.replication_factor != -1:
            raise InvalidRequestError(
                "A manual partition assignment was specified, but replication factor was not set to -1."
            )
        if topic.num_partitions != -1:
            raise InvalidRequestError(
                "A manual partition assignment was specified, but numPartitions was not set to -1."
            )
        by_partition = dict(topic.assignments)
        if len(by_partition) != len(topic.assignments) or sorted(by_partition) != list(range(len(by_partition))):
            raise InvalidReplicaAssignmentError("partitions should be a consecutive 0-based integer sequence")
        assignments = [by_partition[index] for index in range(len(by_partition))]
        for index, replicas in enumerate(assignments):
            self._check_manual_assignment(replicas, len(assignments[0]))
            self._check_can_lead(replicas, index)
        return assignments

    def _check_manual_assignment(self, replicas: Replicas, replication_factor: int) -> None:
        if not replicas:
            raise InvalidReplicaAssignmentError("The manual partition assignment includes an empty replica list.")
        for replica in replicas:
            if replicas.count(replica) > 1:
                raise InvalidReplicaAssignmentError(
                    f"The manual partition assignment includes the broker {replica} more than once."
                )
            if replica not in self._state.image.brokers:
                raise InvalidReplicaAssignmentError(
                    f"The manual partition assignment includes broker {replica}, but no such broker is registered."
                )
        if len(replicas) != replication_factor:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is "
                f"not consistent with previous partitions, which have {replication_factor} replica(s)."
            )

    def _check_can_lead(self, replicas: Replicas, index: int) -> None:
        if not any(map(self._state.image.is_broker_active, replicas)):
            raise InvalidReplicaAssignmentError(
                f"All brokers specified in the manual partition assignment for partition {index} "
                "are fenced or in controlled shutdown."
            )

    def _usable_brokers(self) -> list[UsableBroker]:
        return [
            UsableBroker(broker.id, broker.rack, broker.fenced)
            for broker in self._state.image.brokers.values()
            if not broker.in_controlled_shutdown
        ]

    def _new_partition(self, replicas: Replicas) -> PartitionRegistration:
        isr = tuple(replica for replica in replicas if self._state.image.is_broker_active(replica))
        directories: tuple[UUID, ...] = ()
        if self._state.image.features.metadata_version >= MetadataVersion.IBP_3_7_IV2:
            directories = tuple(map(self._updates.default_directory, replicas))
        return PartitionRegistration(replicas=replicas, directories=directories, isr=isr, leader=isr[0])

    # Growth

    def create_partitions(
        self, topics: Sequence[CreatePartitionsTopic], *, validate_only: bool = False
    ) -> ControllerResult[dict[str, ApiError]]:
        records: list[MetadataRecord] = []
        results: dict[str, ApiError] = {}
        counts = Counter(topic.name for topic in topics)
        for topic in topics:
            if counts[topic.name] > 1:
                results[topic.name] = ApiError(ErrorCode.invalid_request, "Duplicate topic name.")
                continue
            try:
                records += self._create_partitions(topic)
                results[topic.name] = NO_ERROR
            except KafkaError as error:
                results[topic.name] = ApiError.of(error)
        if len(records) > RECORDS_PER_COMMAND_MAX:
            raise PolicyViolationError("Unable to perform excessively large batch operation.")
        return ControllerResult(() if validate_only else records, results)

    def _create_partitions(self, topic: CreatePartitionsTopic) -> list[MetadataRecord]:
        existing = self._state.image.topics.topic(topic.name)
        if existing is None:
            raise UnknownTopicOrPartitionError(f"The topic '{topic.name}' does not exist.")
        present = len(existing.partitions)
        if topic.count == present:
            raise InvalidPartitionsError(f"Topic already has {present} partition(s).")
        if topic.count < present:
            raise InvalidPartitionsError(
                f"The topic {topic.name} currently has {present} partition(s); {topic.count} would not be an increase."
            )
        if topic.name in (REMOTE_WAL_LOG_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC):
            # Each event has its place by this number.
            raise InvalidPartitionsError(
                f"The number of partitions of {topic.name} is fixed for the life of the cluster."
            )
        added = topic.count - present
        if added > RECORDS_PER_COMMAND_MAX:
            raise PolicyViolationError("Unable to perform excessively large batch operation.")
        factor = len(existing.partitions[0].replicas)
        if topic.assignments is None:
            assignments = self._placer.place(added, factor, self._usable_brokers())
        else:
            assignments = self._manual_growth(topic.assignments, added, factor, present)
        return [
            self._new_partition(replicas).to_record(existing.id, index)
            for index, replicas in enumerate(assignments, start=present)
        ]

    def _manual_growth(
        self, assignments: tuple[Replicas, ...], added: int, replication_factor: int, present: int
    ) -> list[Replicas]:
        if len(assignments) != added:
            raise InvalidReplicaAssignmentError(
                f"Attempted to add {added} additional partition(s), but only {len(assignments)} assignment(s) "
                "were specified."
            )
        for index, replicas in enumerate(assignments, start=present):
            self._check_manual_assignment(replicas, replication_factor)
            self._check_can_lead(replicas, index)
        return list(assignments)

    # Deletion

    def delete_topics(
        self, names: Sequence[str] = (), topic_ids: Sequence[UUID] = ()
    ) -> ControllerResult[list[DeleteTopicResult]]:
        """By name or by id; a topic named twice, in whichever way, is deleted neither time.

        The topic that tells what is in tiered storage stays as long as there is tiered storage: Apache Kafka's
        controllers delete it, and all that has left the local disks with it.
        """
        if not self._config.delete_topic_enable:
            raise ApiException(ErrorCode.topic_deletion_disabled, "Topic deletion is disabled.")
        topics = self._state.image.topics
        asked: list[tuple[str | None, UUID | None, TopicImage | None]] = [
            *((name, None, topics.topic(name)) for name in names),
            *((None, topic_id, topics.topic_by_id(topic_id)) for topic_id in topic_ids),
        ]
        counts = Counter(topic.id if topic is not None else (name, topic_id) for name, topic_id, topic in asked)
        records: list[MetadataRecord] = []
        results: dict[tuple[str | None, UUID | None], DeleteTopicResult] = {}
        for name, topic_id, topic in asked:
            if counts[topic.id if topic is not None else (name, topic_id)] > 1:
                error = ApiError(ErrorCode.invalid_request, f"Duplicate topic {'id' if name is None else 'name'}.")
                results[name, topic_id] = DeleteTopicResult(name, topic_id, error)
            elif topic is None:
                unknown: KafkaError = UnknownTopicIdError() if name is None else UnknownTopicOrPartitionError()
                results[name, topic_id] = DeleteTopicResult(name, topic_id, ApiError.of(unknown))
            elif topic.name == REMOTE_LOG_METADATA_TOPIC and self._config.remote_log_storage_system_enable:
                results[name, topic_id] = DeleteTopicResult(topic.name, topic.id, _NEEDED_BY_TIERED_STORAGE)
            else:
                records.append(RemoveTopicRecord(topic_id=topic.id))
                results[name, topic_id] = DeleteTopicResult(topic.name, topic.id)
        return ControllerResult(records, list(results.values()))
