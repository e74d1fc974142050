from hypothesis import given
from hypothesis import strategies as st
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
    for lines_max in (1, 2, 100):
        assert b"".join(text_parts(registry, lines_max)) == whole


@given(st.lists(st.tuples(st.text(), st.text(), st.floats() | st.integers(-(1 << 62), 1 << 62))))
def test_any_labels_and_values_are_written_as_the_client_library_does(rows: list[tuple[str, str, float]]) -> None:
    registry = MetricsRegistry()
    registry.collected(
        "sample_size", "gauge", "Size.", ("zone", "name"), lambda: [((zone, name), value) for zone, name, value in rows]
    )
    assert b"".join(text_parts(registry)) == generate_latest(registry.prometheus)


def test_no_part_is_long() -> None:
    parts = list(text_parts(registry_of_each_kind(), lines_max=4))
    assert max(sum(not line.startswith(b"#") for line in part.splitlines()) for part in parts) == 4
