import re
from types import SimpleNamespace

import pytest
from prometheus_client import generate_latest

from broker.metrics.controller_metrics import ControllerMetrics
from broker.metrics.registry import MetricsRegistry

FACTS = SimpleNamespace(
    is_active=True,
    active_broker_count=3,
    fenced_broker_count=1,
    topic_count=7,
    partition_count=21,
    offline_partition_count=2,
    preferred_replica_imbalance_count=4,
    leader_epoch=5,
    high_watermark=100,
    log_end_offset=101,
    log_size_bytes=4096,
    snapshot_end_offset=90,
    storage_failures_count=6,
)


def scraped(registry: MetricsRegistry) -> dict[str, float]:
    text = generate_latest(registry.prometheus).decode()
    return {name: float(value) for name, value in re.findall(r"^([a-z_]+(?:\{[^}]*\})?) (\S+)$", text, re.MULTILINE)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka_controller_kafkacontroller_activecontrollercount", 1),
        ("kafka_controller_kafkacontroller_activebrokercount", 3),
        ("kafka_controller_kafkacontroller_fencedbrokercount", 1),
        ("kafka_controller_kafkacontroller_globaltopiccount", 7),
        ("kafka_controller_kafkacontroller_globalpartitioncount", 21),
        ("kafka_controller_kafkacontroller_offlinepartitionscount", 2),
        ("kafka_controller_kafkacontroller_preferredreplicaimbalancecount", 4),
        ("kafka_server_raft_metrics_current_epoch", 5),
        ("kafka_server_raft_metrics_high_watermark", 100),
        ("kafka_server_raft_metrics_log_end_offset", 101),
        ("broker_controller_log_size_bytes", 4096),
        ("broker_controller_snapshot_end_offset", 90),
        ("broker_controller_storage_failures_total", 6),
    ],
)
def test_gauges_read_the_controller(name: str, value: float) -> None:
    registry = MetricsRegistry()
    ControllerMetrics(registry).read_from(FACTS)
    assert scraped(registry)[name] == value


def test_counters_and_times_move() -> None:
    registry = MetricsRegistry()
    metrics = ControllerMetrics(registry)
    metrics.commands.labels("CreateTopics").increment()
    metrics.timed_out_heartbeats.increment()
    metrics.flush_seconds.observe(0.002)
    metrics.snapshot_seconds.observe(0.5)
    values = scraped(registry)
    assert values['broker_controller_commands_total{command="CreateTopics"}'] == 1
    assert values["kafka_controller_kafkacontroller_timedoutbrokerheartbeatcount_total"] == 1
    assert values["broker_controller_flush_seconds_count"] == 1
    assert values["broker_controller_snapshot_seconds_sum"] == 0.5
