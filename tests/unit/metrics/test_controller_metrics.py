from types import SimpleNamespace

from broker.metrics.controller_metrics import ControllerMetrics
from broker.metrics.registry import MetricsRegistry

from .scrape import scrape


def test_the_cluster_and_the_log_are_read_from_the_controller() -> None:
    registry = MetricsRegistry()
    controller = SimpleNamespace(
        is_active=True,
        active_broker_count=3,
        fenced_broker_count=1,
        topic_count=4,
        partition_count=40,
        offline_partition_count=2,
        preferred_replica_imbalance_count=5,
        leader_epoch=7,
        high_watermark=90,
        log_end_offset=100,
        log_size_bytes=4096,
        snapshot_end_offset=-1,
        storage_failures_count=6,
    )
    ControllerMetrics(registry).read_from(controller)
    seen = scrape(registry)
    prefix = "kafka_controller_kafkacontroller_"
    assert {name: seen[f"{prefix}{name}"] for name in ("activecontrollercount", "activebrokercount")} == {
        "activecontrollercount": 1,
        "activebrokercount": 3,
    }
    assert seen[f"{prefix}fencedbrokercount"] == 1
    assert (seen[f"{prefix}globaltopiccount"], seen[f"{prefix}globalpartitioncount"]) == (4, 40)
    assert (seen[f"{prefix}offlinepartitionscount"], seen[f"{prefix}preferredreplicaimbalancecount"]) == (2, 5)
    assert seen["kafka_server_raft_metrics_current_epoch"] == 7
    assert seen["kafka_server_raft_metrics_high_watermark"] == 90
    assert seen["kafka_server_raft_metrics_log_end_offset"] == 100
    assert seen["broker_controller_log_size_bytes"] == 4096
    assert seen["broker_controller_snapshot_end_offset"] == -1
    assert seen["broker_controller_storage_failures_total"] == 6
    controller.is_active = False
    assert scrape(registry)[f"{prefix}activecontrollercount"] == 0


def test_what_the_controller_counts() -> None:
    registry = MetricsRegistry()
    metrics = ControllerMetrics(registry)
    metrics.commands.labels("CreateTopics").increment()
    metrics.timed_out_heartbeats.increment(2)
    metrics.flush_seconds.observe(0.01)
    metrics.snapshot_seconds.observe(0.02)
    seen = scrape(registry)
    assert seen['broker_controller_commands_total{command="CreateTopics"}'] == 1
    assert seen["kafka_controller_kafkacontroller_timedoutbrokerheartbeatcount_total"] == 2
    assert (seen["broker_controller_flush_seconds_sum"], seen["broker_controller_snapshot_seconds_sum"]) == (0.01, 0.02)
