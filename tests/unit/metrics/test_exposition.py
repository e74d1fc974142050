from prometheus_client import generate_latest

from broker.metrics.exposition import text_parts
from broker.metrics.registry import MetricsRegistry


def registry_of_each_kind() -> MetricsRegistry:
    registry = MetricsRegistry()
    counter = registry.counter("sample_total", "Things.", ("topic",))
    histogram = registry.histogram("sample_seconds", "Time.", ("kind",), bounds=(0.1, 1))
    for name in ("a", 'b"\\', "c"):
        counter.labels(name).increment(2)
        histogram.labels(name).observe(0.5)
    registry.gauge("sample_level", "Level\nin two lines.", lambda: 1.5)
    registry.counter("sample_idle_total", "Nothing yet.", ("topic",))
    return registry


def test_the_parts_are_the_whole_text_of_the_client_library() -> None:
    registry = registry_of_each_kind()
    whole = generate_latest(registry.prometheus)
    for rows_max in (1, 2, 100):
        assert b"".join(text_parts(registry, rows_max)) == whole


def test_no_part_is_long() -> None:
    parts = list(text_parts(registry_of_each_kind(), rows_max=1))
    assert max(sum(not line.startswith(b"#") for line in part.splitlines()) for part in parts) == 5  # one histogram
    assert len(parts) == 9
