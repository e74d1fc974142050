"""RemoteLogMetrics: tiered storage (KIP-405), by the names of its metrics in Kafka where there are any."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from broker.common.identifiers import TopicPartition
from broker.metrics.registry import OWNERS_PER_PAUSE, PAUSE, MetricsRegistry, Sample
from broker.metrics.topic_series import collected_by_topic, topic_counter

Read = Callable[[], Iterable[Sample | None]]

_MILLISECONDS: Final = 1000
_FETCH, _COPY = "fetch", "copy"
_REMOTE_FETCH: Final = "RemoteFetch"  # the name of the purgatory


class MeasuredObservations(Protocol):
    sink: Callable[[float], None] | None

    @property
    def maximum(self) -> float: ...


class MeasuredStats(Protocol):
    """What a scrape reads of `RemoteLogStats`."""

    @property
    def topics(self) -> Mapping[str, Any]: ...
    @property
    def unknown(self) -> Any: ...
    @property
    def partitions(self) -> Mapping[TopicPartition, Any]: ...
    @property
    def fetch_throttle_ms(self) -> MeasuredObservations: ...
    @property
    def copy_throttle_ms(self) -> MeasuredObservations: ...
    @property
    def read_seconds(self) -> MeasuredObservations: ...
    @property
    def copy_tasks_busy(self) -> int: ...
    @property
    def copy_tasks_max(self) -> int: ...
    @property
    def readers_busy(self) -> int: ...
    @property
    def readers_max(self) -> int: ...
    @property
    def read_queue_size(self) -> int: ...


class MeasuredQuota(Protocol):
    @property
    def byte_rate(self) -> float: ...


class MeasuredPurgatory(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def expired_count(self) -> int: ...


class MeasuredPartition(Protocol):
    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def expired_remote_list_offsets(self) -> int: ...


class MeasuredLookups(Protocol):
    @property
    def expired_partitions(self) -> int:
        """With those of partitions that are not here any more."""


class MeasuredReplicas(Protocol):
    """What a scrape reads of the replica manager."""

    def partitions(self) -> Iterator[MeasuredPartition]: ...
    @property
    def remote_offset_lookups(self) -> MeasuredLookups: ...
    @property
    def purgatories(self) -> tuple[MeasuredPurgatory, ...]: ...


# Bean, attribute of the topic's counts, meaning, what to do.
_TOPIC_COUNTERS: Final = (
    ("RemoteFetchBytesPerSec", "fetch_bytes", "Bytes of records read from remote storage for consumers.", None),
    ("RemoteFetchRequestsPerSec", "fetch_requests", "Reads of one partition from remote storage.", None),
    (
        "RemoteFetchErrorsPerSec",
        "fetch_errors",
        "Such reads that failed, but for offsets that are out of range; the client gets UNKNOWN_SERVER_ERROR.",
        "The bucket: see broker_objectstore_requests_total by outcome. Objects somebody deleted by hand: not_found.",
    ),
    ("RemoteCopyBytesPerSec", "copy_bytes", "Bytes of segments copied to remote storage.", None),
    ("RemoteCopyRequestsPerSec", "copy_requests", "Segments whose copy was begun.", None),
    (
        "RemoteCopyErrorsPerSec",
        "copy_errors",
        "Such copies that failed; they are made again with the next run of the task.",
        "The bucket, or __remote_log_metadata: see remote_copy_failed in the log.",
    ),
    ("RemoteDeleteRequestsPerSec", "delete_requests", "Remote segments whose deletion was begun.", None),
    (
        "RemoteDeleteErrorsPerSec",
        "delete_errors",
        "Such deletions that failed; they are made again.",
        "Whether the broker may delete objects of the bucket.",
    ),
    (
        "BuildRemoteLogAuxStateRequestsPerSec",
        "build_aux_state_requests",
        "Times a follower whose log the leader has no more on its disk began with what remote storage knows of it.",
        None,
    ),
    (
        "BuildRemoteLogAuxStateErrorsPerSec",
        "build_aux_state_errors",
        "Such times that failed; they are repeated.",
        "A few: this broker has not read the newest remote log metadata. Many: the bucket.",
    ),
)
# The same of a partition's gauges, which add up to the topic's.
_TOPIC_GAUGES: Final = (
    (
        "RemoteCopyLagBytes",
        "copy_lag_bytes",
        "Bytes of closed segments that are not copied yet, of partitions led here.",
        "Growing for long: the local disk fills, for what is not copied is never deleted. The bucket, "
        "remote.log.manager.copy.max.bytes.per.second, or too few of "
        "remote.log.manager.copier.thread.pool.size.",
    ),
    ("RemoteCopyLagSegments", "copy_lag_segments", "How many segments these are.", None),
    (
        "RemoteDeleteLagBytes",
        "delete_lag_bytes",
        "Bytes of remote segments that retention wants deleted and that are not.",
        "Growing for long: deleting fails, see kafka_server_brokertopicmetrics_remotedeleteerrors_total.",
    ),
    ("RemoteDeleteLagSegments", "delete_lag_segments", "How many segments these are.", None),
    (
        "RemoteLogMetadataCount",
        "metadata_count",
        "Remote segments that are known of partitions led here, in any state.",
        "Very many: small segments, see segment.bytes and segment.ms.",
    ),
    ("RemoteLogSizeBytes", "size_bytes", "Bytes of partitions led here that are in remote storage.", None),
    (
        "RemoteLogSizeComputationTime",
        "size_computation_ms",
        "Milliseconds the last look at these sizes took.",
        None,
    ),
)


class RemoteLogMetrics:
    """Nothing is counted here but times, which the stats pass on: `observe` names the owners.

    The series of the empty topic are there from the start: they have what happens for topics that are not here any
    more.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._stats: MeasuredStats | None = None
        self._replicas: MeasuredReplicas | None = None
        self._quotas: Mapping[str, MeasuredQuota] = {}
        for bean, attribute, documentation, action in _TOPIC_COUNTERS:
            topic_counter(registry, bean, attribute, documentation, self._counts, action)
        for bean, attribute, documentation, action in _TOPIC_GAUGES:
            self._topic_gauge(bean, attribute, documentation, action)
        self._tasks_and_readers()
        self._throttling()
        self._waiting_requests()

    def observe(
        self,
        stats: MeasuredStats,
        *,
        replicas: MeasuredReplicas | None = None,
        copy_quota: MeasuredQuota | None = None,
        fetch_quota: MeasuredQuota | None = None,
    ) -> None:
        self._stats, self._replicas = stats, replicas
        quotas = {_COPY: copy_quota, _FETCH: fetch_quota}
        self._quotas = {name: quota for name, quota in quotas.items() if quota is not None}
        stats.read_seconds.sink = self._read_seconds.observe
        for name, observations in self._throttles():
            throttle = self._throttle_seconds.labels(name)
            observations.sink = lambda milliseconds, throttle=throttle: throttle.observe(milliseconds / _MILLISECONDS)

    def _throttles(self) -> list[tuple[str, MeasuredObservations]]:
        stats = self._stats
        return [] if stats is None else [(_FETCH, stats.fetch_throttle_ms), (_COPY, stats.copy_throttle_ms)]

    # -- topics -----------------------------------------------------------------------------------------------------

    def _counts(self) -> Iterable[tuple[str, Any]]:
        return [] if self._stats is None else [("", self._stats.unknown), *self._stats.topics.items()]

    def _topic_gauge(self, bean: str, attribute: str, documentation: str, action: str | None) -> None:
        def read() -> Iterable[Sample | None]:
            totals = {"": 0}
            partitions = [] if self._stats is None else list(self._stats.partitions.items())
            for number, (partition, gauges) in enumerate(partitions, start=1):
                totals[partition.topic] = totals.get(partition.topic, 0) + getattr(gauges, attribute)
                if number % OWNERS_PER_PAUSE == 0:
                    yield PAUSE
            for topic, total in totals.items():
                yield (topic,), total

        collected_by_topic(self._registry, "gauge", bean, documentation, read, action)

    # -- tasks, readers, quotas -------------------------------------------------------------------------------------

    def _gauge(
        self,
        name: str,
        documentation: str,
        value: Callable[[MeasuredStats], float],
        *,
        absent: float = 0,
        bean: str | None = None,
        action: str | None = None,
    ) -> None:
        self._registry.gauge(
            name,
            documentation,
            lambda: absent if self._stats is None else value(self._stats),
            bean=bean,
            action=action,
        )

    def _tasks_and_readers(self) -> None:
        pool = "org.apache.kafka.storage.internals.log:type=RemoteStorageThreadPool,name={}"
        self._gauge(
            "kafka_log_remote_remotelogmanager_remotelogmanagertasksavgidlepercent",
            "The part, from 0 to 1, of remote.log.manager.copier.thread.pool.size that copies nothing now.",
            lambda stats: _idle(stats.copy_tasks_busy, stats.copy_tasks_max),
            absent=1,
            bean="kafka.log.remote:type=RemoteLogManager,name=RemoteLogManagerTasksAvgIdlePercent",
            action="0 for long while the copy lag grows: raise that setting.",
        )
        self._gauge(
            "org_apache_kafka_storage_internals_log_remotestoragethreadpool_remotelogreadertaskqueuesize",
            "Reads from remote storage that wait for a reader.",
            lambda stats: stats.read_queue_size,
            bean=pool.format("RemoteLogReaderTaskQueueSize"),
            action="At remote.log.reader.max.pending.tasks further fetches fail: raise remote.log.reader.threads.",
        )
        self._gauge(
            "org_apache_kafka_storage_internals_log_remotestoragethreadpool_remotelogreaderavgidlepercent",
            "The part, from 0 to 1, of remote.log.reader.threads that reads nothing now.",
            lambda stats: _idle(stats.readers_busy, stats.readers_max),
            absent=1,
            bean=pool.format("RemoteLogReaderAvgIdlePercent"),
        )
        self._read_seconds = self._registry.histogram(
            "broker_remote_log_read_seconds",
            "Time of one read of remote records, without that in the queue.",
            bean="kafka.log.remote:type=RemoteLogManager,name=RemoteLogReaderFetchRateAndTimeMs",
            action="Beyond remote.fetch.max.wait.ms clients get nothing and come back: the bucket is slow.",
        )

    def _throttling(self) -> None:
        self._throttle_seconds = self._registry.histogram(
            "broker_remote_log_throttle_seconds",
            "How long the quotas of remote storage held a copy back, and wanted a fetch to be held back.",
            ("what",),
            bean="kafka.server:type=RemoteLogManager,name=remote-fetch-throttle-time-avg|remote-copy-throttle-time-avg",
            action="remote.log.manager.fetch.max.bytes.per.second and remote.log.manager.copy.max.bytes.per.second.",
        )
        for what in (_FETCH, _COPY):
            self._throttle_seconds.labels(what)

        def longest() -> Iterable[Sample]:
            for what, observations in self._throttles():
                yield (what,), observations.maximum / _MILLISECONDS

        self._registry.collected(
            "broker_remote_log_throttle_longest_seconds",
            "gauge",
            "The longest of them since the process started.",
            ("what",),
            longest,
            bean="kafka.server:type=RemoteLogManager,name=remote-fetch-throttle-time-max|remote-copy-throttle-time-max",
        )
        for what, documentation in (
            (_COPY, "Bytes per second copied to remote storage, as its quota measures them."),
            (_FETCH, "Bytes per second read from remote storage, as its quota measures them."),
        ):
            self._quota_rate(what, documentation)

    def _quota_rate(self, what: str, documentation: str) -> None:
        def rate() -> float:
            quota = self._quotas.get(what)
            return 0 if quota is None else quota.byte_rate

        self._registry.gauge(
            f"kafka_server_rlm{what}_byte_rate",
            documentation,
            rate,
            bean=f"kafka.server:type=RLM{what.capitalize()}:byte-rate",
        )

    # -- requests that waited in vain -------------------------------------------------------------------------------

    def _waiting_requests(self) -> None:
        def fetches() -> Iterable[Sample]:
            purgatories = () if self._replicas is None else self._replicas.purgatories
            yield (), sum(each.expired_count for each in purgatories if each.name == _REMOTE_FETCH)

        self._registry.collected(
            "kafka_server_delayedremotefetchmetrics_expires_total",
            "counter",
            "Fetches whose remote records did not come within remote.fetch.max.wait.ms; the client fetches again.",
            (),
            fetches,
            bean="kafka.server:type=DelayedRemoteFetchMetrics,name=ExpiresPerSec",
            action="A few at the begin of a segment are normal. Steady: broker_remote_log_read_seconds.",
        )

        def lookups() -> Iterable[Sample | None]:
            of_others = 0 if self._replicas is None else self._replicas.remote_offset_lookups.expired_partitions
            partitions = [] if self._replicas is None else list(self._replicas.partitions())
            for number, each in enumerate(partitions, start=1):
                if each.expired_remote_list_offsets:
                    topic, partition = each.topic_partition
                    yield (topic, str(partition)), each.expired_remote_list_offsets
                    of_others -= each.expired_remote_list_offsets
                if number % OWNERS_PER_PAUSE == 0:
                    yield PAUSE
            yield ("", ""), max(0, of_others)

        self._registry.collected(
            "kafka_server_delayedremotelistoffsetsmetrics_expires_total",
            "counter",
            "Timestamps that remote storage had no answer about in time; the client is told REQUEST_TIMED_OUT.",
            ("topic", "partition"),
            lookups,
            bean="kafka.server:type=DelayedRemoteListOffsetsMetrics,name=ExpiresPerSec,topic=*,partition=*",
            action="The bucket is slow, or remote.list.offsets.request.timeout.ms is short.",
        )


def _idle(busy: int, at_most: int) -> float:
    return 1.0 if at_most <= 0 else max(0.0, 1 - busy / at_most)
