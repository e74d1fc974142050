"""LogMetrics: each metric is moved by what it counts."""

from typing import Any

import pytest
from prometheus_client import generate_latest

from broker.common.identifiers import TopicPartition
from broker.metrics.log_metrics import LogMetrics
from broker.metrics.registry import MetricsRegistry


class FakeLog:
    topic_partition = TopicPartition("t", 3)
    size_bytes = 1000
    segment_count = 2
    log_start_offset = 5
    log_end_offset = 50
    producer_count = 7


def scrape(registry: MetricsRegistry) -> dict[str, float]:
    lines = generate_latest(registry.prometheus).decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def make() -> tuple[MetricsRegistry, LogMetrics]:
    registry = MetricsRegistry()
    return registry, LogMetrics(registry)


def test_gauges_read_the_logs() -> None:
    registry, metrics = make()
    assert "kafka_log_log_size" not in scrape(registry)
    metrics.observe(lambda: [FakeLog()])
    metrics.remaining_logs_to_recover = 4
    found = scrape(registry)
    where = '{partition="3",topic="t"}'
    assert found["kafka_log_log_size" + where] == 1000
    assert found["kafka_log_log_numlogsegments" + where] == 2
    assert found["kafka_log_log_logstartoffset" + where] == 5
    assert found["kafka_log_log_logendoffset" + where] == 50
    assert found["kafka_server_replicamanager_produceridcount"] == 7
    assert found["kafka_log_logmanager_remaininglogstorecover"] == 4


def test_counters_and_the_flush_histogram() -> None:
    registry, metrics = make()
    counters: dict[str, Any] = {
        "broker_log_segments_rolled_total": metrics.rolls,
        "broker_log_segments_deleted_total": metrics.deleted_segments,
        "broker_log_storage_failures_total": metrics.storage_failures,
        "broker_log_recovered_bytes_total": metrics.recovered_bytes,
        "broker_log_recovery_cut_bytes_total": metrics.truncated_bytes,
    }
    for number, counter in enumerate(counters.values(), 1):
        counter.increment(number)
    metrics.flush_seconds.observe(0.2)
    found = scrape(registry)
    assert [found[name] for name in counters] == [1, 2, 3, 4, 5]
    assert found["broker_log_flush_seconds_count"] == 1
    assert found["broker_log_flush_seconds_sum"] == 0.2


def test_what_the_cleaner_sees_and_does(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, metrics = make()
    assert scrape(registry)["kafka_log_logcleanermanager_time_since_last_run_ms"] == 0
    now = 100.0
    monkeypatch.setattr("broker.metrics.log_metrics.time.perf_counter", lambda: now)
    cleaner = metrics.cleaner
    cleaner.looked(0.25, 7.5, 2, 4000)
    cleaner.cleaned(1000, 400, 3.5, 0.5)
    cleaner.cleaned(1000, 100, 1.5, 0.75)
    cleaner.failures.increment()
    now = 101.0
    found = scrape(registry)
    assert {name: value for name, value in found.items() if "cleaner" in name} == {
        "kafka_log_logcleanermanager_max_dirty_percent": 25,
        "kafka_log_logcleanermanager_time_since_last_run_ms": 1000,
        "kafka_log_logcleanermanager_uncleanable_partitions_count": 2,
        "kafka_log_logcleanermanager_uncleanable_bytes": 4000,
        "kafka_log_logcleaner_max_compaction_delay_secs": 7.5,
        "kafka_log_logcleaner_cleaner_recopy_percent": 10,
        "kafka_log_logcleaner_max_clean_time_secs": 1.5,
        "kafka_log_logcleaner_max_buffer_utilization_percent": 75,
        "broker_log_cleaner_passes_total": 2,
        "broker_log_cleaner_failures_total": 1,
        "broker_log_cleaner_read_bytes_total": 2000,
        "broker_log_cleaner_written_bytes_total": 500,
    }


def test_a_pass_over_nothing_has_copied_nothing() -> None:
    registry, metrics = make()
    metrics.cleaner.cleaned(0, 0, 1, 0)
    assert scrape(registry)["kafka_log_logcleaner_cleaner_recopy_percent"] == 0
