from types import SimpleNamespace

from broker.metrics.registry import MetricsRegistry
from broker.metrics.tiered_topics_metrics import TieredTopicsMetrics

PREFIX = "broker_tiering"


def test_topics_are_counted_where_they_are_looked_at() -> None:
    registry = MetricsRegistry()
    metrics = TieredTopicsMetrics(registry)
    value = registry.prometheus.get_sample_value
    names = (f"{PREFIX}_topics_not_tiered", f"{PREFIX}_metadata_retention_violations")
    assert [value(name) for name in names] == [0, 0]
    check = SimpleNamespace(not_tiered={"a", "b"}, outlive_metadata={"c"})
    metrics.observe(check)
    assert [value(name) for name in names] == [2, 1]
    check.not_tiered = frozenset()
    assert [value(name) for name in names] == [0, 1]
