from types import SimpleNamespace

from broker.metrics.broker_metrics import BrokerMetrics
from broker.metrics.registry import MetricsRegistry


def scraped(registry: MetricsRegistry) -> dict[str, float]:
    return {
        sample.name: sample.value
        for family in registry.prometheus.collect()
        for sample in family.samples
        if not sample.name.startswith("broker_metrics_")
    }


def test_before_anything_is_known_the_broker_is_fenced_and_not_running() -> None:
    registry = MetricsRegistry()
    BrokerMetrics(registry)
    assert scraped(registry) == {
        "kafka_server_kafkaserver_brokerstate": 0,
        "broker_fenced": 1,
        "broker_epoch": -1,
        "kafka_server_broker_metadata_metrics_last_applied_record_offset": -1,
        "broker_metadata_lag_records": 0,
        "kafka_server_forwardingmanager_queuelength": 0,
        "broker_isr_changes_waiting": 0,
        "kafka_server_assignmentsmanager_queuedreplicatodirassignments": 0,
    }


def test_every_value_is_read_from_its_owner() -> None:
    registry = MetricsRegistry()
    metrics = BrokerMetrics(registry)
    lifecycle = SimpleNamespace(state=3, is_fenced=False, broker_epoch=42, failed_heartbeat_count=5)
    observer = SimpleNamespace(applied_offset=100, lag=7, load_error_count=1)
    publisher = SimpleNamespace(error_count=2)
    forwarding = SimpleNamespace(queue_size=3, forwarded_count=11)
    metrics.observe(
        lifecycle=lifecycle,
        observer=observer,
        publisher=publisher,
        forwarding=forwarding,
        alter_partition=range(4),
        assignments=range(6),
    )
    assert scraped(registry) == {
        "kafka_server_kafkaserver_brokerstate": 3,
        "broker_fenced": 0,
        "broker_epoch": 42,
        "broker_heartbeat_failures_total": 5,
        "kafka_server_broker_metadata_metrics_last_applied_record_offset": 100,
        "broker_metadata_lag_records": 7,
        "kafka_server_broker_metadata_metrics_metadata_load_error_total": 1,
        "kafka_server_broker_metadata_metrics_metadata_apply_error_total": 2,
        "kafka_server_forwardingmanager_queuelength": 3,
        "broker_forwarded_requests_total": 11,
        "broker_isr_changes_waiting": 4,
        "kafka_server_assignmentsmanager_queuedreplicatodirassignments": 6,
    }
    lifecycle.is_fenced = True
    assert scraped(registry)["broker_fenced"] == 1
