from collections.abc import Iterator, Mapping

from broker.metrics.coordinator_metrics import CoordinatorMetrics
from broker.metrics.registry import DROPPED_SERIES, MetricsRegistry

from .scrape import scrape


class Groups:
    """What a coordinator of three groups tells."""

    def group_counts_by_state(self) -> Mapping[str, int]:
        return {"PreparingRebalance": 1, "CompletingRebalance": 0, "Stable": 2, "Dead": 0, "Empty": 4}

    def offset_count(self) -> int:
        return 11

    def shard_counts_by_state(self) -> Mapping[str, int]:
        return {"active": 50, "loading": 0}

    def committed_offsets(self) -> Iterator[tuple[str, str, int, int]]:
        yield "billing", "orders", 0, 40
        yield "billing", "orders", 1, 120
        yield "audit", "elsewhere", 0, 1


def log_end_offset(topic: str, partition: int) -> int | None:
    return {("orders", 0): 100, ("orders", 1): 100}.get((topic, partition))


def test_groups_are_read_from_their_coordinator() -> None:
    registry = MetricsRegistry()
    CoordinatorMetrics(registry).read_from(Groups(), log_end_offset)
    seen = scrape(registry)
    prefix = "kafka_coordinator_group_groupmetadatamanager_numgroups"
    assert [seen[prefix + state] for state in ("", "preparingrebalance", "completingrebalance", "stable", "empty")] == [
        7,
        1,
        0,
        2,
        4,
    ]
    assert seen["kafka_coordinator_group_groupmetadatamanager_numoffsets"] == 11
    assert seen['kafka_server_group_coordinator_metrics_num_partitions{state="active"}'] == 50


def test_lag_is_for_partitions_held_here_and_never_negative() -> None:
    registry = MetricsRegistry()
    CoordinatorMetrics(registry).read_from(Groups(), log_end_offset)
    assert {name: value for name, value in scrape(registry).items() if name.startswith("broker_group_lag")} == {
        'broker_group_lag{group="billing",partition="0",topic="orders"}': 60,
        'broker_group_lag{group="billing",partition="1",topic="orders"}': 0,
    }


def test_lag_beyond_the_bound_of_series_is_dropped_and_counted() -> None:
    registry = MetricsRegistry()
    CoordinatorMetrics(registry, lag_series_max=1).read_from(Groups(), log_end_offset)
    seen = scrape(registry)
    assert [name for name in seen if name.startswith("broker_group_lag")] == [
        'broker_group_lag{group="billing",partition="0",topic="orders"}'
    ]
    assert scrape(registry)[DROPPED_SERIES] == 1


def test_what_the_coordinator_counts() -> None:
    registry = MetricsRegistry()
    metrics = CoordinatorMetrics(registry)
    metrics.offsets_committed(5)
    metrics.offsets_expired(4)
    metrics.offsets_deleted(3)
    metrics.rebalance_completed()
    metrics.partition_loaded(0.25)
    seen = scrape(registry)
    prefix = "kafka_server_group_coordinator_metrics_"
    assert seen[f"{prefix}offset_commit_total"] == 5
    assert seen[f"{prefix}offset_expiration_total"] == 4
    assert seen[f"{prefix}offset_deletion_total"] == 3
    assert seen[f"{prefix}group_completed_rebalance_total"] == 1
    assert seen["broker_group_partition_load_seconds_sum"] == 0.25
