"""Series by topic under the names of Kafka's BrokerTopicMetrics, which several owners count for."""

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

from broker.metrics.registry import MetricsRegistry, Sample

PREFIX: Final = "kafka_server_brokertopicmetrics"


def topic_counter(
    registry: MetricsRegistry,
    bean: str,
    attribute: str,
    documentation: str,
    counts: Callable[[], Iterable[tuple[str, Any]]],
    action: str | None = None,
) -> None:
    """A count that `counts` has by topic, in an attribute; `bean` is its name in Kafka."""

    def read() -> Iterable[Sample]:
        for topic, each in counts():
            yield (topic,), getattr(each, attribute)

    collected_by_topic(registry, "counter", bean, documentation, read, action)


def collected_by_topic(
    registry: MetricsRegistry,
    kind: Literal["counter", "gauge"],
    bean: str,
    documentation: str,
    read: Callable[[], Iterable[Sample | None]],
    action: str | None = None,
) -> None:
    """As `MetricsRegistry.collected`, with the topic as the only label."""
    name = f"{PREFIX}_{bean.removesuffix('PerSec').lower()}"
    registry.collected(
        f"{name}_total" if kind == "counter" else name,
        kind,
        documentation,
        ("topic",),
        read,
        bean=f"kafka.server:type=BrokerTopicMetrics,name={bean},topic=*",
        action=action,
    )
