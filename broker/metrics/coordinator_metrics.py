"""Metrics of group coordinators: groups by state, offsets, rebalances, and how far groups lag behind."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from broker.metrics.registry import Counter, MetricsRegistry, Sample

LAG_SERIES_MAX: Final = 10_000  # a scrape stays below a second; more groups times partitions are left out and counted

LogEndOffset = Callable[[str, int], int | None]
"""The log end offset of a topic's partition, or None where it is not known on this broker."""

_MANAGER: Final = "kafka_coordinator_group_groupmetadatamanager"
_MANAGER_BEAN: Final = "kafka.coordinator.group:type=GroupMetadataManager,name="
_GROUP: Final = "kafka_server_group_coordinator_metrics"
_GROUP_BEAN: Final = "kafka.server:type=group-coordinator-metrics"

_STATE_GAUGES: Final = {
    "PreparingRebalance": "NumGroupsPreparingRebalance",
    "CompletingRebalance": "NumGroupsCompletingRebalance",
    "Stable": "NumGroupsStable",
    "Empty": "NumGroupsEmpty",
}


class GroupFacts(Protocol):
    """What is read from the group coordinator at scrape."""

    def group_counts_by_state(self) -> Mapping[str, int]: ...

    def offset_count(self) -> int: ...

    def shard_counts_by_state(self) -> Mapping[str, int]: ...

    def committed_offsets(self) -> Iterator[tuple[str, str, int, int]]: ...


class CoordinatorMetrics:
    """Counters moved by the group coordinator.  `read_from` adds what is read from it once it exists."""

    def __init__(self, registry: MetricsRegistry, *, lag_series_max: int = LAG_SERIES_MAX) -> None:
        self._registry = registry
        self._lag_series_max = lag_series_max
        self._offset_commits = self._counter("offset_commit", "Offsets committed by groups.")
        self._offset_expirations = self._counter("offset_expiration", "Offsets deleted because they were too old.")
        self._offset_deletions = self._counter("offset_deletion", "Offsets deleted on request or with their topic.")
        self._completed_rebalances = self._counter(
            "group_completed_rebalance",
            "Rebalances of classic groups that ended with an assignment.",
            action="A steady rise means that members come and go: look at their session timeouts and logs.",
        )
        self._load_seconds = registry.histogram(
            "broker_group_partition_load_seconds",
            "Time to load one partition of __consumer_offsets, in which its groups have no coordinator.",
            bean=f"{_GROUP_BEAN},name=partition-load-time-max",
        )

    def offsets_committed(self, count: int) -> None:
        self._offset_commits.increment(count)

    def offsets_expired(self, count: int) -> None:
        self._offset_expirations.increment(count)

    def offsets_deleted(self, count: int) -> None:
        self._offset_deletions.increment(count)

    def rebalance_completed(self) -> None:
        self._completed_rebalances.increment()

    def partition_loaded(self, seconds: float) -> None:
        self._load_seconds.observe(seconds)

    def read_from(self, groups: GroupFacts, log_end_offset: LogEndOffset) -> None:
        """Register the gauges; called once, when the group coordinator is built."""
        self._register_group_gauges(groups)
        self._registry.collected(
            f"{_GROUP}_num_partitions",
            "gauge",
            "Partitions of __consumer_offsets coordinated here, by state.",
            ("state",),
            lambda: [((state,), count) for state, count in groups.shard_counts_by_state().items()],
            bean=f"{_GROUP_BEAN},name=num-partitions",
            action="Failed partitions could not be read: their groups have no coordinator; see the log.",
        )
        self._registry.collected(
            "broker_group_lag",
            "gauge",
            "Records a group has still to read, by partition: log end offset less committed offset. Only for groups "
            "coordinated and partitions held by this broker.",
            ("group", "topic", "partition"),
            lambda: self._lags(groups, log_end_offset),
            action="A lag that keeps growing means that the group is too slow or has stopped.",
        )

    def _register_group_gauges(self, groups: GroupFacts) -> None:
        def of_state(state: str) -> Callable[[], float]:
            return lambda: groups.group_counts_by_state()[state]

        self._gauge("NumGroups", "Groups coordinated here.", lambda: sum(groups.group_counts_by_state().values()))
        self._gauge("NumOffsets", "Offsets kept here.", groups.offset_count)
        for state, name in _STATE_GAUGES.items():
            self._gauge(name, f"Groups in the state {state}.", of_state(state))

    def _lags(self, groups: GroupFacts, log_end_offset: LogEndOffset) -> Iterator[Sample]:
        count = 0
        for group, topic, partition, offset in list(groups.committed_offsets()):
            end_offset = log_end_offset(topic, partition)
            if end_offset is None:
                continue
            if count == self._lag_series_max:
                self._registry.dropped_series += 1
                continue
            count += 1
            yield (group, topic, str(partition)), max(end_offset - offset, 0)

    def _counter(self, name: str, documentation: str, *, action: str | None = None) -> Counter:
        bean = f"{_GROUP_BEAN},name={name.replace('_', '-')}-count"
        return self._registry.counter(f"{_GROUP}_{name}_total", documentation, bean=bean, action=action)

    def _gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        self._registry.gauge(f"{_MANAGER}_{name.lower()}", documentation, read, bean=f"{_MANAGER_BEAN}{name}")
