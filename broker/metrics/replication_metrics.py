"""ReplicationMetrics: topics, partitions, ISRs, parked requests and fetch sessions, read at scrape."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from broker.common.identifiers import TopicPartition
from broker.metrics.registry import MetricsRegistry, Sample, sum_over
from broker.metrics.topic_series import topic_counter


class MeasuredPartition(Protocol):
    """What a scrape reads of a partition."""

    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def is_leader(self) -> bool: ...
    @property
    def is_offline(self) -> bool: ...
    @property
    def is_under_replicated(self) -> bool: ...
    @property
    def is_under_min_isr(self) -> bool: ...
    @property
    def is_at_min_isr(self) -> bool: ...
    @property
    def is_reassigning(self) -> bool: ...
    @property
    def isr(self) -> tuple[int, ...]: ...
    @property
    def replicas(self) -> tuple[int, ...]: ...
    @property
    def last_stable_offset_lag(self) -> int: ...


class MeasuredIsrStats(Protocol):
    @property
    def expands(self) -> int: ...
    @property
    def shrinks(self) -> int: ...
    @property
    def failed_updates(self) -> int: ...


class MeasuredThrottle(Protocol):
    @property
    def byte_rate(self) -> float: ...


class MeasuredContext(Protocol):
    @property
    def leader_throttle(self) -> MeasuredThrottle: ...


class MeasuredPurgatory(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def expired_count(self) -> int: ...
    def watched_keys_count(self) -> int: ...
    def __len__(self) -> int: ...


class MeasuredReplicas(Protocol):
    """What a scrape reads of the replica manager."""

    def partitions(self) -> Iterator[MeasuredPartition]: ...
    @property
    def isr_stats(self) -> MeasuredIsrStats: ...
    @property
    def context(self) -> MeasuredContext: ...
    @property
    def purgatories(self) -> tuple[MeasuredPurgatory, ...]: ...
    @property
    def expired_fetches(self) -> Mapping[str, int]: ...
    @property
    def topic_counts(self) -> Mapping[str, Any]:
        """Counts by topic; those for topics that are not here stand under the empty name."""


class MeasuredSessions(Protocol):
    """What a scrape reads of the fetch session cache."""

    def __len__(self) -> int: ...
    @property
    def partition_count(self) -> int: ...
    @property
    def evictions(self) -> int: ...


# Name, bean, attribute of the topic's counts, meaning.
_TOPIC_COUNTERS: Final = (
    ("MessagesInPerSec", "messages_in", "Records appended for producers."),
    ("BytesInPerSec", "bytes_in", "Bytes of batches appended for producers."),
    ("BytesOutPerSec", "bytes_out", "Bytes of batches sent to consumers."),
    ("BytesRejectedPerSec", "bytes_rejected", "Bytes of batches refused for their size."),
    ("ReplicationBytesInPerSec", "replication_bytes_in", "Bytes fetched from leaders."),
    ("ReplicationBytesOutPerSec", "replication_bytes_out", "Bytes sent to followers."),
    (
        "TotalProduceRequestsPerSec",
        "total_produce_requests",
        "Partitions in produce requests.",
    ),
    ("TotalFetchRequestsPerSec", "total_fetch_requests", "Partitions read for fetch requests."),
    (
        "FailedProduceRequestsPerSec",
        "failed_produce_requests",
        "Partitions of produce requests that failed for another reason than size, CRC, leadership or existence.",
    ),
    (
        "FailedFetchRequestsPerSec",
        "failed_fetch_requests",
        "Partitions of fetch requests that failed for another reason than offset, leadership or existence.",
    ),
    (
        "NoKeyCompactedTopicRecordsPerSec",
        "no_key_compacted_topic_records",
        "Records refused by validation, most of them for a missing key on a compacted topic.",
    ),
    (
        "InvalidMessageCrcRecordsPerSec",
        "invalid_message_crc_records",
        "Batches refused for their CRC or their format.",
    ),
    (
        "InvalidOffsetOrSequenceRecordsPerSec",
        "invalid_offset_or_sequence_records",
        "Batches refused for their offsets or sequence numbers.",
    ),
)


class ReplicationMetrics:
    """Nothing is counted here: `observe` and `observe_sessions` name the owners."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._replicas: MeasuredReplicas | None = None
        self._sessions: MeasuredSessions | None = None
        for bean, attribute, documentation in _TOPIC_COUNTERS:
            topic_counter(registry, bean, attribute, documentation, self._topic_counts)
        self._replica_manager_gauges()
        self._isr_counters()
        self._registry.gauge(
            "kafka_server_leaderreplication_byte_rate",
            "Bytes per second sent to followers of replicas that leader.replication.throttled.replicas names.",
            lambda: 0 if self._replicas is None else self._replicas.context.leader_throttle.byte_rate,
            bean="kafka.server:type=LeaderReplication:byte-rate",
        )
        self._partition_gauges()
        self._purgatories()
        self._fetch_sessions()

    def observe(self, replicas: MeasuredReplicas) -> None:
        self._replicas = replicas

    def observe_sessions(self, sessions: MeasuredSessions) -> None:
        self._sessions = sessions

    def _partitions(self) -> Iterator[MeasuredPartition]:
        return iter(()) if self._replicas is None else self._replicas.partitions()

    def _topic_counts(self) -> Iterable[tuple[str, Any]]:
        return {}.items() if self._replicas is None else self._replicas.topic_counts.items()

    def _replica_manager_gauges(self) -> None:
        def count(
            bean: str, documentation: str, counts: Callable[[MeasuredPartition], bool], action: str | None = None
        ) -> None:
            self._registry.collected(
                f"kafka_server_replicamanager_{bean.lower()}",
                "gauge",
                documentation,
                (),
                lambda: sum_over(self._partitions(), counts),
                bean=f"kafka.server:type=ReplicaManager,name={bean}",
                action=action,
            )

        count("LeaderCount", "Partitions this broker leads.", lambda each: each.is_leader)
        count("PartitionCount", "Replicas on this broker.", lambda each: True)
        count(
            "OfflineReplicaCount",
            "Replicas whose log could not be opened.",
            lambda each: each.is_offline,
            "Free or repair the disk: the broker tries again by itself.",
        )
        count(
            "UnderReplicatedPartitions",
            "Partitions led here with fewer in-sync replicas than replicas.",
            lambda each: not each.is_offline and each.is_under_replicated,
            "Find the broker that is down or slow.",
        )
        count(
            "UnderMinIsrPartitionCount",
            "Partitions led here with fewer in-sync replicas than min.insync.replicas: acks=all is refused.",
            lambda each: not each.is_offline and each.is_under_min_isr,
            "Bring the missing replicas back.",
        )
        count(
            "AtMinIsrPartitionCount",
            "Partitions led here with exactly min.insync.replicas in-sync replicas.",
            lambda each: not each.is_offline and each.is_at_min_isr,
        )
        count(
            "ReassigningPartitions",
            "Partitions led here whose replicas are being moved.",
            lambda each: not each.is_offline and each.is_reassigning,
        )

    def _isr_counters(self) -> None:
        for bean, attribute, documentation in (
            ("IsrExpandsPerSec", "expands", "Times a replica joined the in-sync replicas of a partition led here."),
            ("IsrShrinksPerSec", "shrinks", "Times replicas left the in-sync replicas of a partition led here."),
            ("FailedIsrUpdatesPerSec", "failed_updates", "Changes of in-sync replicas the controller refused."),
        ):
            self._isr_counter(bean, attribute, documentation)

    def _isr_counter(self, bean: str, attribute: str, documentation: str) -> None:
        def read() -> Iterable[Sample]:
            if self._replicas is not None:
                yield (), getattr(self._replicas.isr_stats, attribute)

        self._registry.collected(
            f"kafka_server_replicamanager_{bean.removesuffix('PerSec').lower()}_total",
            "counter",
            documentation,
            (),
            read,
            bean=f"kafka.server:type=ReplicaManager,name={bean}",
        )

    def _partition_gauges(self) -> None:
        self._partition_gauge(
            "UnderReplicated",
            "1 when a partition led here lacks replicas.",
            lambda each: each.is_under_replicated,
        )
        self._partition_gauge(
            "UnderMinIsr", "1 when it has fewer than min.insync.replicas.", lambda each: each.is_under_min_isr
        )
        self._partition_gauge("AtMinIsr", "1 when it has exactly min.insync.replicas.", lambda each: each.is_at_min_isr)
        self._partition_gauge(
            "InSyncReplicasCount",
            "In-sync replicas, 0 on followers.",
            lambda each: len(each.isr) if each.is_leader else 0,
        )
        self._partition_gauge(
            "ReplicasCount", "Replicas, 0 on followers.", lambda each: len(each.replicas) if each.is_leader else 0
        )
        self._partition_gauge(
            "LastStableOffsetLag",
            "Records between the last stable offset and the high watermark: an open transaction holds them.",
            lambda each: each.last_stable_offset_lag,
        )

    def _partition_gauge(self, bean: str, documentation: str, value: Callable[[MeasuredPartition], int]) -> None:
        def read() -> Iterable[Sample]:
            for each in list(self._partitions()):
                if not each.is_offline:
                    topic, partition = each.topic_partition
                    yield (topic, str(partition)), int(value(each))

        self._registry.collected(
            f"kafka_cluster_partition_{bean.lower()}",
            "gauge",
            documentation,
            ("topic", "partition"),
            read,
            bean=f"kafka.cluster:type=Partition,name={bean},topic=*,partition=*",
        )

    def _purgatories(self) -> None:
        def sizes(size: Callable[[MeasuredPurgatory], int]) -> Callable[[], Iterable[Sample]]:
            def read() -> Iterable[Sample]:
                for purgatory in () if self._replicas is None else self._replicas.purgatories:
                    yield (purgatory.name,), size(purgatory)

            return read

        self._registry.collected(
            "kafka_server_delayedoperationpurgatory_numdelayedoperations",
            "gauge",
            "Requests that wait: for replicas, for data, for deletion.",
            ("delayedOperation",),
            sizes(len),
            bean="kafka.server:type=DelayedOperationPurgatory,name=NumDelayedOperations,delayedOperation=*",
        )
        self._registry.collected(
            "kafka_server_delayedoperationpurgatory_purgatorysize",
            "gauge",
            "What waiting requests watch.",
            ("delayedOperation",),
            sizes(lambda purgatory: purgatory.watched_keys_count()),
            bean="kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation=*",
        )
        self._registry.collected(
            "broker_delayed_operations_expired_total",
            "counter",
            "Waiting requests that were answered because their time was over.",
            ("delayedOperation",),
            sizes(lambda purgatory: purgatory.expired_count),
            bean="kafka.server:type=DelayedProduceMetrics,name=ExpiresPerSec",
            action="Expired Produce means that replicas are too slow for acks=all.",
        )

        def expired_fetches() -> Iterable[Sample]:
            for fetcher, count in ({} if self._replicas is None else self._replicas.expired_fetches).items():
                yield (fetcher,), count

        self._registry.collected(
            "kafka_server_delayedfetchmetrics_expires_total",
            "counter",
            "Fetches that waited in vain for min.bytes.",
            ("fetcherType",),
            expired_fetches,
            bean="kafka.server:type=DelayedFetchMetrics,name=ExpiresPerSec,fetcherType=*",
        )

    def _fetch_sessions(self) -> None:
        def read(value: Callable[[MeasuredSessions], int]) -> Callable[[], float]:
            return lambda: 0 if self._sessions is None else value(self._sessions)

        self._registry.gauge(
            "kafka_server_fetchsessioncache_numincrementalfetchsessions",
            "Fetch sessions that are remembered.",
            read(len),
            bean="kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions",
        )
        self._registry.gauge(
            "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
            "Partitions in those sessions.",
            read(lambda sessions: sessions.partition_count),
            bean="kafka.server:type=FetchSessionCache,name=NumIncrementalFetchPartitionsCached",
        )

        def evictions() -> Iterable[Sample]:
            if self._sessions is not None:
                yield (), self._sessions.evictions

        self._registry.collected(
            "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
            "counter",
            "Sessions that were dropped for others.",
            (),
            evictions,
            bean="kafka.server:type=FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec",
            action="Raise max.incremental.fetch.session.cache.slots when it grows.",
        )
