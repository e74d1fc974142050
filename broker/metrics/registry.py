"""The registry: every metric is defined with its meaning, its Kafka bean and what an operator does about it.

Counters and histograms here cost a fraction of a microsecond, because they stand on the hot path: plain numbers owned
by one thread, turned into Prometheus' form only at scrape.  Gauges have no copy at all: they read their owner then.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

Owner = TypeVar("Owner")
Kind = Literal["counter", "gauge", "histogram"]
Sample = tuple[Sequence[str], float]
Row = tuple[Sequence[str], Any]  # label values, and a number or a histogram
PAUSE: Final = None  # between rows: whoever writes them may let others run here

SECONDS_BUCKETS: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
)
LABEL_SETS_MAX: Final = 20_000  # 10,000 partitions and room; beyond it a series is dropped, and counted

RECENT_MAX: Final = 512  # observations a histogram keeps uncounted
OWNERS_PER_PAUSE: Final = 1000  # owners asked for one number each before others may run

DROPPED_SERIES: Final = "broker_metrics_dropped_series_total"


@dataclass(frozen=True)
class MetricDefinition:
    """What docs/metrics.md says about one metric."""

    name: str
    kind: Kind
    documentation: str
    labels: tuple[str, ...]
    bean: str | None
    action: str | None


class Counter:
    """A number that only grows, per set of label values."""

    __slots__ = ("_children", "_registry", "value")

    def __init__(self, registry: "MetricsRegistry") -> None:
        self.value = 0.0
        self._children: dict[tuple[str, ...], Counter] = {}
        self._registry = registry

    def labels(self, *values: str) -> "Counter":
        """The child for these label values; keep it where the event happens, a look-up costs more than counting."""
        child = self._children.get(values)
        if child is None:
            child = Counter(self._registry)
            if len(self._children) >= LABEL_SETS_MAX:
                self._registry.dropped_series += 1
                return child
            self._children[values] = child
        return child

    def remove(self, *values: str) -> None:
        """Forget a series, for example of a deleted topic."""
        self._children.pop(values, None)

    def increment(self, by: float = 1) -> None:
        self.value += by

    def samples(self) -> Iterator[tuple[tuple[str, ...], float]]:
        if self._children:
            for labels, child in list(self._children.items()):
                yield labels, child.value
        else:
            yield (), self.value


class Histogram:
    """Durations in seconds by bucket, per set of label values.

    Observations are noted as they come and counted `RECENT_MAX` at a time, or when somebody looks: sorting many and
    finding the bounds among them costs a fraction of finding a bucket for each.  Who notes them elsewhere brings them
    by `observe_all` when `before_look` is called.
    """

    __slots__ = ("_children", "_counts", "_recent", "_registry", "_total", "before_look", "bounds")

    def __init__(self, registry: "MetricsRegistry", bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        self._total = 0.0
        self._recent: list[float] = []
        self._children: dict[tuple[str, ...], Histogram] = {}
        self._registry = registry
        self.before_look: list[Callable[[], None]] = []

    def labels(self, *values: str) -> "Histogram":
        child = self._children.get(values)
        if child is None:
            child = Histogram(self._registry, self.bounds)
            if len(self._children) >= LABEL_SETS_MAX:
                self._registry.dropped_series += 1
                return child
            self._children[values] = child
        return child

    def observe(self, seconds: float) -> None:
        recent = self._recent
        recent.append(seconds)
        if len(recent) >= RECENT_MAX:
            self._count_recent()

    def observe_all(self, seconds: Sequence[float]) -> None:
        self._recent += seconds
        if len(self._recent) >= RECENT_MAX:
            self._count_recent()

    @property
    def counts(self) -> list[int]:
        """How many fell into each bucket, not added up; the last one is what exceeds all bounds."""
        self._look()
        return self._counts

    @property
    def total(self) -> float:
        self._look()
        return self._total

    @property
    def count(self) -> int:
        return sum(self.counts)

    def samples(self) -> Iterator[tuple[tuple[str, ...], "Histogram"]]:
        if self._children:
            yield from list(self._children.items())
        else:
            yield (), self

    def _look(self) -> None:
        for bring in self.before_look:
            bring()
        self._count_recent()

    def _count_recent(self) -> None:
        recent, self._recent = sorted(self._recent), []
        self._total += sum(recent)
        counted = 0
        for slot, bound in enumerate(self.bounds):
            if counted == len(recent):
                return
            end = bisect_right(recent, bound, counted)
            self._counts[slot] += end - counted
            counted = end
        self._counts[-1] += len(recent) - counted


class MetricFamily(Collector):
    """One metric as Prometheus' client library collects it: rows from its owner, and what makes a family of them.

    Others run between two rows of `read`, so an owner yields from a copy of what may change: a list of ten thousand
    partitions is made at once, their numbers are not.
    """

    def __init__(
        self,
        definition: MetricDefinition,
        read: Callable[[], Iterable[Row | None]],
        build: Callable[[Sequence[Row]], Metric],
    ) -> None:
        self.definition = definition
        self._read = read
        self._build = build

    def rows(self) -> Iterator[Row | None]:
        """The series, read as they are asked for, with a PAUSE here and there; none while nothing was counted on a
        labelled metric."""
        labels_count = len(self.definition.labels)
        return (row for row in self._read() if row is PAUSE or len(row[0]) == labels_count)

    def collect(self) -> Iterable[Metric]:
        return [self._build([row for row in self.rows() if row is not PAUSE])]

    def describe(self) -> Iterable[Metric]:
        return [Metric(self.definition.name, self.definition.documentation, self.definition.kind)]


def sum_over(owners: Iterable[Owner], value: Callable[[Owner], float]) -> Iterator[Sample | None]:
    """The one row of a gauge that asks many owners."""
    total = 0.0
    for number, owner in enumerate(list(owners), start=1):
        total += value(owner)
        if number % OWNERS_PER_PAUSE == 0:
            yield PAUSE
    yield (), total


class MetricsRegistry:
    """All metrics of one process.  `definitions` feeds the generated reference, `families` the scrape."""

    def __init__(self) -> None:
        self.prometheus = CollectorRegistry(auto_describe=False)
        self.definitions: list[MetricDefinition] = []
        self.families: list[MetricFamily] = []
        self.dropped_series = 0
        self.collected(
            DROPPED_SERIES,
            "counter",
            "Series left out because a metric reached its bound of label sets.",
            (),
            lambda: [((), self.dropped_series)],
            action="Find what creates so many topics, partitions or groups.",
        )

    def counter(
        self,
        name: str,
        documentation: str,
        labels: tuple[str, ...] = (),
        *,
        bean: str | None = None,
        action: str | None = None,
    ) -> Counter:
        """A counter moved where the event happens; `name` ends in `_total`."""
        counter = Counter(self)
        self.collected(name, "counter", documentation, labels, counter.samples, bean=bean, action=action)
        return counter

    def histogram(
        self,
        name: str,
        documentation: str,
        labels: tuple[str, ...] = (),
        *,
        bounds: Sequence[float] = SECONDS_BUCKETS,
        bean: str | None = None,
        action: str | None = None,
    ) -> Histogram:
        histogram = Histogram(self, bounds)
        definition = self._define(MetricDefinition(name, "histogram", documentation, labels, bean, action))

        def build(rows: Sequence[Row]) -> Metric:
            family = HistogramMetricFamily(name, documentation, labels=labels)
            for values, child in rows:
                buckets, running = [], 0
                for bound, count in zip((*child.bounds, float("inf")), child.counts, strict=True):
                    running += count
                    buckets.append(("+Inf" if bound == float("inf") else str(bound), running))
                family.add_metric(values, buckets, child.total)
            return family

        self._register(MetricFamily(definition, histogram.samples, build))
        return histogram

    def collected(
        self,
        name: str,
        kind: Literal["counter", "gauge"],
        documentation: str,
        labels: tuple[str, ...],
        read: Callable[[], Iterable[Sample | None]],
        *,
        bean: str | None = None,
        action: str | None = None,
    ) -> None:
        """A counter or gauge whose values are read from their owner at scrape: `read` yields (label values, value),
        and PAUSE after much work without a row.  What it iterates over must not change meanwhile."""
        definition = self._define(MetricDefinition(name, kind, documentation, labels, bean, action))

        def build(rows: Sequence[Row]) -> Metric:
            family = (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(
                name, documentation, labels=labels
            )
            for values, value in rows:
                family.add_metric(values, value)
            return family

        self._register(MetricFamily(definition, read, build))

    def gauge(
        self,
        name: str,
        documentation: str,
        read: Callable[[], float],
        *,
        bean: str | None = None,
        action: str | None = None,
    ) -> None:
        """A gauge without labels, read from its owner at scrape."""
        self.collected(name, "gauge", documentation, (), lambda: [((), read())], bean=bean, action=action)

    def _register(self, family: MetricFamily) -> None:
        self.prometheus.register(family)
        self.families.append(family)

    def _define(self, definition: MetricDefinition) -> MetricDefinition:
        assert all(definition.name != other.name for other in self.definitions), f"{definition.name} is defined twice"
        assert definition.kind != "counter" or definition.name.endswith("_total"), (
            f"{definition.name}: counters end in _total"
        )
        self.definitions.append(definition)
        return definition
