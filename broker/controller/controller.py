"""Controller: owner of the cluster's metadata, a quorum of one (Kafka's QuorumController and KafkaRaftClient)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import structlog

from broker.common.chance import Chance
from broker.common.clock import Clock
from broker.common.disk import DiskExecutor
from broker.common.errors import ErrorCode, StorageFailure
from broker.common.file_system import FileSystem
from broker.common.identifiers import TopicPartition
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.controller.api_error import ApiError
from broker.controller.bootstrap_metadata import BootstrapMetadataError, read_bootstrap_records
from broker.controller.brokers_to_isrs import PartitionKey
from broker.controller.client_quota_control_manager import ClientQuotaControlManager, QuotaAlteration
from broker.controller.cluster_control_manager import (
    BrokerHeartbeat,
    BrokerHeartbeatReply,
    BrokerRegistrationRequest,
    ClusterControlManager,
)
from broker.controller.command_queue import CommandQueue
from broker.controller.configuration_control_manager import ConfigChange, ConfigurationControlManager
from broker.controller.controller_maintenance import ControllerMaintenance
from broker.controller.controller_result import ControllerResult
from broker.controller.controller_state import ControllerState
from broker.controller.feature_control_manager import FeatureControlManager, FeatureUpdate
from broker.controller.metadata_log import MetadataLog
from broker.controller.metadata_segment import MetadataLogCorruptError
from broker.controller.metadata_snapshot import SnapshotId, decode_batch
from broker.controller.partition_updates import PartitionUpdates
from broker.controller.producer_id_control_manager import ProducerIdControlManager, ProducerIdsBlock
from broker.controller.quorum_endpoint import QuorumEndpoint
from broker.controller.quorum_state import QuorumState, QuorumStateError, read_quorum_state, write_quorum_state
from broker.controller.reassignment_control_manager import OngoingReassignment, ReassignmentControlManager
from broker.controller.replication_control_manager import (
    AlterPartitionEntry,
    AlterPartitionResult,
    ElectionType,
    ReplicationControlManager,
)
from broker.controller.topic_control_manager import (
    CreatableTopic,
    CreatePartitionsTopic,
    CreateTopicResult,
    DeleteTopicResult,
    TopicControlManager,
)
from broker.metadata.configs_image import ConfigResource
from broker.metadata.metadata_fault import MetadataFault
from broker.metadata.metadata_image import MetadataImage, QuotaEntity
from broker.metrics.controller_metrics import ControllerMetrics
from broker.schemas.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
)

T = TypeVar("T")

log = structlog.get_logger(__name__)


class ControllerStartError(Exception):
    """Why this node must not start; the message tells an operator."""


class Controller:
    """Life: build, `start` (recover and lead), then serve inside `running`, which stops it when it is left.

    Commands are methods; each is one entry of one queue, and answers when it is durable.  All raise
    NotControllerError while this controller does not lead, and StorageFailure when the disk takes nothing.
    """

    def __init__(
        self,
        config: BrokerConfig,
        directory: Path,
        cluster_id: str,
        clock: Clock,
        chance: Chance,
        file_system: FileSystem,
        disk: DiskExecutor,
        metrics: ControllerMetrics,
    ) -> None:
        self.config = config
        self.cluster_id = cluster_id
        self.node_id = config.node_id
        self._directory = directory
        self._file_system = file_system
        self._metrics = metrics
        self._log = MetadataLog(file_system, directory)
        self._state = ControllerState()
        self._queue = CommandQueue(
            self._log, self._state, disk, clock, config.metadata_log_segment_bytes, metrics.flush_seconds.observe
        )
        self.quorum = QuorumEndpoint(config.node_id, self._log, self._queue, clock)
        self._configuration_control = ConfigurationControlManager(config, self._state)
        updates = PartitionUpdates(self._state, self._configuration_control)
        self._replication_control = ReplicationControlManager(self._state, self._configuration_control, updates)
        self._topic_control = TopicControlManager(config, chance, self._state, self._configuration_control, updates)
        self._reassignment_control = ReassignmentControlManager(self._state, self._configuration_control, updates)
        self._feature_control = FeatureControlManager(self._state)
        self._client_quota_control = ClientQuotaControlManager(self._state)
        self._producer_id_control = ProducerIdControlManager(self._state)
        self._cluster_control = ClusterControlManager(
            cluster_id, config.broker_session_timeout_ms, self._state, self._replication_control
        )
        self.maintenance = ControllerMaintenance(
            config=config,
            state=self._state,
            queue=self._queue,
            metadata_log=self._log,
            cluster_control=self._cluster_control,
            replication_control=self._replication_control,
            clock=clock,
            disk=disk,
            file_system=file_system,
            metrics=metrics,
        )
        self._tasks = BackgroundTasks("controller")
        metrics.read_from(self)

    @property
    def services(self) -> tuple[object, ...]:
        """What the handlers of the controller's listeners ask for by type."""
        return (self,)

    # Life

    async def start(self) -> None:
        """Recover the log and lead the quorum in a new epoch; what was acknowledged before is there again.

        ControllerStartError says in a sentence why the node must not start; StorageFailure is the disk's refusal.
        """
        try:
            self._recover()
            epoch = self._begin_epoch()
            bootstrap_records = self._bootstrap_records()
        except (MetadataLogCorruptError, QuorumStateError, BootstrapMetadataError, MetadataFault) as error:
            raise ControllerStartError(str(error)) from error
        # One batch at a time: a crash may tear the last one only.
        is_open_transaction = self._state.is_in_transaction
        self._queue.become_leader(epoch, self.node_id)
        await self._queue.flush()
        if is_open_transaction:
            self._queue.append_now([AbortTransactionRecord(reason="the controller stopped before it ended")])
            await self._queue.flush()
        if not self._state.image.features.metadata_version:
            self._queue.append_now(bootstrap_records)
            await self._queue.flush()
        self._cluster_control.recover_sessions(_now(), self.node_id if self.config.is_broker else None)
        self._queue.is_active = True
        log.info(
            "controller_leads",
            node_id=self.node_id,
            epoch=epoch,
            offset=self._log.end_offset,
            metadata_version=self._state.image.features.metadata_version,
        )

    def _recover(self) -> None:
        for batch in self._log.open(self._load_snapshot):
            if batch.is_control:
                self._state.skip(batch.last_offset, batch.partition_leader_epoch)
            else:
                self._state.replay(decode_batch(batch), batch.base_offset, batch.partition_leader_epoch)

    def _begin_epoch(self) -> int:
        """The next epoch, durable in `quorum-state` before anything is written in it."""
        stored = read_quorum_state(self._file_system, self._log.directory)
        epoch = max(stored.leader_epoch if stored else 0, self._log.last_epoch, 0) + 1
        state = QuorumState(self.node_id, epoch)
        try:
            write_quorum_state(self._file_system, self._log.directory, state)
        except StorageFailure:
            if not self._log.reserve.release():
                raise
            write_quorum_state(self._file_system, self._log.directory, state)
        return epoch

    def _load_snapshot(self, records: list[MetadataRecord], snapshot: SnapshotId) -> None:
        self._state.load_snapshot(records, snapshot.end_offset - 1, snapshot.epoch)

    def _bootstrap_records(self) -> list[MetadataRecord]:
        """As Apache's controllers begin: all of it or none, though it is more than one record (KIP-868)."""
        records = read_bootstrap_records(self._file_system, self._directory)
        return [BeginTransactionRecord(name="Bootstrap records"), *records, EndTransactionRecord()]

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Controller"]:
        """Do what the controller does by itself; on leaving, stop."""
        async with self._tasks:
            self._tasks.start("commands", self._queue.write_staged())
            self._tasks.start("sessions", self.maintenance.fence_stale_brokers())
            self._tasks.start("balance", self.maintenance.balance_leaders())
            self._tasks.start("unclean-elections", self.maintenance.elect_unclean_leaders())
            self._tasks.start("snapshots", self.maintenance.take_snapshots())
            self._tasks.start("disk-reserve", self.maintenance.keep_disk_reserve())
            try:
                yield self
            finally:
                await self._queue.drain()
                self.quorum.wake_fetches()
        self._log.close()

    # State

    @property
    def image(self) -> MetadataImage:
        """The cluster as far as it is durable."""
        return self._queue.durable_image

    @property
    def is_active(self) -> bool:
        return self._queue.is_active

    @property
    def active_broker_count(self) -> int:
        return sum(not broker.fenced for broker in self.image.brokers.values())

    @property
    def fenced_broker_count(self) -> int:
        return sum(broker.fenced for broker in self.image.brokers.values())

    @property
    def topic_count(self) -> int:
        return len(self.image.topics)

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.image.topics.by_id.values())

    @property
    def offline_partition_count(self) -> int:
        return self._state.brokers_to_isrs.leaderless_count()

    @property
    def preferred_replica_imbalance_count(self) -> int:
        return self._replication_control.preferred_imbalance_count()

    @property
    def leader_epoch(self) -> int:
        return self._queue.epoch

    @property
    def high_watermark(self) -> int:
        return self._log.high_watermark

    @property
    def log_end_offset(self) -> int:
        return self._log.end_offset

    @property
    def log_size_bytes(self) -> int:
        return self._log.size_bytes

    @property
    def snapshot_end_offset(self) -> int:
        return self._log.latest_snapshot.end_offset if self._log.latest_snapshot else -1

    @property
    def storage_failures_count(self) -> int:
        return self._queue.storage_failures_count

    # Commands

    async def _run(self, name: str, command: Callable[[], ControllerResult[T]]) -> T:
        self._metrics.commands.labels(name).increment()
        return await self._queue.run(command)

    async def register_broker(self, request: BrokerRegistrationRequest) -> int:
        """The broker epoch."""
        return await self._run(
            "RegisterBroker",
            lambda: self._cluster_control.register_broker(request, self._queue.next_offset, _now()),
        )

    async def process_heartbeat(self, request: BrokerHeartbeat) -> BrokerHeartbeatReply:
        def command() -> ControllerResult[BrokerHeartbeatReply]:
            result = self._cluster_control.process_heartbeat(request, _now())
            if result.response.begins_controlled_shutdown:
                last_offset = self._queue.next_offset + len(result.records) - 1
                self._cluster_control.heartbeats.begin_controlled_shutdown(request.broker_id, last_offset)
            return result

        return await self._run("ProcessBrokerHeartbeat", command)

    async def unregister_broker(self, broker_id: int) -> None:
        await self._run("UnregisterBroker", lambda: self._cluster_control.unregister_broker(broker_id))

    async def alter_partition(
        self, broker_id: int, broker_epoch: int, topics: Mapping[UUID, Sequence[AlterPartitionEntry]]
    ) -> dict[UUID, list[AlterPartitionResult]]:
        def command() -> ControllerResult[dict[UUID, list[AlterPartitionResult]]]:
            self._cluster_control.checked_registration(broker_id, broker_epoch)
            return self._replication_control.alter_partition(broker_id, topics)

        return await self._run("AlterPartition", command)

    async def assign_replicas_to_directories(
        self, broker_id: int, broker_epoch: int, assignments: Mapping[UUID, Mapping[UUID, Sequence[int]]]
    ) -> dict[PartitionKey, ErrorCode]:
        def command() -> ControllerResult[dict[PartitionKey, ErrorCode]]:
            self._cluster_control.checked_registration(broker_id, broker_epoch)
            return self._replication_control.assign_replicas_to_directories(broker_id, assignments)

        return await self._run("AssignReplicasToDirs", command)

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdsBlock:
        def command() -> ControllerResult[ProducerIdsBlock]:
            self._cluster_control.checked_registration(broker_id, broker_epoch)
            return self._producer_id_control.allocate_block(broker_id, broker_epoch)

        return await self._run("AllocateProducerIds", command)

    async def create_topics(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool = False
    ) -> list[CreateTopicResult]:
        return await self._run(
            "CreateTopics", lambda: self._topic_control.create_topics(topics, validate_only=validate_only)
        )

    async def create_partitions(
        self, topics: Sequence[CreatePartitionsTopic], *, validate_only: bool = False
    ) -> dict[str, ApiError]:
        return await self._run(
            "CreatePartitions", lambda: self._topic_control.create_partitions(topics, validate_only=validate_only)
        )

    async def delete_topics(self, names: Sequence[str], topic_ids: Sequence[UUID]) -> list[DeleteTopicResult]:
        return await self._run("DeleteTopics", lambda: self._topic_control.delete_topics(names, topic_ids))

    async def incremental_alter_configs(
        self, changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> dict[ConfigResource, ApiError]:
        return await self._run(
            "IncrementalAlterConfigs",
            lambda: _unless(validate_only, self._configuration_control.incremental_alter_configs(changes)),
        )

    async def legacy_alter_configs(
        self, properties: Mapping[ConfigResource, Mapping[str, str | None]], *, validate_only: bool = False
    ) -> dict[ConfigResource, ApiError]:
        return await self._run(
            "LegacyAlterConfigs",
            lambda: _unless(validate_only, self._configuration_control.legacy_alter_configs(properties)),
        )

    async def alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
    ) -> list[tuple[QuotaEntity, ApiError]]:
        return await self._run(
            "AlterClientQuotas",
            lambda: _unless(validate_only, self._client_quota_control.alter_client_quotas(alterations)),
        )

    async def elect_leaders(
        self, election_type: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, ApiError]:
        return await self._run(
            "ElectLeaders", lambda: self._replication_control.elect_leaders(election_type, partitions)
        )

    async def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, tuple[int, ...] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, ApiError]:
        return await self._run(
            "AlterPartitionReassignments",
            lambda: self._reassignment_control.alter_partition_reassignments(
                targets, allow_replication_factor_change=allow_replication_factor_change
            ),
        )

    async def list_partition_reassignments(
        self, topics: Mapping[str, Sequence[int]] | None
    ) -> dict[TopicPartition, OngoingReassignment]:
        """Moves under way, of the named partitions or of all (None)."""
        return await self._run(
            "ListPartitionReassignments",
            lambda: ControllerResult((), self._reassignment_control.list_partition_reassignments(topics)),
        )

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        await self._run(
            "UpdateFeatures", lambda: self._feature_control.update_features(updates, validate_only=validate_only)
        )


def _now() -> float:
    return asyncio.get_running_loop().time()


def _unless(validate_only: bool, result: ControllerResult[T]) -> ControllerResult[T]:
    return ControllerResult((), result.response) if validate_only else result
