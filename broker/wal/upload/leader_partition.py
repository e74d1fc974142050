"""WalLeaderPartition: a partition this broker leads, as its replication through the bucket sees it."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from broker.common.identifiers import TopicIdPartition, TopicPartition
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.replication.partition import Partition
from broker.wal.follow.coverage_index import OffsetRange
from broker.wal.remote_wal_stats import RemoteWalStats, WalHop
from broker.wal.upload.bucket_coverage import BucketCoverage
from broker.wal.upload.fallback import (
    HEALTHY_LAG_MS,
    FallbackPolicy,
    PartitionFallback,
    UploadProgress,
)
from broker.wal.upload.fallback_watch import FallbackWatch
from broker.wal.upload.partition_uploads import PartitionUploads
from broker.wal.upload.queued_partition import QueuedPartition


class Uploads(Protocol):
    """What a led partition needs of the `Combiner`."""

    @property
    def is_metadata_failing(self) -> bool: ...
    @property
    def is_shutting_down(self) -> bool: ...
    def appended(self, queued: QueuedPartition, log_end_offset: int, size_bytes: int, now_ms: int) -> None: ...
    def awaited(self) -> None: ...
    def log_start_moved(self, partition: TopicIdPartition, log_start_offset: int) -> None: ...
    def uploads_of(self, partition: TopicIdPartition) -> PartitionUploads | None: ...
    def unannounced_since_ms(self, partition: TopicIdPartition) -> int | None: ...


class WalLeaderPartition:
    """Implements `LeaderWal`; made for one leader epoch.  `queued` is what the upload queue knows of it.

    `coverage` and `republish` (a range again, which that follower cannot read, whatever is in the bucket) come from
    whoever knows what older leaders left behind; without them the bucket holds what this leader announced.
    """

    def __init__(
        self,
        partition: Partition,
        uploads: Uploads,
        config: ConfigHolder[BrokerConfig],
        stats: RemoteWalStats,
        watch: FallbackWatch,
    ) -> None:
        self.partition = partition
        self.topic_id_partition = TopicIdPartition(partition.topic_id, *partition.topic_partition)
        self.coverage: BucketCoverage | None = None
        self.queued: QueuedPartition | None = None
        self.republish: Callable[[int, OffsetRange], None] | None = None
        self._time = asyncio.get_running_loop().time
        self._uploads = uploads
        self._config = config
        self._stats = stats
        self._watch = watch
        self._settings = config.current
        self._fallback = PartitionFallback(_policy(self._settings), _now_ms())
        self._timed: tuple[int, float] | None = None  # a log end, and since when the high watermark is below it
        partition.add_listener(self)

    def appended(self, size_bytes: int) -> None:
        """So much was appended; the log end has moved."""
        log_end_offset = self.partition.log.log_end_offset
        now = self._time()
        if self.queued is not None:
            self._uploads.appended(self.queued, log_end_offset, size_bytes, int(now * 1000))
        if self._timed is None:
            self._timed = (log_end_offset, now)
            self._stats.hop(WalHop.LEADER_APPEND, self.partition.append_seconds)

    def awaited(self) -> None:
        """Somebody waits with acks=all."""
        self._uploads.awaited()

    def log_start_moved(self) -> None:
        self._uploads.log_start_moved(self.topic_id_partition, self.partition.log.local_log_start_offset)

    def retire(self) -> None:
        """Uploads end here."""
        self.partition.remove_listener(self)
        self._end_fallback(self._fallback.followers)

    def on_high_watermark_updated(self, topic_partition: TopicPartition, offset: int) -> None:
        """One append after the other is timed: what lies between them is as quick."""
        if self._timed is not None and offset >= self._timed[0]:
            self._stats.hop(WalHop.HIGH_WATERMARK, self._time() - self._timed[1])
            self._timed = None

    def on_becoming_follower(self, topic_partition: TopicPartition) -> None:
        self._timed = None

    def on_deleted(self, topic_partition: TopicPartition) -> None:
        self._timed = None

    def serves_records(self, replica_id: int, fetch_offset: int) -> bool:
        """Whether this fetch is answered with records; see `PartitionFallback`."""
        uploads = self._uploads.uploads_of(self.topic_id_partition)
        if uploads is None:
            return True  # what is appended now does not go into the bucket
        now_ms = _now_ms()
        if self._config.current is not self._settings:
            self._settings = self._config.current
            self._fallback.policy = _policy(self._settings)
        decision = self._fallback.decide(
            replica_id, fetch_offset, self._progress(uploads, fetch_offset, now_ms), now_ms
        )
        if decision.began is not None:
            self._watch.began(self, replica_id, decision.began, fetch_offset)
        if decision.ended is not None:
            self._watch.ended(self, decision.ended)
        if decision.republish and self.republish is not None:
            self.republish(replica_id, OffsetRange(fetch_offset, uploads.wal_next))
        return decision.serves_records

    def count_fallback(self, replica_id: int, size_bytes: int) -> None:
        """So much is sent to a follower as in classic replication."""
        self._stats.of(self.partition.topic_partition.topic).fallback_bytes += size_bytes
        self._fallback.sent(replica_id, size_bytes)

    def announced(self, after_ms: int) -> None:
        """Something was announced so long after its append."""
        if after_ms >= HEALTHY_LAG_MS:
            self._fallback.was_late(_now_ms())

    @property
    def is_falling_back(self) -> bool:
        """Whether a follower gets its records from here."""
        return self._fallback.is_active

    def settle_fallback(self) -> None:
        """End what is over: a follower that has everything does not ask, and one that is gone neither."""
        uploads = self._uploads.uploads_of(self.topic_id_partition)
        if uploads is None or self.partition.local_log is None:
            self._end_fallback(self._fallback.followers)
            return
        self._end_fallback(self._fallback.followers - self.partition.remote_replicas.keys())
        now_ms = _now_ms()
        for replica_id, offset in self._fallback.served:
            end = self._fallback.settle(replica_id, self._progress(uploads, offset, now_ms), now_ms)
            if end is not None:
                self._watch.ended(self, end)

    def _end_fallback(self, replica_ids: frozenset[int]) -> None:
        for end in self._fallback.forget(replica_ids):
            self._watch.ended(self, end)

    def _progress(self, uploads: PartitionUploads, fetch_offset: int, now_ms: int) -> UploadProgress:
        since_ms = self._uploads.unannounced_since_ms(self.topic_id_partition)
        covered_from = uploads.wal_start
        if fetch_offset < covered_from and self.coverage is not None:
            covered_from = self.coverage.reaches_back_from(covered_from)
        return UploadProgress(
            covered_from,
            uploads.wal_next,
            self.partition.log.log_end_offset,
            None if since_ms is None else now_ms - since_ms,
            self._uploads.is_metadata_failing,
            self._uploads.is_shutting_down,
        )


def _policy(settings: BrokerConfig) -> FallbackPolicy:
    return FallbackPolicy(
        settings.remote_wal_fallback_enable,
        settings.remote_wal_fallback_lag_ms,
        patience_ms=2 * settings.replica_fetch_wait_max_ms + 1000,
    )


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
