"""BrokerServer: the broker half of a node; it builds its objects in the order in which they depend on each other."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

import structlog

from broker.common.byte_budget import ByteBudget
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.config.value_types import Listener
from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.log.log_manager import LogManager
from broker.metadata.config_repository import ConfigRepository
from broker.metadata.metadata_cache import MetadataCache
from broker.metrics.broker_metrics import BrokerMetrics
from broker.metrics.client_quota_metrics import ClientQuotaMetrics
from broker.metrics.coordinator_metrics import CoordinatorMetrics
from broker.metrics.fetcher_metrics import FetcherMetrics
from broker.metrics.log_metrics import LogMetrics
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.metrics.registry import MetricsRegistry
from broker.metrics.replication_metrics import ReplicationMetrics
from broker.metrics.replication_path_metrics import ReplicationPathMetrics
from broker.metrics.request_metrics import RequestMetrics
from broker.metrics.tiered_topics_metrics import TieredTopicsMetrics
from broker.network.broker_client import BrokerClient
from broker.network.byte_stream import Network
from broker.objectstore.fault_switch import FaultSwitch
from broker.replication.fetch_manager import FetchManager
from broker.replication.fetch_session_cache import FetchSessionCache
from broker.replication.replica_fetcher_manager import ReplicaFetcherManager
from broker.replication.replica_manager import ReplicaManager, monotonic_ms
from broker.replication.replica_selector import replica_selector
from broker.server import handlers
from broker.server.alter_partition_manager import ControllerAlterPartitionManager
from broker.server.api_registry import ApiRegistry
from broker.server.api_version_manager import ApiVersionManager
from broker.server.assignments_manager import AssignmentsManager
from broker.server.auto_topic_creation_manager import AutoTopicCreationManager
from broker.server.broker_features import BrokerFeatures
from broker.server.broker_identity import BrokerIdentity
from broker.server.broker_lifecycle_manager import BrokerLifecycleManager, BrokerStartError
from broker.server.broker_registration_tracker import BrokerRegistrationTracker
from broker.server.controller_finder import ControllerFinder, Endpoint
from broker.server.dispatcher import Dispatcher
from broker.server.dynamic_config_publisher import DynamicConfigPublisher
from broker.server.forwarding_manager import ForwardingManager
from broker.server.leader_connector import LeaderConnector
from broker.server.log_preparation import LogPreparation
from broker.server.metadata_observer import MetadataObserver
from broker.server.metadata_publisher import MetadataPublisher, PublishingStage
from broker.server.node_to_controller_channel import ControllerConnection, NodeToControllerChannel
from broker.server.outside import Outside
from broker.server.partition_writer import LogEndOffsets, ReplicaPartitionWriter
from broker.server.producer_id_manager import ProducerIdManager
from broker.server.quota_managers import QuotaManagers
from broker.server.socket_server import UNSENT_RESPONSE_BYTES_MAX, SocketServer
from broker.server.tiering.remote_log_topic_check import RemoteLogTopicCheck
from broker.server.tiering.tiered_reading import TieredReading
from broker.server.tiering.tiered_storage import TieredStorage
from broker.server.wal.remote_wal import RemoteWal
from broker.server.wal.remote_wal_topic_check import RemoteWalTopicCheck
from broker.server.wal.wal_reading import WalReading
from broker.tiering.remote_log_sweeper import KnownCluster

log = structlog.get_logger(__name__)

ASSIGNMENTS_TIMEOUT_MS: Final = 10_000
CONTROLLED_SHUTDOWN_TIMEOUT_MS: Final = 5_000  # a leadership that cannot move must not hold a stop for longer


class ControllerLink:
    """How this broker reaches the metadata quorum: who leads it, what it says, and a channel per purpose."""

    def __init__(
        self,
        config: BrokerConfig,
        identity: BrokerIdentity,
        controllers: Sequence[Endpoint],
        publisher: MetadataPublisher,
        network: Network,
    ) -> None:
        self._network = network
        self._client_id = f"broker-{identity.node_id}"
        voters = {voter.node_id: Endpoint(voter.host, voter.port) for voter in config.quorum_voters}
        self.finder = (
            ControllerFinder(controllers)
            if config.is_controller
            else ControllerFinder(controllers, voters, identity.node_id)
        )
        self.observer = MetadataObserver(
            finder=self.finder,
            connect=self.connect,
            publisher=publisher,
            identity=identity,
            fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
            request_timeout_ms=config.controller_quorum_request_timeout_ms,
            retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        )
        # Half a session: a heartbeat that is stuck leaves time for another one (kraft: heartbeat channel).
        self.heartbeats = self._channel("heartbeat", config.broker_session_timeout_ms // 2)
        self.forwarding = self._channel("forwarding", config.request_timeout_ms)
        self.producer_ids = self._channel("producer-ids", config.request_timeout_ms)
        self.assignments = self._channel("directory-assignments", config.request_timeout_ms)
        # Per attempt: a controller that stands still is left for its successor.  The whole has no limit.
        self.alter_partition = self._channel("alter-partition", config.broker_session_timeout_ms)

    @property
    def channels(self) -> tuple[NodeToControllerChannel, ...]:
        return (self.heartbeats, self.forwarding, self.producer_ids, self.assignments, self.alter_partition)

    def connect(self, endpoint: Endpoint) -> ControllerConnection:
        return BrokerClient(endpoint.host, endpoint.port, self._client_id, network=self._network)

    def _channel(self, purpose: str, request_timeout_ms: int) -> NodeToControllerChannel:
        return NodeToControllerChannel(purpose, self.finder, self.connect, request_timeout_ms=request_timeout_ms)


class BrokerServer:
    """Life: construct, `start`, `stop`.  Construction only wires; nothing runs or waits before `start`."""

    def __init__(
        self,
        config: ConfigHolder[BrokerConfig],
        identity: BrokerIdentity,
        controllers: Sequence[Endpoint],
        outside: Outside,
        *,
        registry: MetricsRegistry,
        request_metrics: RequestMetrics,
        faults: FaultSwitch | None = None,
    ) -> None:
        """`faults` can be set in what buckets answer.  ConfigError."""
        self.config, self.identity, self._outside = config, identity, outside
        self.cache = MetadataCache()
        self.publisher = MetadataPublisher(self.cache)
        self.publisher.hold()
        self.repository = ConfigRepository(config.current, self.cache)
        self.remote_wal_topics = RemoteWalTopicCheck(self.repository)
        self.tiered_topics = RemoteLogTopicCheck(self.repository)
        self.link = ControllerLink(config.current, identity, controllers, self.publisher, outside.network)
        self.lifecycle = BrokerLifecycleManager(
            identity=identity,
            config=config,
            channel=self.link.heartbeats,
            highest_metadata_offset=lambda: self.link.observer.applied_offset,
            finalized_features=lambda: self.link.observer.finalized_features,
        )
        self.forwarding = ForwardingManager(self.link.forwarding)
        self.topic_creation = AutoTopicCreationManager(self.cache, self.forwarding, config)
        self.producer_ids = ProducerIdManager(
            self.link.producer_ids, identity.node_id, lambda: self.lifecycle.broker_epoch
        )
        self.logs = self._build_logs(LogMetrics(registry))
        self.alter_partition = self._build_alter_partition()
        self.leaders = LeaderConnector(
            identity.node_id, config, self.cache, lambda: self.lifecycle.broker_epoch, outside.network
        )
        store_metrics = ObjectStoreMetrics(registry)
        self.wal_reading = self._build_wal_reading(store_metrics, faults)
        self.tiered_reading = self._build_tiered_reading(store_metrics, faults)
        self.fetchers = self._build_fetchers()
        self.assignments = AssignmentsManager(
            self.link.assignments, identity, lambda: self.lifecycle.broker_epoch, self.cache
        )
        answer_budget = ByteBudget(UNSENT_RESPONSE_BYTES_MAX)
        self.replicas = self._build_replicas(answer_budget)
        self.wal = self._build_wal()
        self.tiered = self._build_tiered()
        self.sessions = FetchSessionCache(config.current.max_incremental_fetch_session_cache_slots, outside.chance)
        self.groups = self._build_groups(CoordinatorMetrics(registry))
        self.quotas = QuotaManagers(config.current, monotonic_ms, request_metrics.stopwatch)
        self._observe(registry)
        self._subscribe()
        self._dispatcher = self._build_dispatcher(request_metrics)
        self.sockets = SocketServer(config, self._dispatcher, outside.network, answer_budget)
        self.ports: dict[str, int] = {}
        self._stack = AsyncExitStack()

    def _build_logs(self, metrics: LogMetrics) -> LogManager:
        return LogManager(
            self.config,
            clock=self._outside.clock,
            file_system=self._outside.file_system,
            disk=self._outside.disk,
            chance=self._outside.chance,
            metrics=metrics,
            topic_config=self.repository.topic_config,
        )

    def _build_alter_partition(self) -> ControllerAlterPartitionManager:
        return ControllerAlterPartitionManager(
            self.link.alter_partition,
            self.identity.node_id,
            lambda: self.lifecycle.broker_epoch,
            controller_versions=lambda: self.link.observer.controller_versions,
        )

    def _build_replicas(self, answer_budget: ByteBudget) -> ReplicaManager:
        return ReplicaManager(
            local_broker_id=self.identity.node_id,
            config=self.config,
            log_manager=self.logs,
            metadata_cache=self.cache,
            disk=self._outside.disk,
            clock=self._outside.clock,
            alter_partition_manager=self.alter_partition,
            broker_epoch=lambda: self.lifecycle.broker_epoch,
            is_fenced=lambda: self.lifecycle.is_fenced,
            answer_budget=answer_budget,
            replica_selector=replica_selector(
                self.config.current.replica_selector_class, self.identity.node_id, self.cache, monotonic_ms
            ),
            fetchers=self.fetchers,
            remote_log=None if self.tiered_reading is None else self.tiered_reading.access,
        )

    def _build_wal_reading(self, metrics: ObjectStoreMetrics, faults: FaultSwitch | None) -> WalReading | None:
        if not self.config.current.remote_wal_storage_system_enable:
            return None
        return WalReading(
            self.config,
            self.identity,
            self.cache,
            self.repository,
            self.leaders,
            self._outside,
            metrics=metrics,
            faults=faults,
        )

    def _build_tiered_reading(self, metrics: ObjectStoreMetrics, faults: FaultSwitch | None) -> TieredReading | None:
        if not self.config.current.remote_log_storage_system_enable:
            return None
        return TieredReading(
            self.config,
            self.identity,
            self.cache,
            self.forwarding,
            self._outside,
            metrics=metrics,
            faults=faults,
            on_fatal=_end_broker,
        )

    def _build_fetchers(self) -> ReplicaFetcherManager:
        return ReplicaFetcherManager(
            self.identity.node_id,
            self.config,
            self.leaders.address_of,
            self.leaders.connect,
            make_bucket_follower=None if self.wal_reading is None else self.wal_reading.fetcher.make_follower,
            remote_log=None if self.tiered_reading is None else self.tiered_reading.access,
        )

    def _build_wal(self) -> RemoteWal | None:
        if self.wal_reading is None:
            return None
        return RemoteWal(self.wal_reading, self.replicas, self.fetchers, self.lifecycle, self.forwarding)

    def _build_tiered(self) -> TieredStorage | None:
        if self.tiered_reading is None:
            return None
        return TieredStorage(self.tiered_reading, self.replicas, self._known_cluster)

    def _known_cluster(self) -> KnownCluster:
        observer = self.link.observer
        is_caught_up = not self.lifecycle.is_fenced and observer.fault is None and observer.lag == 0
        return KnownCluster(self.cache.image, is_caught_up)

    def _build_groups(self, metrics: CoordinatorMetrics) -> GroupCoordinator:
        outside = self._outside
        writer = ReplicaPartitionWriter(self.replicas, outside.disk)
        groups = GroupCoordinator(self.config, outside.clock, outside.chance, writer, metrics)
        metrics.read_from(groups, LogEndOffsets(self.replicas))
        return groups

    def _observe(self, registry: MetricsRegistry) -> None:
        BrokerMetrics(registry).observe(
            lifecycle=self.lifecycle,
            observer=self.link.observer,
            publisher=self.publisher,
            forwarding=self.forwarding,
            alter_partition=self.alter_partition,
            assignments=self.assignments,
        )
        FetcherMetrics(registry).observe(self.fetchers)
        ClientQuotaMetrics(registry).observe(self.quotas)
        replication_metrics = ReplicationMetrics(registry)
        replication_metrics.observe(self.replicas)
        replication_metrics.observe_sessions(self.sessions)
        ReplicationPathMetrics(registry).observe(
            self.replicas,
            own_zone=self.config.current.broker_rack,
            zone_of=self.cache.rack_of,
            monotonic_ms=monotonic_ms,
        )
        if self.wal is not None:
            self.wal.observe(registry, self.remote_wal_topics)
        TieredTopicsMetrics(registry).observe(self.tiered_topics)
        if self.tiered is not None:
            self.tiered.observe(registry)

    def _subscribe(self) -> None:
        configs = DynamicConfigPublisher(self.config, self.repository, self.logs)
        self.publisher.prepare_with("logs", LogPreparation(self.identity.node_id, self.repository, self.logs).prepare)
        self.publisher.subscribe(PublishingStage.CONFIGS_BEFORE_REPLICAS, "configs", configs.on_metadata)
        self.publisher.subscribe(PublishingStage.CONFIGS, "remote-wal-topics", self.remote_wal_topics.on_metadata)
        self.publisher.subscribe(PublishingStage.CONFIGS, "tiered-topics", self.tiered_topics.on_metadata)
        self.publisher.subscribe(PublishingStage.REPLICAS, "replicas", self.replicas.apply_metadata)
        if self.tiered is not None:
            self.publisher.subscribe(PublishingStage.REPLICAS, "tiered-storage", self.tiered.manager.on_metadata)
        if self.wal is not None:
            self.publisher.subscribe(PublishingStage.REPLICAS, "remote-wal", self.wal.manager.on_metadata)
        self.publisher.subscribe(PublishingStage.REPLICAS, "assignments", self.assignments.on_metadata)
        self.publisher.subscribe(PublishingStage.COORDINATORS, "groups", self.groups.on_metadata)
        self.publisher.subscribe(PublishingStage.QUOTAS, "quotas", self.quotas.on_metadata)
        registration = BrokerRegistrationTracker(
            self.identity.node_id, lambda: self.lifecycle.broker_epoch, self.lifecycle.register_again
        )
        self.publisher.subscribe(PublishingStage.LAST, "registration", registration.on_metadata)

    def _build_dispatcher(self, request_metrics: RequestMetrics) -> Dispatcher:
        apis = ApiRegistry.from_package(handlers)
        fetches = FetchManager(self.sessions, monotonic_ms=monotonic_ms, topic_name=self.cache.topic_name)
        services = (
            ApiVersionManager(apis, BrokerFeatures(self.cache), lambda: self.link.observer.controller_versions),
            self.config,
            self.identity,
            self.cache,
            self.repository,
            self.replicas,
            fetches,
            self.forwarding,
            self.topic_creation,
            self.producer_ids,
            *self.groups.services,
        )
        return Dispatcher(apis, services, request_metrics, self._outside.disk, self.quotas)

    @property
    def is_ready(self) -> bool:
        """Whether clients are served: unfenced, following the metadata, with open listeners."""
        is_following = self.lifecycle.is_running and not self.lifecycle.is_fenced and self.link.observer.fault is None
        return is_following and self.sockets.is_accepting

    async def start(self) -> None:
        """Load the logs, join the cluster, and open the listeners once the controller has let us in.

        ConfigError, BrokerStartError, StorageFailure or OSError say why not; what had been started is stopped again.
        """
        async with AsyncExitStack() as stack:
            await self.logs.start()
            stack.push_async_callback(self._close_logs)
            await stack.enter_async_context(self.logs.running())
            await stack.enter_async_context(self.replicas.running())
            if self.wal_reading is not None:
                await stack.enter_async_context(self.wal_reading.running())
            if self.tiered_reading is not None:
                await stack.enter_async_context(self.tiered_reading.running())
            await stack.enter_async_context(self.fetchers.running())
            for channel in self.link.channels:
                await stack.enter_async_context(channel.running())
            await stack.enter_async_context(self.alter_partition.running())
            await stack.enter_async_context(self.assignments.running())
            if self.wal is not None:
                await stack.enter_async_context(self.wal.running())
            if self.tiered is not None:
                await stack.enter_async_context(self.tiered.running())
            await self.groups.startup()
            stack.push_async_callback(self.groups.shutdown)
            await stack.enter_async_context(self.link.observer.running())
            for owner in (self.topic_creation, self.producer_ids, self._dispatcher, self.lifecycle):
                await stack.enter_async_context(owner.running())
            await stack.enter_async_context(self.sockets.running())
            for name, host, port, protocol in self.config.current.broker_listeners:
                self.ports[name] = await self.sockets.bind(name, host, port, protocol)
            await self.lifecycle.start(self.advertised_listeners(), self.logs.previous_broker_epoch)
            await self.lifecycle.wait_until_caught_up()
            self.remote_wal_topics.check_start(self.cache.image)
            self.tiered_topics.check_start(self.cache.image)
            self.replicas.set_stray_logs_aside(self.cache.image)
            await self.publisher.release()
            await self.assignments.wait_until_told(ASSIGNMENTS_TIMEOUT_MS)
            self.lifecycle.set_ready_to_unfence()
            await self.lifecycle.wait_until_unfenced()
            await self.sockets.start_accepting()
            self._stack = stack.pop_all()

    def advertised_listeners(self) -> list[Listener]:
        """What clients dial: as configured, with the bound port where 0 was asked for."""
        return [
            listener if listener.port else listener._replace(port=self.ports[listener.name])
            for listener in self.config.current.advertised_broker_listeners
        ]

    async def _close_logs(self) -> None:
        await self.logs.shutdown(self.lifecycle.broker_epoch)

    async def stop(self) -> None:
        """Hand over leadership, close listeners and connections, then flush and close the logs."""
        if self.wal is not None:
            await self.wal.combiner.flush()
        if self.config.current.controlled_shutdown_enable:
            await self.lifecycle.controlled_shutdown(CONTROLLED_SHUTDOWN_TIMEOUT_MS)
        self.sockets.stop_accepting()
        await self._stack.aclose()


def _end_broker(error: Exception) -> None:
    """What tiered storage cannot do without is not there: the loop's handler ends the process, as it ends one that the
    cluster does not want."""
    ending = BrokerStartError(str(error))
    asyncio.get_running_loop().call_exception_handler({"message": str(error), "exception": ending})
