"""FetcherMetrics: how this broker follows other leaders, read at scrape."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from broker.common.identifiers import TopicPartition
from broker.metrics.registry import MetricsRegistry, Sample


class MeasuredFetchState(Protocol):
    """What a scrape reads of one partition that is followed."""

    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def lag(self) -> int | None: ...


class MeasuredFetcher(Protocol):
    @property
    def name(self) -> str: ...


class MeasuredFetcherStats(Protocol):
    @property
    def requests(self) -> int: ...
    @property
    def bytes(self) -> int: ...


class MeasuredThrottle(Protocol):
    @property
    def byte_rate(self) -> float: ...


class MeasuredFetchers(Protocol):
    """What a scrape reads of the fetcher manager."""

    @property
    def max_lag(self) -> int: ...
    @property
    def min_fetch_rate(self) -> float: ...
    @property
    def failed_count(self) -> int: ...
    @property
    def stats(self) -> Mapping[int, MeasuredFetcherStats]: ...
    @property
    def throttle(self) -> MeasuredThrottle: ...
    def states(self) -> Iterator[tuple[MeasuredFetcher, MeasuredFetchState]]: ...


class FetcherMetrics:
    """Nothing is counted here: `observe` names the owner."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._fetchers: MeasuredFetchers | None = None
        self._manager_gauges()
        self._lags()
        self._by_leader("requests", "RequestsPerSec", "Fetches sent to a leader.", lambda stats: stats.requests)
        self._by_leader("bytes", "BytesPerSec", "Bytes of batches fetched from a leader.", lambda stats: stats.bytes)

    def observe(self, fetchers: MeasuredFetchers) -> None:
        self._fetchers = fetchers

    def _manager_gauges(self) -> None:
        def gauge(
            bean: str, documentation: str, value: Callable[[MeasuredFetchers], float], action: str | None = None
        ) -> None:
            self._registry.gauge(
                f"kafka_server_replicafetchermanager_{bean.lower()}",
                documentation,
                lambda: 0 if self._fetchers is None else value(self._fetchers),
                bean=f"kafka.server:type=ReplicaFetcherManager,name={bean},clientId=Replica",
                action=action,
            )

        gauge(
            "MaxLag",
            "The most committed records a partition followed here still lacks.",
            lambda fetchers: fetchers.max_lag,
            "If it grows, this broker or its network is too slow for what its leaders take.",
        )
        gauge(
            "MinFetchRate",
            "Fetches per second of the slowest fetcher over the last minute.",
            lambda fetchers: fetchers.min_fetch_rate,
        )
        gauge(
            "FailedPartitionsCount",
            "Partitions that are not followed any more: fenced by their leader, refused by the disk, or unusable.",
            lambda fetchers: fetchers.failed_count,
            "The log says why (partition_not_followed); a disk is tried again each second, all else with the next "
            "leader epoch.",
        )
        self._registry.gauge(
            "kafka_server_followerreplication_byte_rate",
            "Bytes per second fetched of replicas that follower.replication.throttled.replicas names.",
            lambda: 0 if self._fetchers is None else self._fetchers.throttle.byte_rate,
            bean="kafka.server:type=FollowerReplication:byte-rate",
        )

    def _lags(self) -> None:
        def read() -> Iterable[Sample]:
            for fetcher, state in [] if self._fetchers is None else list(self._fetchers.states()):
                if state.lag is not None:
                    topic, partition = state.topic_partition
                    yield (fetcher.name, topic, str(partition)), state.lag

        self._registry.collected(
            "kafka_server_fetcherlagmetrics_consumerlag",
            "gauge",
            "Committed records a partition followed here still lacks.",
            ("clientId", "topic", "partition"),
            read,
            bean="kafka.server:type=FetcherLagMetrics,name=ConsumerLag,clientId=*,topic=*,partition=*",
        )

    def _by_leader(
        self, name: str, bean: str, documentation: str, value: Callable[[MeasuredFetcherStats], int]
    ) -> None:
        def read() -> Iterable[Sample]:
            for leader_id, stats in ({} if self._fetchers is None else self._fetchers.stats).items():
                yield (str(leader_id),), value(stats)

        self._registry.collected(
            f"kafka_server_fetcherstats_{name}_total",
            "counter",
            documentation,
            ("leader",),
            read,
            bean=f"kafka.server:type=FetcherStats,name={bean},clientId=*,brokerHost=*,brokerPort=*",
        )
