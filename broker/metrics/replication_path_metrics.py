"""ReplicationPathMetrics: how records come to followers, from which zone, and how far behind they are."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from broker.common.identifiers import TopicPartition
from broker.metrics.registry import OWNERS_PER_PAUSE, PAUSE, MetricsRegistry, Sample

WAL = "wal"
FETCH = "fetch"
FALLBACK = "fallback"


class MeasuredLog(Protocol):
    @property
    def local_log_start_offset(self) -> int:
        """A follower gets nothing below it from the leader (KIP-405)."""

    @property
    def log_end_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...


class MeasuredFollower(Protocol):
    """What a leader knows of a follower; the time is milliseconds of the monotonic clock."""

    @property
    def log_end_offset(self) -> int: ...
    @property
    def last_caught_up_time_ms(self) -> int: ...


class MeasuredPartition(Protocol):
    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def is_leader(self) -> bool: ...
    @property
    def local_log(self) -> Any: ...
    @property
    def leader_wal(self) -> Any: ...
    @property
    def remote_replicas(self) -> Mapping[int, MeasuredFollower]: ...


class MeasuredReplicas(Protocol):
    """What a scrape reads of the replica manager."""

    def partitions(self) -> Iterator[MeasuredPartition]: ...
    @property
    def topic_counts(self) -> Mapping[str, Any]: ...


LagOf = Callable[[MeasuredPartition, MeasuredFollower], float]


class ReplicationPathMetrics:
    """Nothing is counted here: `observe` names the owners."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._replicas: MeasuredReplicas | None = None
        self._own_zone = ""
        self._zone_of: Callable[[int], str | None] = lambda broker_id: None
        self._monotonic_ms: Callable[[], int] = lambda: 0
        registry.collected(
            "broker_replication_bytes_total",
            "counter",
            "Bytes of records this broker appended as a follower. Path fetch: sent by the leader; wal: read from a "
            "bucket; fallback: sent by the leader because the bucket did not serve. The zones (broker.rack) are those "
            "of who sent or uploaded them and of this broker.",
            ("topic", "path", "zone_from", "zone_to"),
            self._received,
            action="fetch and fallback with two different zones are paid for. fallback of a topic with "
            "remote.wal.enable: see wal_fallback_began in the leader's log.",
        )
        self._lag(
            "records",
            "The most records a follower lacks of a partition led here.",
            lambda partition, follower: self._records(partition, follower),
        )
        self._lag(
            "bytes",
            "About how many bytes those are, by the mean size of a record in the log.",
            lambda partition, follower: self._bytes(partition, follower),
        )
        self._lag(
            "seconds",
            "How long ago such a follower last had everything.",
            lambda partition, follower: self._seconds(partition, follower),
        )
        registry.collected(
            "kafka_server_brokertopicmetrics_remotewalfollowerlagbytes",
            "gauge",
            "broker_replication_lag_bytes of partitions that go through a bucket, by topic, whatever path their "
            "records take now.",
            ("topic",),
            self._worst(lambda partition, follower: self._bytes(partition, follower), _topic_through_bucket),
            bean="kafka.server:type=BrokerTopicMetrics,name=RemoteWalFollowerLagBytes,topic=*",
        )

    def observe(
        self,
        replicas: MeasuredReplicas,
        *,
        own_zone: str | None,
        zone_of: Callable[[int], str | None],
        monotonic_ms: Callable[[], int],
    ) -> None:
        """`zone_of` tells the rack of a broker; `monotonic_ms` is the clock of the followers' times."""
        self._replicas = replicas
        self._own_zone = own_zone or ""
        self._zone_of = zone_of
        self._monotonic_ms = monotonic_ms

    def _received(self) -> Iterable[Sample]:
        for topic, counts in ({} if self._replicas is None else self._replicas.topic_counts).items():
            by_zone: dict[tuple[str, str], int] = {}
            for (path, broker_id), size in counts.received_bytes.items():
                key = (str(path), self._zone_of(broker_id) or "")
                by_zone[key] = by_zone.get(key, 0) + size
            for (path, zone), size in by_zone.items():
                yield (topic, path, zone, self._own_zone), size

    def _lag(self, unit: str, documentation: str, value: LagOf) -> None:
        self._registry.collected(
            f"broker_replication_lag_{unit}",
            "gauge",
            f"{documentation} By topic and path.",
            ("topic", "path"),
            self._worst(value, lambda partition: (partition.topic_partition.topic, _path_of(partition))),
        )

    def _worst(
        self, value: LagOf, labels_of: Callable[[MeasuredPartition], tuple[str, ...] | None]
    ) -> Callable[[], Iterable[Sample | None]]:
        """The highest value of led partitions with the same labels; None: of those it is not told."""

        def read() -> Iterable[Sample | None]:
            partitions = [] if self._replicas is None else list(self._replicas.partitions())
            worst: dict[tuple[str, ...], float] = {}
            for number, partition in enumerate(partitions, start=1):
                is_measured = partition.is_leader and partition.local_log is not None and partition.remote_replicas
                if is_measured and (key := labels_of(partition)) is not None:
                    lag = max(value(partition, follower) for follower in partition.remote_replicas.values())
                    worst[key] = max(worst.get(key, 0), lag)
                if number % OWNERS_PER_PAUSE == 0:
                    yield PAUSE
            yield from worst.items()

        return read

    def _records(self, partition: MeasuredPartition, follower: MeasuredFollower) -> int:
        log: MeasuredLog = partition.local_log
        return max(0, log.log_end_offset - max(follower.log_end_offset, log.local_log_start_offset))

    def _bytes(self, partition: MeasuredPartition, follower: MeasuredFollower) -> float:
        log: MeasuredLog = partition.local_log
        lag = self._records(partition, follower)
        return round(log.size_bytes * lag / (log.log_end_offset - log.local_log_start_offset)) if lag else 0

    def _seconds(self, partition: MeasuredPartition, follower: MeasuredFollower) -> float:
        if self._records(partition, follower) == 0 or follower.last_caught_up_time_ms < 0:
            return 0  # or it has never been caught up: nobody knows since when
        return max(0, self._monotonic_ms() - follower.last_caught_up_time_ms) / 1000


def _topic_through_bucket(partition: MeasuredPartition) -> tuple[str] | None:
    return None if partition.leader_wal is None else (partition.topic_partition.topic,)


def _path_of(partition: MeasuredPartition) -> str:
    leader_wal = partition.leader_wal
    if leader_wal is None:
        return FETCH
    return FALLBACK if getattr(leader_wal, "is_falling_back", False) else WAL
