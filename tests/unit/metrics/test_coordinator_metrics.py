from collections.abc import Iterator, Mapping

import pytest

from broker.metrics.coordinator_metrics import CoordinatorMetrics
from broker.metrics.registry import DROPPED_SERIES, MetricsRegistry

PREFIX = "kafka_server_group_coordinator_metrics_"
MANAGER = "kafka_coordinator_group_groupmetadatamanager_"


class Facts:
    def __init__(self) -> None:
        self.offsets = [("g", "t", 0, 5), ("g", "t", 1, 200), ("g", "unknown", 0, 1), ("h", "t", 0, 100)]

    def group_counts_by_state(self) -> Mapping[str, int]:
        return {"Empty": 1, "PreparingRebalance": 2, "CompletingRebalance": 3, "Stable": 4, "Dead": 5}

    def offset_count(self) -> int:
        return len(self.offsets)

    def shard_counts_by_state(self) -> Mapping[str, int]:
        return {"loading": 1, "active": 2, "failed": 3}

    def committed_offsets(self) -> Iterator[tuple[str, str, int, int]]:
        return iter(self.offsets)


def sample(registry: MetricsRegistry, name: str, **labels: str) -> float | None:
    return registry.prometheus.get_sample_value(name, labels)


def metrics_of(registry: MetricsRegistry, **keywords: int) -> CoordinatorMetrics:
    metrics = CoordinatorMetrics(registry, **keywords)
    metrics.read_from(Facts(), lambda topic, partition: None if topic == "unknown" else 100 + partition)
    return metrics


def test_counters_move() -> None:
    registry = MetricsRegistry()
    metrics = metrics_of(registry)
    metrics.offsets_committed(3)
    metrics.offsets_expired(2)
    metrics.offsets_deleted(4)
    metrics.rebalance_completed()
    metrics.partition_loaded(0.2)
    assert sample(registry, f"{PREFIX}offset_commit_total") == 3
    assert sample(registry, f"{PREFIX}offset_expiration_total") == 2
    assert sample(registry, f"{PREFIX}offset_deletion_total") == 4
    assert sample(registry, f"{PREFIX}group_completed_rebalance_total") == 1
    assert sample(registry, "broker_group_partition_load_seconds_sum") == pytest.approx(0.2)
    assert sample(registry, "broker_group_partition_load_seconds_count") == 1


def test_gauges_read_the_coordinator() -> None:
    registry = MetricsRegistry()
    metrics_of(registry)
    expected = {
        "numgroups": 15,
        "numoffsets": 4,
        "numgroupsempty": 1,
        "numgroupspreparingrebalance": 2,
        "numgroupscompletingrebalance": 3,
        "numgroupsstable": 4,
    }
    assert {name: sample(registry, MANAGER + name) for name in expected} == expected
    assert [sample(registry, f"{PREFIX}num_partitions", state=state) for state in ("loading", "active", "failed")] == [
        1,
        2,
        3,
    ]


def test_the_lag_of_groups() -> None:
    registry = MetricsRegistry()
    metrics_of(registry)
    assert sample(registry, "broker_group_lag", group="g", topic="t", partition="0") == 95
    assert sample(registry, "broker_group_lag", group="g", topic="t", partition="1") == 0
    assert sample(registry, "broker_group_lag", group="h", topic="t", partition="0") == 0
    assert sample(registry, "broker_group_lag", group="g", topic="unknown", partition="0") is None


def test_lags_are_bounded_and_what_is_left_out_is_counted() -> None:
    registry = MetricsRegistry()
    metrics_of(registry, lag_series_max=2)
    assert sample(registry, "broker_group_lag", group="h", topic="t", partition="0") is None
    assert sample(registry, "broker_group_lag", group="g", topic="t", partition="1") == 0
    assert registry.dropped_series >= 1 and sample(registry, DROPPED_SERIES) is not None


def test_every_metric_names_its_bean_or_is_ours() -> None:
    registry = MetricsRegistry()
    metrics_of(registry)
    for definition in registry.definitions:
        assert definition.name.startswith("broker_") or definition.bean, definition.name
