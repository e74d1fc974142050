"""RemoteStorageMetrics: what this broker keeps of remote storage, knows of it, and cleans up there."""

from collections.abc import Callable, Iterable
from typing import Protocol

from broker.metrics.registry import MetricsRegistry, Sample


class MeasuredStats(Protocol):
    """What a scrape reads of `RemoteLogStats`."""

    @property
    def leaked_topics(self) -> int: ...
    @property
    def leaked_partitions_deleted(self) -> int: ...
    @property
    def sweep_errors(self) -> int: ...


class MeasuredIndexCache(Protocol):
    @property
    def size_bytes(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def downloads(self) -> int: ...
    @property
    def corruptions(self) -> int: ...


class MeasuredChunks(Protocol):
    @property
    def cached_bytes(self) -> int: ...
    @property
    def fetches(self) -> int: ...


class MeasuredTopic(Protocol):
    """What a scrape reads of the client of __remote_log_metadata."""

    @property
    def lag(self) -> int: ...
    @property
    def append_error_count(self) -> int: ...
    @property
    def skipped_batch_count(self) -> int: ...


class MeasuredMetadata(Protocol):
    """What a scrape reads of TopicBasedRemoteLogMetadataManager."""

    @property
    def unreadable_events(self) -> int: ...
    @property
    def publish_errors(self) -> int: ...


class MeasuredRemovals(Protocol):
    def __len__(self) -> int: ...


class RemoteStorageMetrics:
    """Nothing is counted here: `observe` names the owners."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._stats: MeasuredStats | None = None
        self._indexes: MeasuredIndexCache | None = None
        self._chunks: MeasuredChunks | None = None
        self._metadata: MeasuredMetadata | None = None
        self._metadata_topic: MeasuredTopic | None = None
        self._removals: MeasuredRemovals | None = None
        self._caches()
        self._remote_metadata()
        self._removing()

    def observe(
        self,
        stats: MeasuredStats,
        *,
        indexes: MeasuredIndexCache | None = None,
        chunks: MeasuredChunks | None = None,
        metadata: MeasuredMetadata | None = None,
        metadata_topic: MeasuredTopic | None = None,
        removals: MeasuredRemovals | None = None,
    ) -> None:
        """`metadata` is the metadata manager, `metadata_topic` its way to the topic, `removals` the remover."""
        self._stats = stats
        self._indexes, self._chunks = indexes, chunks
        self._metadata, self._metadata_topic, self._removals = metadata, metadata_topic, removals

    # -- caches -----------------------------------------------------------------------------------------------------

    def _caches(self) -> None:
        self._registry.gauge(
            "broker_remote_index_cache_bytes",
            "Bytes of remote segments' indexes on the local disk.",
            lambda: 0 if self._indexes is None else self._indexes.size_bytes,
            action="At remote.log.index.file.cache.total.size.bytes, with many downloads: raise that.",
        )
        self._registry.gauge(
            "broker_remote_index_cache_memory_bytes",
            "Those of them that are in memory as well.",
            lambda: 0 if self._indexes is None else self._indexes.memory_bytes,
        )
        self._counter(
            "broker_remote_index_cache_downloads_total",
            "Segments whose indexes were fetched from remote storage.",
            lambda: None if self._indexes is None else self._indexes.downloads,
        )
        self._counter(
            "broker_remote_index_cache_corruptions_total",
            "Indexes on the local disk that were not what they had been; they were fetched again.",
            lambda: None if self._indexes is None else self._indexes.corruptions,
            action="After a power cut nothing; else the disk. See remote_index_corrupt in the log.",
        )
        self._registry.gauge(
            "broker_remote_log_chunk_cache_bytes",
            "Bytes of remote logs in memory, for reads that go on where others ended.",
            lambda: 0 if self._chunks is None else self._chunks.cached_bytes,
        )
        self._counter(
            "broker_remote_log_chunk_fetches_total",
            "Chunks of remote logs fetched, each of up to 2 MiB.",
            lambda: None if self._chunks is None else self._chunks.fetches,
            action="Many more bytes fetched than RemoteFetchBytesPerSec tells: more consumers read at once than chunks "
            "stay in memory.",
        )

    # -- metadata and removal ---------------------------------------------------------------------------------------

    def _remote_metadata(self) -> None:
        self._registry.gauge(
            "broker_remote_log_metadata_consumer_lag_records",
            "Records of __remote_log_metadata that this broker has still to read.",
            lambda: 0 if self._metadata_topic is None else self._metadata_topic.lag,
            action="Until they are read, copies and remote reads of their partitions wait: the leaders of that topic, "
            "or this broker, are slow.",
        )

        def failures() -> Iterable[Sample]:
            topic, metadata = self._metadata_topic, self._metadata
            yield ("append",), 0 if topic is None else topic.append_error_count
            yield ("read",), 0 if topic is None else topic.skipped_batch_count
            yield ("publish",), 0 if metadata is None else metadata.publish_errors
            yield ("event",), 0 if metadata is None else metadata.unreadable_events

        self._registry.collected(
            "broker_remote_log_metadata_failures_total",
            "counter",
            "Of __remote_log_metadata: attempts of this broker to append that failed and are repeated (append), events "
            "it gave up, or did not read back in time (publish), batches that it could not read and passed over "
            "(read), and records that are no events it knows (event).",
            ("what",),
            failures,
            action="append, publish: the topic has no leader or too few replicas in sync; copies are made again. read: "
            "what was told there is missing, and those segments cannot be read. event: who writes there, or is this "
            "broker older than others?",
        )

    def _removing(self) -> None:
        self._registry.gauge(
            "broker_remote_partitions_being_removed",
            "Partitions deleted, or tiered no more, that remote storage still has something of.",
            lambda: 0 if self._removals is None else len(self._removals),
            action="Stays above 0: remote_partition_removal_failed in the log has the reason.",
        )
        self._registry.gauge(
            "broker_remote_log_leaked_topics",
            "Topics the cluster does not know and remote storage has something of, when this broker looked last; 0 on "
            "all brokers but the one that looks.",
            lambda: 0 if self._stats is None else self._stats.leaked_topics,
            action="They are deleted within hours. More than were ever deleted: has the cluster lost its metadata?",
        )
        self._counter(
            "broker_remote_log_leaked_partitions_deleted_total",
            "Partitions of such topics that were deleted from remote storage.",
            lambda: None if self._stats is None else self._stats.leaked_partitions_deleted,
            action="Normal when a topic was deleted while the leader of a partition was down.",
        )
        self._counter(
            "broker_remote_log_sweep_errors_total",
            "Looks for such topics that failed; the next one is an hour later.",
            lambda: None if self._stats is None else self._stats.sweep_errors,
            action="Whether the broker may list the bucket, and delete there: remote_log_sweep_failed in the log.",
        )

    def _counter(
        self, name: str, documentation: str, value: Callable[[], int | None], *, action: str | None = None
    ) -> None:
        def read() -> Iterable[Sample]:
            if (count := value()) is not None:
                yield (), count

        self._registry.collected(name, "counter", documentation, (), read, action=action)
