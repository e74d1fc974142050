"""TieredTopicsMetrics: tiered topics that the broker's settings of tiered storage do not suit."""

from collections.abc import Sized
from typing import Protocol

from broker.metrics.registry import MetricsRegistry


class MeasuredTopics(Protocol):
    """What is asked of `RemoteLogTopicCheck`."""

    @property
    def not_tiered(self) -> Sized: ...
    @property
    def outlive_metadata(self) -> Sized: ...


class TieredTopicsMetrics:
    def __init__(self, registry: MetricsRegistry) -> None:
        self._topics: MeasuredTopics | None = None
        registry.gauge(
            "broker_tiering_topics_not_tiered",
            "Topics with remote.storage.enable=true on a broker with remote.log.storage.system.enable=false.",
            lambda: 0 if self._topics is None else len(self._topics.not_tiered),
            action="Set it to true: the broker copies nothing, cannot read what others copied, and will not start "
            "again as it is. topic_not_tiered in the log names the topics.",
        )
        registry.gauge(
            "broker_tiering_metadata_retention_violations",
            "Tiered topics that keep records for longer than __remote_log_metadata keeps what tells where they are.",
            lambda: 0 if self._topics is None else len(self._topics.outlive_metadata),
            action="Set retention.ms=-1, retention.bytes=-1 and cleanup.policy=delete on that topic: what is forgotten "
            "is neither read nor deleted, and paid for.",
        )

    def observe(self, topics: MeasuredTopics) -> None:
        self._topics = topics
