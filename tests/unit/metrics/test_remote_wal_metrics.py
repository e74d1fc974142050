from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from broker.common.identifiers import TopicIdPartition
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.metrics.registry import MetricsRegistry
from broker.metrics.remote_wal_metrics import RemoteWalMetrics
from broker.wal.remote_wal_stats import RemoteWalStats, RemoteWalTopicStats, WalHop

TOPIC = "kafka_server_brokertopicmetrics_remotewal"

FIRST, SECOND, OTHER = (TopicIdPartition(UUID(int=1), name, number) for name, number in (("t", 0), ("t", 1), ("u", 0)))


@dataclass
class LeaderWal:
    topic_id_partition: TopicIdPartition


@dataclass
class Partition:
    leader_wal: Any = None


@dataclass
class Replicas:
    hosted: list[Partition] = field(default_factory=list)

    def partitions(self) -> Any:
        return iter(self.hosted)


@dataclass
class Uploads:
    inflight_count: int = 3
    interval_ms: int = 40
    linger_ms: int = 75
    fallback_partition_count: int = 2
    lags: dict[TopicIdPartition, tuple[int, int]] = field(default_factory=dict)

    def lag_of(self, partition: TopicIdPartition) -> tuple[int, int]:
        return self.lags.get(partition, (0, 0))


class Storage:
    def __init__(self) -> None:
        self.closed = {"s3://gone"}

    def is_reachable(self, bucket: str) -> bool:
        return bucket not in self.closed


class Objects:
    live_bytes = 12_345

    def __len__(self) -> int:
        return 11


@dataclass
class MetadataTopic:
    lag: int = 42
    append_error_count: int = 5
    skipped_batch_count: int = 2


@dataclass
class Check:
    pointers_too_short: frozenset[str] = frozenset({"t"})


class World:
    def __init__(self) -> None:
        self.registry = MetricsRegistry()
        self.metrics = RemoteWalMetrics(self.registry)
        self.stats = RemoteWalStats()

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.prometheus.get_sample_value(name, labels)


def test_before_anything_is_observed_all_is_zero_or_absent() -> None:
    world = World()
    gauges = ("inflight_uploads", "objects_live", "metadata_consumer_lag_records", "metadata_retention_violations")
    assert [world.value(f"broker_wal_{name}") for name in gauges] == [0, 0, 0, 0]
    assert world.value(f"{TOPIC}fallbackpartitions") == 0
    assert world.value(f"{TOPIC}copybytes_total", topic="t") is None
    assert world.value("broker_wal_orphan_objects_deleted_total") is None
    world.metrics.observe(world.stats)
    assert world.value(f"{TOPIC}copylagbytes", topic="t") is None
    assert world.value("broker_wal_bucket_circuit_open", store="s3://gone") is None


def test_every_count_of_a_topic_is_a_metric() -> None:
    world = World()
    world.metrics.observe(world.stats)
    topic = world.stats.of("t")
    counts = [name for name in RemoteWalTopicStats.__slots__ if name != "fetch_bytes_from"]
    for number, name in enumerate(counts, start=1):
        setattr(topic, name, number)
    shown = {name: world.value(f"{TOPIC}{name.replace('_', '')}_total", topic="t") for name in counts}
    assert shown == {name: number for number, name in enumerate(counts, start=1)}


def test_hops_sizes_and_slices_are_histograms() -> None:
    world = World()
    world.metrics.observe(world.stats)
    world.stats.hop(WalHop.PUT, 0.012)
    world.stats.hop(WalHop.PUT, 0.3)
    world.stats.object_size(300_000)
    world.stats.slices_per_object(7)
    name = "broker_wal_hop_seconds"
    assert world.value(f"{name}_count", hop="put") == 2
    assert world.value(f"{name}_sum", hop="put") == pytest.approx(0.312)
    assert world.value(f"{name}_bucket", hop="put", le="0.025") == 1
    assert {hop.value: world.value(f"{name}_count", hop=hop.value) for hop in WalHop if hop is not WalHop.PUT} == {
        hop.value: 0 for hop in WalHop if hop is not WalHop.PUT
    }
    assert world.value("broker_wal_object_size_bytes_bucket", le="262144") == 0
    assert world.value("broker_wal_object_size_bytes_bucket", le="524288") == 1
    assert world.value("broker_wal_object_size_bytes_sum") == 300_000
    assert world.value("broker_wal_slices_per_object_sum") == 7


def test_every_other_value_is_read_from_its_owner() -> None:
    world = World()
    stores = ObjectStoreMetrics(MetricsRegistry())
    stores.requests.labels("s3://gone", "put", "unavailable").increment()
    stores.requests.labels("s3://here", "put", "ok").increment()
    replicas = Replicas([Partition(LeaderWal(each)) for each in (FIRST, SECOND, OTHER)] + [Partition()])
    uploads = Uploads(lags={FIRST: (1000, 600), SECOND: (234, 100)})
    world.stats.orphans_deleted = 5
    world.metrics.observe(
        world.stats,
        replicas=replicas,
        uploads=uploads,
        storage=Storage(),
        stores=stores,
        metadata_topic=MetadataTopic(),
        objects=Objects(),
        check=Check(),
    )
    assert world.value(f"{TOPIC}copylagbytes", topic="t") == 1234
    assert world.value(f"{TOPIC}copylagms", topic="t") == 600
    assert world.value(f"{TOPIC}copylagbytes", topic="u") == 0
    assert world.value(f"{TOPIC}copylagms", topic="u") == 0
    assert world.value(f"{TOPIC}fallbackpartitions") == 2
    assert world.value("broker_wal_inflight_uploads") == 3
    assert world.value("broker_wal_combine_interval_seconds") == 0.04
    assert world.value("broker_wal_combine_linger_seconds") == 0.075
    assert world.value("broker_wal_bucket_circuit_open", store="s3://gone") == 1
    assert world.value("broker_wal_bucket_circuit_open", store="s3://here") == 0
    assert world.value("broker_wal_objects_live") == 11
    assert world.value("broker_wal_objects_live_bytes") == 12_345
    assert world.value("broker_wal_orphan_objects_deleted_total") == 5
    assert world.value("broker_wal_metadata_consumer_lag_records") == 42
    assert world.value("broker_wal_metadata_failures_total", what="append") == 5
    assert world.value("broker_wal_metadata_failures_total", what="read") == 2
    world.stats.unreadable_events = 3
    assert world.value("broker_wal_metadata_failures_total", what="event") == 3
    assert world.value("broker_wal_metadata_retention_violations") == 1
