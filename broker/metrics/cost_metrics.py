"""CostMetrics: what replication costs, read from the cost meter at scrape."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from broker.metrics.registry import MetricsRegistry, Sample


class MeasuredCosts(Protocol):
    """What a scrape reads of the cost meter."""

    def dollars(self) -> Mapping[Any, float]: ...
    def avoided_dollars(self) -> float: ...
    def break_even_bytes_per_second(self) -> float: ...
    def monthly_saving_dollars(self) -> float: ...


class CostMetrics:
    """Nothing is counted here: `observe` names the owner."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._meter: MeasuredCosts | None = None

        def items() -> Iterable[Sample]:
            for item, dollars in ({} if self._meter is None else self._meter.dollars()).items():
                yield (item,), dollars

        registry.collected(
            "broker_cost_dollars_total",
            "counter",
            "What replication has cost since the start, at list prices: requests and bytes of buckets, and bytes that "
            "this broker fetched from leaders in other zones. Beside it tiered: requests and bytes of the bucket of "
            "tiered storage, but not what is kept there.",
            ("item",),
            items,
            action="put and get grow with the number of objects: see remote.wal.cost.policy. fallback is what the "
            "bucket should have spared.",
        )

        def avoided() -> Iterable[Sample]:
            if self._meter is not None:
                yield (), self._meter.avoided_dollars()

        registry.collected(
            "broker_cost_saved_dollars_total",
            "counter",
            "What the bytes this broker took from buckets of other zones would have cost, had their leaders sent them. "
            "What was saved is this less broker_cost_dollars_total of all items but fetch and tiered, summed over the "
            "brokers.",
            (),
            avoided,
        )
        self._gauge(
            "broker_cost_break_even_bytes_per_second",
            "How many bytes a second through the bucket pay for as many objects a second as this broker uploads now.",
            lambda meter: meter.break_even_bytes_per_second(),
            "Below it the bucket is the dearer way: topics with little traffic need no remote.wal.enable.",
        )
        self._gauge(
            "broker_cost_monthly_saving_dollars",
            "What the bucket spares in 30 days of traffic like now, for what this broker leads; negative: costs.",
            lambda meter: meter.monthly_saving_dollars(),
        )

    def observe(self, meter: MeasuredCosts) -> None:
        self._meter = meter

    def _gauge(
        self, name: str, documentation: str, value: Callable[[MeasuredCosts], float], action: str | None = None
    ) -> None:
        self._registry.gauge(
            name, documentation, lambda: 0 if self._meter is None else value(self._meter), action=action
        )
