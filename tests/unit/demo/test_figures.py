import pytest

from broker.demo.figures import HOP_NAMES, METRICS, MONTH_SECONDS, figures_of
from broker.metrics.reference import all_metrics
from broker.wal.cost.cost_meter import CostItem
from broker.wal.remote_wal_stats import WalHop
from tests.unit.demo.demo_world import figures, layout, view

ONE = """\
kafka_server_replicamanager_leadercount 4
kafka_server_replicamanager_partitioncount 12
kafka_cluster_partition_insyncreplicascount{topic="orders",partition="0"} 2
kafka_cluster_partition_insyncreplicascount{topic="orders",partition="1"} 0
kafka_cluster_partition_replicascount{topic="orders",partition="0"} 3
kafka_cluster_partition_replicascount{topic="orders",partition="1"} 0
kafka_server_brokertopicmetrics_remotewalfallbackpartitions 1
broker_wal_bucket_circuit_open{store="file:///a"} 1
broker_wal_bucket_circuit_open{store="file:///b"} 0
broker_replication_bytes_total{topic="orders",path="wal",zone_from="zone-b",zone_to="zone-a"} 1000
broker_replication_lag_records{topic="orders",path="wal"} 7
broker_replication_lag_seconds{topic="orders",path="wal"} 0.5
broker_cost_break_even_bytes_per_second 300000
"""
TWO = """\
broker_fenced 1
broker_replication_bytes_total{topic="orders",path="wal",zone_from="zone-a",zone_to="zone-b"} 200
broker_replication_bytes_total{topic="orders",path="fallback",zone_from="zone-a",zone_to="zone-b"} 30
broker_replication_lag_records{topic="orders",path="wal"} 5
broker_cost_break_even_bytes_per_second 200000
"""


def test_every_metric_it_reads_exists_with_the_labels_it_asks_for() -> None:
    known = {definition.name: definition.labels for _, definitions in all_metrics() for definition in definitions}
    assert known.keys() >= METRICS
    assert known["broker_replication_bytes_total"] == ("topic", "path", "zone_from", "zone_to")
    assert known["broker_replication_lag_records"] == known["broker_replication_lag_seconds"] == ("topic", "path")
    assert known["broker_wal_hop_seconds"] == ("hop",)
    assert known["broker_cost_dollars_total"] == ("item",)
    assert set(HOP_NAMES) == {hop.value for hop in WalHop}
    assert {item.value for item in CostItem} == {
        *("put", "get", "list", "upload", "retrieval", "storage", "fallback", "fetch", "tiered")
    }, "each is shown in one place or another"


def test_brokers_and_what_they_lead() -> None:
    shown = figures({1: ONE, 2: TWO})
    one, two, three = shown.brokers
    assert (one.state, one.leaders, one.replicas, one.in_sync, one.of_replicas) == ("ready", 4, 12, 2, 3)
    assert (one.fallback_partitions, one.open_circuits) == (1, 1)
    assert (three.state, three.role) == ("down", "broker, controller")
    assert (shown.ready, shown.in_sync, two.state) == (2, "2/3", "ready")


def test_a_broker_that_is_not_ready_says_why() -> None:
    nodes = layout().nodes
    seen = view({1: ONE, 2: TWO})
    unready = type(seen)(seen.brokers, frozenset(), seen.increase, seen.seconds)
    rows = figures_of(unready, nodes, {1: True, 2: True, 3: True}).brokers
    assert [row.state for row in rows] == ["not ready", "fenced", "starting"]


def test_paths_have_totals_of_all_and_the_worst_lag() -> None:
    increase = 'broker_replication_bytes_total{topic="orders",path="wal"} 500'
    shown = figures({1: ONE, 2: TWO}, increase, seconds=5)
    wal = shown.path("orders", "wal")
    assert (wal.total_bytes, wal.bytes_per_second, wal.lag_records, wal.lag_seconds) == (1200, 100, 7, 0.5)
    fallback = shown.path("orders", "fallback")
    assert (fallback.total_bytes, fallback.bytes_per_second) == (30, 0)


def test_hops_are_in_milliseconds_and_of_the_last_seconds() -> None:
    increase = (
        'broker_wal_hop_seconds_bucket{hop="put",le="0.01"} 50\n'
        'broker_wal_hop_seconds_bucket{hop="put",le="0.02"} 100\n'
        'broker_wal_hop_seconds_bucket{hop="put",le="+Inf"} 100\n'
    )
    hop = figures({1: ONE}, increase).hop("put")
    assert (hop.p50_ms, hop.p99_ms) == (pytest.approx(10), pytest.approx(19.8))
    assert figures({1: ONE}).hop("put").p50_ms is None


INCREASE = """\
broker_cost_dollars_total{item="put"} 0.0010
broker_cost_dollars_total{item="fallback"} 0.0005
broker_cost_dollars_total{item="fetch"} 0.0100
broker_cost_dollars_total{item="tiered"} 9
broker_cost_saved_dollars_total 0.0040
broker_replication_bytes_total{topic="orders-classic",path="fetch",zone_from="zone-a",zone_to="zone-b"} 900
broker_replication_bytes_total{topic="__remote_wal_log_metadata",path="fetch",zone_from="zone-a",zone_to="zone-b"} 100
broker_replication_bytes_total{topic="__remote_wal_log_metadata",path="fetch",zone_from="zone-a",zone_to="zone-a"} 700
broker_objectstore_requests_total{store="a",operation="put_if_absent",outcome="ok"} 30
kafka_server_brokertopicmetrics_bytesin_total{topic="orders"} 20000000
"""


def test_dollars_are_for_a_month_of_the_last_seconds() -> None:
    cost = figures({1: ONE, 2: TWO}, INCREASE, seconds=10).cost
    month = MONTH_SECONDS / 10
    assert cost.items["put"] == pytest.approx(0.0010 * month)
    assert cost.metadata == pytest.approx(0.0010 * month), "its part of what was fetched across zones"
    assert cost.here == pytest.approx((0.0010 + 0.0005 + 0.0010) * month), "tiered storage is no part of it"
    assert cost.classic_here == pytest.approx((0.0040 + 0.0005) * month), "all bytes of the topic"
    assert cost.other_topic == pytest.approx(0.0090 * month)
    assert cost.saving == pytest.approx(0.0020 * month)
    assert (cost.break_even, cost.produced) == (500_000, 2_000_000)
    assert cost.objects_per_month == pytest.approx(3 * MONTH_SECONDS)


def test_without_anything_all_is_zero() -> None:
    shown = figures({})
    assert (shown.ready, shown.in_sync, shown.cost.here, shown.cost.saving) == (0, "0/0", 0, 0)
