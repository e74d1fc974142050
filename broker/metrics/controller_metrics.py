"""ControllerMetrics: what the embedded controller did, and the state of the cluster as it knows it."""

from typing import Protocol

from broker.metrics.registry import MetricsRegistry

_CONTROLLER = "kafka_controller_kafkacontroller"
_CONTROLLER_BEAN = "kafka.controller:type=KafkaController,name="
_RAFT = "kafka_server_raft_metrics"
_RAFT_BEAN = "kafka.server:type=raft-metrics,name="


class ControllerFacts(Protocol):
    """What is read from the controller at scrape."""

    @property
    def is_active(self) -> bool: ...
    @property
    def active_broker_count(self) -> int: ...
    @property
    def fenced_broker_count(self) -> int: ...
    @property
    def topic_count(self) -> int: ...
    @property
    def partition_count(self) -> int: ...
    @property
    def offline_partition_count(self) -> int: ...
    @property
    def preferred_replica_imbalance_count(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def log_size_bytes(self) -> int: ...
    @property
    def snapshot_end_offset(self) -> int: ...
    @property
    def storage_failures_count(self) -> int: ...


class ControllerMetrics:
    """Counters and times moved by the controller.  `read_from` adds what is read from it once it exists."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self.commands = registry.counter(
            "broker_controller_commands_total", "Commands the controller carried out.", ("command",)
        )
        self.timed_out_heartbeats = registry.counter(
            f"{_CONTROLLER}_timedoutbrokerheartbeatcount_total",
            "Brokers fenced because they were silent for a whole session.",
            bean=f"{_CONTROLLER_BEAN}TimedOutBrokerHeartbeatCount",
            action="Look at the broker that was fenced: is it down, stopped, or cut off from the controller?",
        )
        self.flush_seconds = registry.histogram(
            "broker_controller_flush_seconds",
            "Time to flush one batch of the metadata log; every change of the cluster waits for one.",
            action="If it rises, the disk of the controller is busy or failing.",
        )
        self.snapshot_seconds = registry.histogram(
            "broker_controller_snapshot_seconds", "Time to write one snapshot of the cluster's metadata."
        )

    def read_from(self, controller: ControllerFacts) -> None:
        """Register the gauges; called once, when the controller is built."""
        registry = self._registry
        registry.gauge(
            f"{_CONTROLLER}_activecontrollercount",
            "1 while this node's controller leads.",
            lambda: controller.is_active,
            bean=f"{_CONTROLLER_BEAN}ActiveControllerCount",
            action="The sum over all controllers must be 1.",
        )
        self._read_cluster(controller)
        self._read_log(controller)

    def _read_cluster(self, controller: ControllerFacts) -> None:
        registry = self._registry
        registry.gauge(
            f"{_CONTROLLER}_activebrokercount",
            "Brokers that may serve.",
            lambda: controller.active_broker_count,
            bean=f"{_CONTROLLER_BEAN}ActiveBrokerCount",
        )
        registry.gauge(
            f"{_CONTROLLER}_fencedbrokercount",
            "Brokers that are registered and fenced.",
            lambda: controller.fenced_broker_count,
            bean=f"{_CONTROLLER_BEAN}FencedBrokerCount",
            action="Start them again, or unregister those that will not come back.",
        )
        registry.gauge(
            f"{_CONTROLLER}_globaltopiccount",
            "Topics of the cluster.",
            lambda: controller.topic_count,
            bean=f"{_CONTROLLER_BEAN}GlobalTopicCount",
        )
        registry.gauge(
            f"{_CONTROLLER}_globalpartitioncount",
            "Partitions of the cluster.",
            lambda: controller.partition_count,
            bean=f"{_CONTROLLER_BEAN}GlobalPartitionCount",
        )
        registry.gauge(
            f"{_CONTROLLER}_offlinepartitionscount",
            "Partitions without a leader.",
            lambda: controller.offline_partition_count,
            bean=f"{_CONTROLLER_BEAN}OfflinePartitionsCount",
            action="Bring a broker of their in-sync replicas back.",
        )
        registry.gauge(
            f"{_CONTROLLER}_preferredreplicaimbalancecount",
            "Partitions led by another than their preferred replica.",
            lambda: controller.preferred_replica_imbalance_count,
            bean=f"{_CONTROLLER_BEAN}PreferredReplicaImbalanceCount",
        )

    def _read_log(self, controller: ControllerFacts) -> None:
        registry = self._registry
        registry.gauge(
            f"{_RAFT}_current_epoch",
            "The leader epoch of the metadata log; each start of the controller is a new one.",
            lambda: controller.leader_epoch,
            bean=f"{_RAFT_BEAN}current-epoch",
        )
        registry.gauge(
            f"{_RAFT}_high_watermark",
            "Below this offset the metadata log is durable.",
            lambda: controller.high_watermark,
            bean=f"{_RAFT_BEAN}high-watermark",
        )
        registry.gauge(
            f"{_RAFT}_log_end_offset",
            "The end of the metadata log.",
            lambda: controller.log_end_offset,
            bean=f"{_RAFT_BEAN}log-end-offset",
        )
        registry.gauge(
            "broker_controller_log_size_bytes",
            "Bytes of the metadata log on the disk, snapshots not counted.",
            lambda: controller.log_size_bytes,
        )
        registry.gauge(
            "broker_controller_snapshot_end_offset",
            "Where the latest snapshot ends; -1 without one.",
            lambda: controller.snapshot_end_offset,
        )
        registry.collected(
            "broker_controller_storage_failures_total",
            "counter",
            "Batches of the metadata log that the disk refused; their commands were answered with an error.",
            (),
            lambda: [((), controller.storage_failures_count)],
            action="Look for a full or failing disk.",
        )
