"""RemoteWalMetrics: replication through a bucket (KIP-1176), in the manner of KIP-405's metrics."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from broker.metrics.registry import OWNERS_PER_PAUSE, PAUSE, MetricsRegistry, Sample
from broker.metrics.topic_series import collected_by_topic, topic_counter

Read = Callable[[], Iterable[Sample | None]]

_SIZES: Final = (1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20)
_COUNTS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class MeasuredObservations(Protocol):
    sink: Callable[[float], None] | None


class MeasuredStats(Protocol):
    """What a scrape reads of `RemoteWalStats`."""

    @property
    def topics(self) -> Mapping[str, Any]: ...
    @property
    def hops(self) -> Mapping[Any, MeasuredObservations]: ...
    @property
    def object_sizes(self) -> MeasuredObservations: ...
    @property
    def slice_counts(self) -> MeasuredObservations: ...
    @property
    def orphans_deleted(self) -> int: ...
    @property
    def unreadable_events(self) -> int: ...


class MeasuredUploads(Protocol):
    """What a scrape reads of the combiner."""

    @property
    def inflight_count(self) -> int: ...
    @property
    def interval_ms(self) -> int: ...
    @property
    def linger_ms(self) -> int: ...
    @property
    def fallback_partition_count(self) -> int: ...
    def lag_of(self, partition: Any, /) -> tuple[int, int]:
        """(bytes, milliseconds) that are not announced yet, and since when."""


class MeasuredPartition(Protocol):
    @property
    def leader_wal(self) -> Any: ...


class MeasuredReplicas(Protocol):
    def partitions(self) -> Iterator[MeasuredPartition]: ...


class MeasuredStorage(Protocol):
    def is_reachable(self, bucket: str) -> bool: ...


class MeasuredStores(Protocol):
    @property
    def stores(self) -> Collection[str]: ...


class MeasuredObjects(Protocol):
    """What a scrape reads of the table of live objects."""

    def __len__(self) -> int: ...
    @property
    def live_bytes(self) -> int: ...


class MeasuredTopic(Protocol):
    @property
    def lag(self) -> int: ...
    @property
    def append_error_count(self) -> int: ...
    @property
    def skipped_batch_count(self) -> int: ...


class MeasuredCheck(Protocol):
    @property
    def pointers_too_short(self) -> Collection[str]: ...


# Bean, attribute of the topic's counts, meaning, what to do.
_TOPIC_COUNTERS: Final = (
    ("RemoteWalCopyBytesPerSec", "copy_bytes", "Bytes of records uploaded to the bucket.", None),
    ("RemoteWalCopyRequestsPerSec", "copy_requests", "Objects uploaded that hold records of the topic.", None),
    (
        "RemoteWalCopyErrorsPerSec",
        "copy_errors",
        "Such objects that were given up; their records go into another one.",
        "The bucket: see broker_objectstore_requests_total by outcome.",
    ),
    ("RemoteWalFetchBytesPerSec", "fetch_bytes", "Bytes read from buckets to follow the topic.", None),
    ("RemoteWalFetchRequestsPerSec", "fetch_requests", "Reads from buckets that concern the topic.", None),
    (
        "RemoteWalFetchErrorsPerSec",
        "fetch_errors",
        "Such reads that failed; they are made again, or the leader sends the records.",
        "The bucket of the leader's zone, and the way to it.",
    ),
    ("RemoteWalDeleteRequestsPerSec", "delete_requests", "Objects deleted that held records of the topic.", None),
    (
        "RemoteWalDeleteErrorsPerSec",
        "delete_errors",
        "Such objects that could not be deleted; it is tried again.",
        "Whether the broker may delete objects of its bucket.",
    ),
    (
        "RemoteWalStaleMetadataPerSec",
        "stale_metadata",
        "Announced slices whose object was not there, or in a bucket that does not answer.",
        "Normal after a zone was lost; else objects are deleted too early: does somebody else clean the bucket?",
    ),
    (
        "RemoteWalFencedMetadataPerSec",
        "fenced_metadata",
        "Announced slices that are not of the current leader's log, and were not taken.",
        "A few follow a change of the leader; many mean a broker that still believes it leads.",
    ),
    (
        "RemoteWalCorruptPerSec",
        "corrupt",
        "Slices whose bytes are not what was announced; they were not taken.",
        "The bucket, or the way from it, changes bytes: see wal_slice_corrupt in the log.",
    ),
    (
        "RemoteWalFallbackBytesPerSec",
        "fallback_bytes",
        "Bytes sent to followers as without a bucket, because it did not serve.",
        "See wal_fallback_began in the log for the reason.",
    ),
    (
        "RemoteWalRepublishBytesPerSec",
        "republish_bytes",
        "Bytes uploaded again by a new leader, because no reachable bucket had them.",
        None,
    ),
)


class RemoteWalMetrics:
    """Nothing is counted here but times and sizes, which the stats pass on: `observe` names the owners."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._stats: MeasuredStats | None = None
        self._replicas: MeasuredReplicas | None = None
        self._uploads: MeasuredUploads | None = None
        self._storage: MeasuredStorage | None = None
        self._stores: MeasuredStores | None = None
        self._metadata_topic: MeasuredTopic | None = None
        self._objects: MeasuredObjects | None = None
        self._check: MeasuredCheck | None = None
        for bean, attribute, documentation, action in _TOPIC_COUNTERS:
            topic_counter(registry, bean, attribute, documentation, self._counts, action)
        self._histograms()
        self._lags()
        self._combining()
        self._bucket()
        self._metadata()

    def observe(
        self,
        stats: MeasuredStats,
        *,
        replicas: MeasuredReplicas | None = None,
        uploads: MeasuredUploads | None = None,
        storage: MeasuredStorage | None = None,
        stores: MeasuredStores | None = None,
        metadata_topic: MeasuredTopic | None = None,
        objects: MeasuredObjects | None = None,
        check: MeasuredCheck | None = None,
    ) -> None:
        """`uploads` is the combiner, `stores` the metrics of object stores, `objects` the table of live ones, `check`
        that of topics."""
        self._stats = stats
        self._replicas, self._uploads, self._storage, self._stores = replicas, uploads, storage, stores
        self._metadata_topic, self._objects, self._check = metadata_topic, objects, check
        for hop, observations in stats.hops.items():
            observations.sink = self._hop_seconds.labels(str(hop)).observe
        stats.object_sizes.sink = self._object_sizes.observe
        stats.slice_counts.sink = self._slices_per_object.observe

    def _counts(self) -> Iterable[tuple[str, Any]]:
        return [] if self._stats is None else list(self._stats.topics.items())

    def _histograms(self) -> None:
        self._hop_seconds = self._registry.histogram(
            "broker_wal_hop_seconds",
            "Time of each leg of the way through the bucket: leader_append, combine_wait (append to begin of the "
            "upload), put, publish (until the metadata is acknowledged), metadata_delivery (from the making of the "
            "object, with put), get, follower_append, follower_fetch (append to the answer that tells the leader), "
            "high_watermark (append at the leader until it is committed), and end_to_end (record's timestamp to its "
            "append at a follower).",
            ("hop",),
            action="What acks=all waits for is the sum of the legs: the longest one tells where to look.",
        )
        self._object_sizes = self._registry.histogram(
            "broker_wal_object_size_bytes", "Sizes of the objects uploaded.", bounds=_SIZES
        )
        self._slices_per_object = self._registry.histogram(
            "broker_wal_slices_per_object",
            "How many slices an object holds, one for each partition or more.",
            bounds=_COUNTS,
            action="Many small slices make many metadata records: a longer linger, or fewer partitions.",
        )

    def _lags(self) -> None:
        def by_topic(of_partition: Callable[[tuple[int, int]], int], of_topic: Callable[..., int]) -> Read:
            """Of the partitions led here."""

            def read() -> Iterable[Sample | None]:
                uploads, lags = self._uploads, dict[str, int]()
                partitions = [] if self._replicas is None or uploads is None else list(self._replicas.partitions())
                for number, partition in enumerate(partitions, start=1):
                    if uploads is not None and (leader_wal := partition.leader_wal) is not None:
                        about = leader_wal.topic_id_partition
                        lags[about.topic] = of_topic(lags.get(about.topic, 0), of_partition(uploads.lag_of(about)))
                    if number % OWNERS_PER_PAUSE == 0:
                        yield PAUSE
                for topic, lag in lags.items():
                    yield (topic,), lag

            return read

        collected_by_topic(
            self._registry,
            "gauge",
            "RemoteWalCopyLagBytes",
            "Bytes of records appended by this leader that followers cannot find in the bucket yet.",
            by_topic(lambda lag: lag[0], lambda one, other: one + other),
        )
        collected_by_topic(
            self._registry,
            "gauge",
            "RemoteWalCopyLagMs",
            "Milliseconds since the oldest of these was appended.",
            by_topic(lambda lag: lag[1], max),
            action="From remote.wal.fallback.lag.ms on followers are served as without a bucket.",
        )

    def _combining(self) -> None:
        def gauge(
            name: str,
            documentation: str,
            value: Callable[[MeasuredUploads], float],
            *,
            bean: str | None = None,
            action: str | None = None,
        ) -> None:
            def read() -> float:
                return 0 if self._uploads is None else value(self._uploads)

            self._registry.gauge(name, documentation, read, bean=bean, action=action)

        gauge(
            "broker_wal_inflight_uploads",
            "Objects on their way to the bucket.",
            lambda uploads: uploads.inflight_count,
            action="At remote.wal.upload.max.inflight for long: the bucket is too slow for what is produced.",
        )
        gauge(
            "broker_wal_combine_interval_seconds",
            "How often an object may begin; longer while the bucket asks for fewer requests, or the loop is late.",
            lambda uploads: uploads.interval_ms / 1000,
        )
        gauge(
            "broker_wal_combine_linger_seconds",
            "How long records wait for others to share an object with, as remote.wal.cost.policy has chosen.",
            lambda uploads: uploads.linger_ms / 1000,
        )
        gauge(
            "kafka_server_brokertopicmetrics_remotewalfallbackpartitions",
            "Partitions led here with a follower that is served as without a bucket.",
            lambda uploads: uploads.fallback_partition_count,
            bean="kafka.server:type=BrokerTopicMetrics,name=RemoteWalFallbackPartitions",
            action="See wal_fallback_began in the log for the reason.",
        )

    def _bucket(self) -> None:
        def circuits() -> Iterable[Sample]:
            if self._storage is not None and self._stores is not None:
                for store in self._stores.stores:
                    yield (store,), 0 if self._storage.is_reachable(store) else 1

        self._registry.collected(
            "broker_wal_bucket_circuit_open",
            "gauge",
            "1 while a bucket is left alone because it failed too often; a probe looks for it every few seconds.",
            ("store",),
            circuits,
            action="bucket_unavailable in the log has the last error.",
        )
        self._registry.gauge(
            "broker_wal_objects_live",
            "Objects of this broker in its bucket that metadata names.",
            lambda: 0 if self._objects is None else len(self._objects),
            action="Growing for hours: deleting fails, or local.retention.ms of the topics is long.",
        )
        self._registry.gauge(
            "broker_wal_objects_live_bytes",
            "The size of those objects, which is paid for by the month.",
            lambda: 0 if self._objects is None else self._objects.live_bytes,
        )

        def orphans() -> Iterable[Sample]:
            if self._stats is not None:
                yield (), self._stats.orphans_deleted

        self._registry.collected(
            "broker_wal_orphan_objects_deleted_total",
            "counter",
            "Objects of this broker that no metadata named, found in the bucket and deleted.",
            (),
            orphans,
            action="A few after a crash; many mean that metadata cannot be published.",
        )

    def _metadata(self) -> None:
        self._registry.gauge(
            "broker_wal_metadata_consumer_lag_records",
            "Records of __remote_wal_log_metadata that this broker has still to read.",
            lambda: 0 if self._metadata_topic is None else self._metadata_topic.lag,
            action="Followers do not know of the newest objects: the leaders of that topic, or this broker, are slow.",
        )
        self._registry.collected(
            "broker_wal_metadata_failures_total",
            "counter",
            "Of __remote_wal_log_metadata: attempts of this broker to append that failed and are repeated (append), "
            "batches that it could not read and passed over (read), and records that are no events it knows (event).",
            ("what",),
            self._metadata_failures,
            action="append: the topic has no leader or too few replicas in sync. read: "
            "see metadata_topic_batch_skipped in the log; what was told there is missing, and the leaders send those "
            "records. event: who writes there?",
        )
        self._registry.gauge(
            "broker_wal_metadata_retention_violations",
            "Tiered topics with remote.wal.enable that keep local records for longer than "
            "rwlmm.config.remote.wal.log.metadata.topic.retention.ms keeps what tells of them.",
            lambda: 0 if self._check is None else len(self._check.pointers_too_short),
            action="Raise that retention, or lower local.retention.ms: a replica that was away for long fetches from "
            "the leader what the bucket still has.",
        )

    def _metadata_failures(self) -> Iterable[Sample]:
        if self._metadata_topic is not None:
            yield ("append",), self._metadata_topic.append_error_count
            yield ("read",), self._metadata_topic.skipped_batch_count
        if self._stats is not None:
            yield ("event",), self._stats.unreadable_events
