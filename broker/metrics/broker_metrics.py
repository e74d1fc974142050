"""BrokerMetrics: this broker's place in the cluster, and how closely it follows the cluster's metadata."""

from collections.abc import Callable, Iterable, Sized
from typing import Protocol

from broker.metrics.registry import MetricsRegistry, Sample


class MeasuredLifecycle(Protocol):
    """What a scrape reads of the lifecycle manager."""

    @property
    def state(self) -> int: ...
    @property
    def is_fenced(self) -> bool: ...
    @property
    def broker_epoch(self) -> int: ...
    @property
    def failed_heartbeat_count(self) -> int: ...


class MeasuredObserver(Protocol):
    """What a scrape reads of the metadata observer."""

    @property
    def applied_offset(self) -> int: ...
    @property
    def lag(self) -> int: ...
    @property
    def load_error_count(self) -> int: ...


class MeasuredPublisher(Protocol):
    @property
    def error_count(self) -> int: ...


class MeasuredForwarding(Protocol):
    @property
    def queue_size(self) -> int: ...
    @property
    def forwarded_count(self) -> int: ...


class BrokerMetrics:
    """Nothing is counted here: `observe` names the owners."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._lifecycle: MeasuredLifecycle | None = None
        self._observer: MeasuredObserver | None = None
        self._publisher: MeasuredPublisher | None = None
        self._forwarding: MeasuredForwarding | None = None
        self._alter_partition: Sized = ()
        self._assignments: Sized = ()
        self._lifecycle_metrics()
        self._metadata_metrics()
        self._forwarding_metrics()
        self._what_the_controller_owes()

    def observe(
        self,
        *,
        lifecycle: MeasuredLifecycle,
        observer: MeasuredObserver,
        publisher: MeasuredPublisher,
        forwarding: MeasuredForwarding,
        alter_partition: Sized = (),
        assignments: Sized = (),
    ) -> None:
        """`alter_partition` and `assignments` have the size of what the controller has not answered yet."""
        self._lifecycle = lifecycle
        self._observer = observer
        self._publisher = publisher
        self._forwarding = forwarding
        self._alter_partition = alter_partition
        self._assignments = assignments

    def _lifecycle_metrics(self) -> None:
        self._registry.gauge(
            "kafka_server_kafkaserver_brokerstate",
            "0 not running, 1 starting, 2 recovering logs, 3 running, 6 handing leadership over, 7 shutting down.",
            lambda: 0 if self._lifecycle is None else int(self._lifecycle.state),
            bean="kafka.server:type=KafkaServer,name=BrokerState",
        )
        self._registry.gauge(
            "broker_fenced",
            "1 while this broker may not lead: the controller fenced it, or has not been heard for a session.",
            lambda: 1 if self._lifecycle is None or self._lifecycle.is_fenced else 0,
            action="Look at the way to the controller, and for long pauses of this process.",
        )
        self._registry.gauge(
            "broker_epoch",
            "The epoch of this broker's registration, -1 without one.",
            lambda: -1 if self._lifecycle is None else self._lifecycle.broker_epoch,
        )
        self._counter(
            "broker_heartbeat_failures_total",
            "Heartbeats the controller did not answer, or answered with an error.",
            lambda: None if self._lifecycle is None else self._lifecycle.failed_heartbeat_count,
        )

    def _metadata_metrics(self) -> None:
        self._registry.gauge(
            "kafka_server_broker_metadata_metrics_last_applied_record_offset",
            "The last offset of the metadata log every part of this broker knows of.",
            lambda: -1 if self._observer is None else self._observer.applied_offset,
            bean="kafka.server:type=broker-metadata-metrics,name=last-applied-record-offset",
        )
        self._registry.gauge(
            "broker_metadata_lag_records",
            "Committed records of the metadata log this broker has not applied yet.",
            lambda: 0 if self._observer is None else self._observer.lag,
            action="A lag that stays means a stopped observer: look for metadata_fault in the log.",
        )
        self._counter(
            "kafka_server_broker_metadata_metrics_metadata_load_error_total",
            "Batches of the metadata log that could not be read or applied.",
            lambda: None if self._observer is None else self._observer.load_error_count,
            bean="kafka.server:type=broker-metadata-metrics,name=metadata-load-error-count",
            action="The cluster may use a newer metadata.version than this broker knows: upgrade it.",
        )
        self._counter(
            "kafka_server_broker_metadata_metrics_metadata_apply_error_total",
            "Times a part of this broker failed to follow a change of the cluster.",
            lambda: None if self._publisher is None else self._publisher.error_count,
            bean="kafka.server:type=broker-metadata-metrics,name=metadata-apply-error-count",
            action="Restart this broker, and report the traceback of metadata_not_applied.",
        )

    def _forwarding_metrics(self) -> None:
        self._registry.gauge(
            "kafka_server_forwardingmanager_queuelength",
            "Requests that wait for the controller.",
            lambda: 0 if self._forwarding is None else self._forwarding.queue_size,
            bean="kafka.server:type=ForwardingManager,name=QueueLength",
        )
        self._counter(
            "broker_forwarded_requests_total",
            "Requests of clients sent on to the controller.",
            lambda: None if self._forwarding is None else self._forwarding.forwarded_count,
        )

    def _what_the_controller_owes(self) -> None:
        self._registry.gauge(
            "broker_isr_changes_waiting",
            "Changes of in-sync replicas the controller has not answered yet.",
            lambda: len(self._alter_partition),
            action="Look at the way to the controller: acks=all waits for replicas that have gone meanwhile.",
        )
        self._registry.gauge(
            "kafka_server_assignmentsmanager_queuedreplicatodirassignments",
            "Replicas whose log directory the controller has still to note.",
            lambda: len(self._assignments),
            bean="kafka.server:type=AssignmentsManager,name=QueuedReplicaToDirAssignments",
            action="Until then they cannot lead: assignments_refused in the log says why.",
        )

    def _counter(
        self,
        name: str,
        documentation: str,
        value: Callable[[], int | None],
        *,
        bean: str | None = None,
        action: str | None = None,
    ) -> None:
        def read() -> Iterable[Sample]:
            count = value()
            if count is not None:
                yield (), count

        self._registry.collected(name, "counter", documentation, (), read, bean=bean, action=action)
