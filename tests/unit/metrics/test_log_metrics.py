from types import SimpleNamespace

from broker.common.identifiers import TopicPartition
from broker.metrics.log_metrics import LogMetrics
from broker.metrics.registry import MetricsRegistry

from .scrape import scrape


def log(partition: int, **facts: int) -> SimpleNamespace:
    return SimpleNamespace(topic_partition=TopicPartition("orders", partition), **facts)


def test_each_log_is_read_at_scrape() -> None:
    registry = MetricsRegistry()
    metrics = LogMetrics(registry)
    first = log(0, size_bytes=100, segment_count=2, log_start_offset=5, log_end_offset=9, producer_count=3)
    second = log(1, size_bytes=200, segment_count=1, log_start_offset=0, log_end_offset=4, producer_count=4)
    metrics.observe(lambda: [first, second])
    seen = scrape(registry)
    of_first, of_second = '{partition="0",topic="orders"}', '{partition="1",topic="orders"}'
    assert (seen[f"kafka_log_log_size{of_first}"], seen[f"kafka_log_log_size{of_second}"]) == (100, 200)
    assert seen[f"kafka_log_log_numlogsegments{of_first}"] == 2
    assert seen[f"kafka_log_log_logstartoffset{of_first}"] == 5
    assert seen[f"kafka_log_log_logendoffset{of_first}"] == 9
    assert seen["kafka_server_replicamanager_produceridcount"] == 7
    first.size_bytes = 150
    assert scrape(registry)[f"kafka_log_log_size{of_first}"] == 150


def test_what_the_logs_and_their_manager_count() -> None:
    registry = MetricsRegistry()
    metrics = LogMetrics(registry)
    metrics.flush_seconds.observe(0.003)
    metrics.rolls.increment()
    metrics.deleted_segments.increment(2)
    metrics.storage_failures.increment(3)
    metrics.recovered_bytes.increment(400)
    metrics.truncated_bytes.increment(50)
    metrics.remaining_logs_to_recover = 6
    metrics.offline_directory_count = 1
    seen = scrape(registry)
    assert seen["broker_log_flush_seconds_count"] == 1
    assert seen["broker_log_segments_rolled_total"] == 1
    assert seen["broker_log_segments_deleted_total"] == 2
    assert seen["broker_log_storage_failures_total"] == 3
    assert seen["broker_log_recovered_bytes_total"] == 400
    assert seen["broker_log_recovery_cut_bytes_total"] == 50
    assert seen["kafka_log_logmanager_remaininglogstorecover"] == 6
    assert seen["kafka_log_logmanager_offlinelogdirectorycount"] == 1
