"""What is kept of remote storage, known of it and cleaned up there: each value is its owner's."""

from dataclasses import dataclass

from broker.metrics.registry import MetricsRegistry
from broker.metrics.remote_storage_metrics import RemoteStorageMetrics
from broker.tiering.remote_log_stats import RemoteLogStats

FAILURES = "broker_remote_log_metadata_failures_total"


@dataclass
class Indexes:
    size_bytes: int = 0
    memory_bytes: int = 0
    downloads: int = 0
    corruptions: int = 0


@dataclass
class Chunks:
    cached_bytes: int = 0
    fetches: int = 0


@dataclass
class Metadata:
    unreadable_events: int = 0
    publish_errors: int = 0


@dataclass
class Topic:
    lag: int = 0
    append_error_count: int = 0
    skipped_batch_count: int = 0


class World:
    def __init__(self) -> None:
        self.registry = MetricsRegistry()
        self.metrics = RemoteStorageMetrics(self.registry)
        self.stats = RemoteLogStats()
        self.indexes, self.chunks, self.metadata, self.topic = Indexes(), Chunks(), Metadata(), Topic()
        self.removals: list[str] = []

    def observe(self) -> None:
        self.metrics.observe(
            self.stats,
            indexes=self.indexes,
            chunks=self.chunks,
            metadata=self.metadata,
            metadata_topic=self.topic,
            removals=self.removals,
        )

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.prometheus.get_sample_value(name, labels)

    def samples(self) -> dict[str, list[float]]:
        """Of its own metrics, by name."""
        families = {family.definition.name: family for family in self.registry.families[1:]}
        return {name: [row[1] for row in family.rows() if row is not None] for name, family in families.items()}


def test_before_anything_is_observed_counts_are_absent_and_gauges_zero() -> None:
    world = World()
    kinds = {definition.name: definition.kind for definition in world.registry.definitions}
    for name, values in world.samples().items():
        assert set(values) <= {0}
        assert values or kinds[name] == "counter"


def test_54_all_are_there_at_zero_after_the_start() -> None:
    world = World()
    world.observe()
    samples = world.samples()
    assert len(samples) == 12
    assert all(values and set(values) == {0} for values in samples.values()), samples


def test_every_value_is_read_from_its_owner() -> None:
    world = World()
    world.observe()
    world.indexes = Indexes(1, 2, 3, 4)
    world.chunks, world.metadata, world.topic = Chunks(5, 6), Metadata(7, 14), Topic(8, 9, 10)
    world.removals = ["t-0", "t-1"]
    stats = world.stats
    stats.leaked_topics, stats.leaked_partitions_deleted, stats.sweep_errors = 11, 12, 13
    world.observe()
    assert world.value("broker_remote_index_cache_bytes") == 1
    assert world.value("broker_remote_index_cache_memory_bytes") == 2
    assert world.value("broker_remote_index_cache_downloads_total") == 3
    assert world.value("broker_remote_index_cache_corruptions_total") == 4
    assert world.value("broker_remote_log_chunk_cache_bytes") == 5
    assert world.value("broker_remote_log_chunk_fetches_total") == 6
    assert world.value(FAILURES, what="event") == 7
    assert world.value(FAILURES, what="publish") == 14
    assert world.value("broker_remote_log_metadata_consumer_lag_records") == 8
    assert world.value(FAILURES, what="append") == 9
    assert world.value(FAILURES, what="read") == 10
    assert world.value("broker_remote_partitions_being_removed") == 2
    assert world.value("broker_remote_log_leaked_topics") == 11
    assert world.value("broker_remote_log_leaked_partitions_deleted_total") == 12
    assert world.value("broker_remote_log_sweep_errors_total") == 13
