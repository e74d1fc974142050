from types import SimpleNamespace

import pytest
from prometheus_client import generate_latest

from broker.metrics import registry as registry_module
from broker.metrics.exposition import text_parts
from broker.metrics.registry import DROPPED_SERIES, PAUSE, MetricDefinition, MetricsRegistry, sum_over


def samples(registry: MetricsRegistry) -> dict[str, float]:
    """The lines of a scrape, without comments and without the registry's own counter."""
    lines = generate_latest(registry.prometheus).decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs if name != DROPPED_SERIES}


def test_counters_count_by_label() -> None:
    registry = MetricsRegistry()
    counter = registry.counter("sample_bytes_total", "Bytes.", ("topic",))
    assert samples(registry) == {}
    counter.labels("a").increment()
    counter.labels("a").increment(2.5)
    counter.labels("b").increment()
    assert samples(registry) == {'sample_bytes_total{topic="a"}': 3.5, 'sample_bytes_total{topic="b"}': 1}
    counter.remove("a")
    counter.remove("a")
    assert samples(registry) == {'sample_bytes_total{topic="b"}': 1}


def test_a_counter_without_labels_starts_at_zero() -> None:
    registry = MetricsRegistry()
    registry.counter("sample_total", "Things.")
    assert samples(registry) == {"sample_total": 0}


def test_histograms_count_by_bucket_cumulatively() -> None:
    registry = MetricsRegistry()
    histogram = registry.histogram("sample_seconds", "Time.", ("kind",), bounds=(0.1, 1))
    child = histogram.labels("x")
    for seconds in (0.05, 0.1, 0.5, 7):
        child.observe(seconds)
    assert (child.count, child.total) == (4, pytest.approx(7.65))
    assert samples(registry) == {
        'sample_seconds_bucket{kind="x",le="0.1"}': 2,  # a bound belongs to its bucket
        'sample_seconds_bucket{kind="x",le="1"}': 3,
        'sample_seconds_bucket{kind="x",le="+Inf"}': 4,
        'sample_seconds_count{kind="x"}': 4,
        'sample_seconds_sum{kind="x"}': pytest.approx(7.65),
    }


def test_a_histogram_counts_more_than_it_keeps_uncounted() -> None:
    histogram = MetricsRegistry().histogram("sample_seconds", "Time.", bounds=(1, 2))
    seen = 3 * registry_module.RECENT_MAX + 1
    for number in range(seen):
        histogram.observe((0.5, 1.5, 9)[number % 3])
    assert histogram.counts == [seen // 3 + 1, seen // 3, seen // 3]
    assert histogram.total == pytest.approx(seen // 3 * 11 + 0.5)
    assert histogram.count == seen


def test_gauges_have_no_copy_of_their_owners_value() -> None:
    registry = MetricsRegistry()
    owner = SimpleNamespace(size=3)
    registry.gauge("sample_size", "Size.", lambda: owner.size)
    registry.collected("sample_offset", "gauge", "Offset.", ("partition",), lambda: [(("0",), owner.size * 10)])
    assert samples(registry) == {"sample_size": 3, 'sample_offset{partition="0"}': 30}
    owner.size = 4
    assert samples(registry) == {"sample_size": 4, 'sample_offset{partition="0"}': 40}


def test_series_beyond_the_bound_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "LABEL_SETS_MAX", 2)
    registry = MetricsRegistry()
    counter = registry.counter("sample_total", "Things.", ("topic",))
    histogram = registry.histogram("sample_seconds", "Time.", ("topic",), bounds=(1,))
    for topic in ("a", "b", "c", "d"):
        counter.labels(topic).increment()
    for topic in ("a", "b", "c"):
        histogram.labels(topic).observe(1)
    text = generate_latest(registry.prometheus).decode()
    assert f"\n{DROPPED_SERIES} 3.0\n" in text
    assert 'topic="b"' in text and 'topic="c"' not in text


def test_each_name_is_defined_once_and_counters_end_in_total() -> None:
    registry = MetricsRegistry()
    registry.counter("sample_total", "Things.")
    with pytest.raises(AssertionError, match="sample_total is defined twice"):
        registry.counter("sample_total", "Things.")
    with pytest.raises(AssertionError, match="sample_things: counters end in _total"):
        registry.counter("sample_things", "Things.")


def test_definitions_keep_what_the_manual_says() -> None:
    registry = MetricsRegistry()
    registry.counter("sample_total", "Things.", ("topic",), bean="kafka.server:type=Sample", action="Look.")
    assert registry.definitions[-1] == MetricDefinition(
        "sample_total", "counter", "Things.", ("topic",), "kafka.server:type=Sample", "Look."
    )


def test_series_that_come_in_the_middle_of_a_scrape_wait_for_the_next() -> None:
    registry = MetricsRegistry()
    counter = registry.counter("sample_total", "Things.", ("n",))
    histogram = registry.histogram("sample_seconds", "Time.", ("n",))
    counter.labels("a").increment()
    histogram.labels("a").observe(1)
    families = [family.rows() for family in registry.families[-2:]]
    first = [next(rows) for rows in families]
    counter.labels("b").increment()
    histogram.labels("b").observe(1)
    assert first == [(("a",), 1), (("a",), histogram.labels("a"))]
    assert [list(rows) for rows in families] == [[], []]


def test_a_sum_over_many_owners_pauses() -> None:
    rows = list(sum_over(iter(range(2500)), lambda owner: owner % 2))
    assert rows == [PAUSE, PAUSE, ((), 1250)]
    registry = MetricsRegistry()
    registry.collected("sample_size", "gauge", "Size.", (), lambda: sum_over(range(2500), lambda owner: 1))
    assert list(text_parts(registry))[-3:] == [
        b"# HELP sample_size Size.\n# TYPE sample_size gauge\n",
        b"",
        b"sample_size 2500.0\n",
    ]
    assert b"\nsample_size 2500.0\n" in generate_latest(registry.prometheus)


def test_a_labelled_metric_nothing_was_counted_on_has_no_rows() -> None:
    registry = MetricsRegistry()
    registry.counter("sample_total", "Things.", ("topic",))
    assert list(registry.families[-1].rows()) == []
