"""Combiner: the newest records of all partitions this broker leads, combined into objects (KIP-1176's
RLMWalCombinerTask).

One task looks when an object is due, reads what belongs into it and sends it on its way; uploads and announcements are
tasks of their own, a bounded number of each.  While nothing is appended nothing wakes up and nothing is asked.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

import structlog

from broker.common.errors import KafkaError
from broker.common.identifiers import TopicIdPartition
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.log.unified_log import UnifiedLog
from broker.objectstore.errors import ObjectStoreError
from broker.replication.partition import Partition
from broker.schemas.remote_wal_metadata import RemoteWalCombinedLogSegmentMetadataRecord
from broker.wal.cost.cost_meter import Traffic
from broker.wal.objects.combined_segment import CombinedSegment, build_combined_segment, with_slices
from broker.wal.objects.wal_slice import SliceGapError, SliceReadError
from broker.wal.remote_wal_stats import RemoteWalStats, WalHop
from broker.wal.storage.remote_wal_storage_manager import RemoteWalStorageManager
from broker.wal.upload.fallback_watch import FallbackWatch
from broker.wal.upload.leader_partition import WalLeaderPartition
from broker.wal.upload.object_identities import ObjectIdentities
from broker.wal.upload.partition_uploads import LeaderTerm, PartitionUploads
from broker.wal.upload.queued_partition import QueuedPartition
from broker.wal.upload.slice_reader import RangeDeletedError, SliceReader
from broker.wal.upload.upload_pace import CostPolicy, UploadPace
from broker.wal.upload.upload_queue import CombinedObject, ObjectState, SliceRead, UploadLimits, UploadQueue

log = structlog.get_logger(__name__)

FLUSH_SECONDS_MAX: Final = 1.0  # at shutdown: who leads next uploads the rest
OVERDUE_CHECK_MS: Final = 10_000  # while objects are on their way
UNREACHABLE_CHECK_MS: Final = 250  # while records wait for a bucket that is left alone, or for the metadata topic
UNREADABLE_HOLD_MS: Final = 1000  # before a partition is tried again whose log could not be read
_NEVER: Final = 1 << 62


class Publisher(Protocol):
    """What announces objects (`RemoteWalMetadataPublisher`)."""

    @property
    def is_ready(self) -> bool: ...
    @property
    def is_failing(self) -> bool: ...
    async def publish(self, metadata: RemoteWalCombinedLogSegmentMetadataRecord, event: bytes | None) -> None: ...
    async def publish_slices(self, metadata: RemoteWalCombinedLogSegmentMetadataRecord) -> None: ...


class Combiner:
    """`traffic` tells what goes through the bucket and what it costs, given whether somebody waits with acks=all."""

    def __init__(
        self,
        config: ConfigHolder[BrokerConfig],
        identities: ObjectIdentities,
        storage: RemoteWalStorageManager,
        publisher: Publisher,
        reader: SliceReader,
        stats: RemoteWalStats,
        traffic: Callable[[bool], Traffic],
    ) -> None:
        self._config = config
        self._identities = identities
        self._storage = storage
        self._publisher = publisher
        self._reader = reader
        self._stats = stats
        self._traffic = traffic
        settings = config.current
        limits = limits_of(settings)
        self._pace = UploadPace(
            limits, CostPolicy(settings.remote_wal_cost_policy), settings.remote_wal_combine_economy_linger_ms
        )
        self._queue = UploadQueue(limits, self._term_of)
        self._led: dict[TopicIdPartition, WalLeaderPartition] = {}
        self._watch = FallbackWatch()
        self._unread: set[TopicIdPartition] = set()  # when last read
        self._tasks = BackgroundTasks("wal-combiner")
        self._stored: dict[CombinedObject, CombinedSegment] = {}  # without their bytes: to be announced
        self._publishing: dict[CombinedObject, asyncio.Task[None]] = {}
        self._woken = asyncio.Event()
        self._changed = asyncio.Event()  # for who waits until nothing is left
        self._fresh_bytes = 0  # appended since the task looked last
        self._wake_at_bytes = _NEVER
        self._someone_waits = False  # with acks=all, when the limits were chosen last
        self._backoff_ms = 0
        self._not_before_ms = 0
        self._trial: CombinedObject | None = None  # begun since the last failure, without a success yet
        self._throttled_seen = 0
        self.is_shutting_down = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Combiner"]:
        """Uploads within it; what is on its way at the end is dropped, and uploaded again by who leads next."""
        async with self._tasks:
            self._tasks.start("combine", self._combine())
            self._tasks.start("watch-fallback", self._watch.run())
            yield self
            for partition in list(self._led):
                self.deactivate(partition)
            self._watch.close()

    # -- what happens to partitions ---------------------------------------------------------------------------------

    def activate(self, partition: Partition) -> WalLeaderPartition:
        """This broker leads the partition, in a new epoch or with uploads switched on: they begin at its high
        watermark."""
        led = WalLeaderPartition(partition, self, self._config, self._stats, self._watch)
        place = led.topic_id_partition
        self.deactivate(place)
        self._led[place] = led
        local = partition.log
        start_offset = max(local.local_log_start_offset, local.high_watermark)
        self._queue.activate(
            place,
            log_start_offset=local.local_log_start_offset,
            high_watermark=local.high_watermark,
            log_end_offset=local.log_end_offset,
            pending_bytes=_bytes_from(local, start_offset),
            now_ms=_now_ms(),
        )
        led.queued = self._queue.queued(place)
        self._wake()
        return led

    def deactivate(self, partition: TopicIdPartition) -> None:
        """Nothing of it is uploaded any more, nor announced what is on its way."""
        if (led := self._led.pop(partition, None)) is not None:
            led.retire()
        self._queue.deactivate(partition)
        self._unread.discard(partition)
        for announced in [each for each in self._publishing if not each.current_slice_ids]:
            self._give_up(announced)

    def appended(self, queued: QueuedPartition, log_end_offset: int, size_bytes: int, now_ms: int) -> None:
        """For the hot path: the task is woken only when it would do something else than it is about to."""
        self._queue.grown(queued, log_end_offset, size_bytes, now_ms)
        self._fresh_bytes += size_bytes
        if self._fresh_bytes >= self._wake_at_bytes:
            self._wake()

    def awaited(self) -> None:
        """Somebody waits with acks=all: not for what the task waits for on behalf of those who do not."""
        if not self._someone_waits:
            self._wake()

    def log_start_moved(self, partition: TopicIdPartition, log_start_offset: int) -> None:
        self._queue.log_start_moved(partition, log_start_offset)
        self._announce()

    # -- what others ask --------------------------------------------------------------------------------------------

    @property
    def queue(self) -> UploadQueue:
        """To look at."""
        return self._queue

    def led(self, partition: TopicIdPartition) -> WalLeaderPartition | None:
        return self._led.get(partition)

    def uploads_of(self, partition: TopicIdPartition) -> PartitionUploads | None:
        return self._queue.uploads_of(partition)

    def unannounced_since_ms(self, partition: TopicIdPartition) -> int | None:
        return self._queue.unannounced_since_ms(partition)

    def lag_of(self, partition: TopicIdPartition) -> tuple[int, int]:
        """(bytes, milliseconds) that followers cannot find in the bucket yet, and for how long."""
        since_ms = self._queue.unannounced_since_ms(partition)
        lag_ms = 0 if since_ms is None else _now_ms() - since_ms
        return self._queue.unannounced_bytes(partition), lag_ms

    @property
    def is_metadata_failing(self) -> bool:
        return self._publisher.is_failing

    @property
    def is_pressed(self) -> bool:
        """Whether live records wait for an upload to end."""
        return self._queue.uploading_count >= self._queue.limits.inflight_max

    @property
    def inflight_count(self) -> int:
        """Objects that are being uploaded."""
        return self._queue.uploading_count

    @property
    def interval_ms(self) -> int:
        """How often objects are made now."""
        return self._queue.limits.interval_ms

    @property
    def linger_ms(self) -> int:
        """How long few bytes wait for more now."""
        return self._queue.limits.linger_ms

    @property
    def fallback_partition_count(self) -> int:
        """Led partitions of which a follower gets records from here."""
        return sum(each.is_falling_back for each in list(self._led.values()))

    async def flush(self) -> None:
        """Before leadership is handed over: upload and announce what waits, at once, for a second at most.

        From here on followers that are behind get records from this leader.
        """
        self.is_shutting_down = True
        self._wake()
        queue = self._queue
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS_MAX):
                while queue.dirty or queue.is_making or queue.has_objects:
                    self._changed.clear()
                    await self._changed.wait()

    # -- putting objects together -----------------------------------------------------------------------------------

    async def _combine(self) -> None:
        while True:
            now_ms = _now_ms()
            self._abandon_overdue(now_ms)
            self._fresh_bytes = 0
            wait_ms = self._wait_ms(now_ms)
            if wait_ms == 0:
                self._wake_at_bytes = _NEVER
                await self._make_object(now_ms)
            else:
                self._wake_at_bytes = self._missing_bytes(wait_ms)
                await self._pause(wait_ms)

    def _wait_ms(self, now_ms: int) -> int | None:
        if self._queue.dirty:
            self._queue.limits = self._limits()
        wait_ms = self._queue.wait_ms(now_ms)
        if wait_ms is None or (self._trial is not None and self._trial.state is ObjectState.UPLOADING):
            return None  # after a failure one at a time, until one succeeds
        if not (self._storage.is_reachable(self._storage.own_bucket) and self._publisher.is_ready):
            wait_ms = max(wait_ms, UNREACHABLE_CHECK_MS)
        return max(wait_ms, self._not_before_ms - now_ms)

    def _limits(self) -> UploadLimits:
        if self._storage.throttled_count > self._throttled_seen:
            self._throttled_seen = self._storage.throttled_count
            self._pace.throttled()
        self._someone_waits = self._does_someone_wait()
        limits = self._pace.limits(self._traffic(self._someone_waits))
        return dataclasses.replace(limits, interval_ms=0, linger_ms=0) if self.is_shutting_down else limits

    def _does_someone_wait(self) -> bool:
        led = self._led
        return any(each in led and led[each].partition.waiting_appends for each in self._queue.dirty)

    def _missing_bytes(self, wait_ms: int | None) -> int:
        """How much must be appended for an object to be due earlier than that, while nobody begins to wait for it."""
        if not self._queue.dirty:
            return 0
        if wait_ms is None:
            return _NEVER
        limits, pending = self._queue.limits, self._queue.pending_bytes
        return (limits.min_bytes if pending < limits.min_bytes else limits.max_bytes) - pending

    async def _pause(self, wait_ms: int | None) -> None:
        if wait_ms is None and self._queue.has_objects:
            wait_ms = OVERDUE_CHECK_MS
        self._woken.clear()
        if wait_ms is None:
            await self._woken.wait()
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + wait_ms / 1000
        timer = loop.call_at(due, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()
        if (late_seconds := loop.time() - due) >= 0:
            self._pace.woken(1000 * late_seconds)

    def _wake(self) -> None:
        self._wake_at_bytes = _NEVER
        self._woken.set()
        self._changed.set()

    async def _make_object(self, now_ms: int) -> None:
        making = self._queue.begin_object(now_ms)
        if making is None:
            return
        while (wanted := self._queue.next_read(making)) is not None:
            await self._read(making, wanted)
            await self._reader.breathe()
        if self._queue.seal(making):
            self._send(making)

    async def _read(self, making: CombinedObject, wanted: SliceRead) -> None:
        led = self._led.get(wanted.partition)
        local = None if led is None else led.partition.local_log
        if local is None:
            self._queue.read_failed(making, wanted, hold_until_ms=_now_ms() + UNREADABLE_HOLD_MS)
            return
        try:
            built = await self._reader.read(local, wanted)
        except SliceReadError as error:
            self._unreadable(making, wanted, local, error)
        else:
            self._unread.discard(wanted.partition)
            self._queue.filled(making, wanted, built)

    def _unreadable(self, making: CombinedObject, wanted: SliceRead, local: UnifiedLog, error: SliceReadError) -> None:
        if isinstance(error, RangeDeletedError):
            self._queue.log_start_moved(wanted.partition, local.local_log_start_offset)
            self._queue.read_failed(making, wanted)
        elif isinstance(error, SliceGapError):
            self._queue.read_failed(making, wanted, error)
        else:
            if wanted.reservation.is_current:
                say = log.debug if wanted.partition in self._unread else log.warning  # once until it can be read
                say("wal_slice_unreadable", partition=str(wanted.partition.topic_partition), error=str(error))
                self._unread.add(wanted.partition)
                self._stats.of(wanted.partition.topic).copy_errors += 1
            self._queue.read_failed(making, wanted, error, hold_until_ms=_now_ms() + UNREADABLE_HOLD_MS)

    # -- sending them off -------------------------------------------------------------------------------------------

    def _send(self, sealed: CombinedObject) -> None:
        now_ms = _now_ms()
        waited_ms = [now_ms - each.first_dirty_ms for each in sealed.reservations.values()]
        for each in waited_ms:
            self._stats.hop(WalHop.COMBINE_WAIT, each / 1000)
        combined = build_combined_segment(self._identities.make(max(waited_ms)), sealed.slices, self.followers_of)
        combined = dataclasses.replace(combined, buffers=(b"".join(combined.buffers),))
        sealed.slices.clear()  # their bytes are in the object now
        self._trial = sealed if self._backoff_ms else None
        self._tasks.start(f"upload:{combined.metadata.object_key}", self._upload(sealed, combined))

    def followers_of(self, partition: TopicIdPartition) -> list[int]:
        """Who wants its slices."""
        led = self._led.get(partition)
        return [] if led is None else list(led.partition.remote_replicas)

    async def _upload(self, sealed: CombinedObject, combined: CombinedSegment) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await self._storage.copy_wal_combined_segment(combined)
        except ObjectStoreError as error:
            self._failed(sealed, combined, error)
            return
        self._stats.hop(WalHop.PUT, loop.time() - began)
        count_stored(self._stats, combined)
        self._pace.stored()
        self._backoff_ms = self._not_before_ms = 0
        self._trial = None
        self._stored[sealed] = dataclasses.replace(combined, buffers=())
        self._queue.stored(sealed, _now_ms())
        self._announce()
        self._wake()

    def _failed(self, sealed: CombinedObject, combined: CombinedSegment, error: ObjectStoreError) -> None:
        say = log.debug if self._backoff_ms else log.warning  # once until one is stored
        say("wal_upload_failed", object=combined.metadata.object_key, error=str(error))
        for topic in {each.partition.topic for each in sealed.reservations.values()}:
            self._stats.of(topic).copy_errors += 1
        settings, now_ms = self._config.current, _now_ms()
        self._backoff_ms = min(
            max(2 * self._backoff_ms, settings.remote_wal_upload_retry_backoff_ms),
            settings.remote_wal_upload_retry_max_ms,
        )
        self._not_before_ms = now_ms + self._backoff_ms
        self._queue.failed(sealed, now_ms)
        self._announce()
        self._wake()

    def _announce(self) -> None:
        """Publish what may be published now: an object waits for those before it with the same partitions."""
        for sealed in self._queue.announceable():
            stored = self._stored[sealed]
            metadata = with_slices(stored.metadata, sealed.current_slice_ids)
            event = stored.event if metadata is stored.metadata else None
            self._publishing[sealed] = self._tasks.start(
                f"publish:{metadata.object_key}", self._publish(sealed, metadata, event)
            )
        for gone in [each for each in self._stored if not self._queue.holds(each)]:
            del self._stored[gone]  # nothing of it held any more: an orphan, for the sweep

    async def _publish(
        self, sealed: CombinedObject, metadata: RemoteWalCombinedLogSegmentMetadataRecord, event: bytes | None
    ) -> None:
        await self._publisher.publish(metadata, event)
        self._publishing.pop(sealed, None)
        now_ms = _now_ms()
        for each in sealed.reservations.values():
            if each.is_current and (led := self._led.get(each.partition)) is not None:
                led.announced(now_ms - each.first_dirty_ms)
        self._queue.acknowledged(sealed)
        self._announce()
        self._wake()
        await self._publisher.publish_slices(metadata)

    def _give_up(self, announced: CombinedObject) -> None:
        if (publishing := self._publishing.pop(announced, None)) is not None:
            publishing.cancel()
        self._queue.failed(announced, _now_ms())
        self._stored.pop(announced, None)
        self._wake()

    def _abandon_overdue(self, now_ms: int) -> None:
        for overdue in self._queue.abandon_overdue(now_ms):
            log.warning("wal_object_abandoned", object=self._stored[overdue].metadata.object_key)
            self._give_up(overdue)

    def _term_of(self, partition: TopicIdPartition) -> LeaderTerm | None:
        led = self._led.get(partition)
        if led is None or not led.partition.is_leader or led.partition.local_log is None:
            return None
        return LeaderTerm(led.partition.leader_epoch, led.partition.local_log.truncation_count)


def limits_of(settings: BrokerConfig) -> UploadLimits:
    """The settings of the combiner."""
    return UploadLimits(
        interval_ms=settings.remote_wal_combine_interval_ms,
        linger_ms=settings.remote_wal_combine_max_linger_ms,
        min_bytes=settings.remote_wal_combine_min_bytes,
        max_bytes=settings.remote_wal_combine_max_bytes,
        partition_max_bytes=settings.remote_wal_combine_partition_max_bytes,
        inflight_max=settings.remote_wal_upload_max_inflight,
    )


def count_stored(stats: RemoteWalStats, combined: CombinedSegment) -> None:
    """An object is in the bucket."""
    rows = combined.metadata.slices
    topics: set[str] = set()
    for row in rows:
        topic = row.remote_log_segment_id.topic_id_partition.name
        stats.of(topic).copy_bytes += row.size_in_bytes
        topics.add(topic)
    for topic in topics:
        stats.of(topic).copy_requests += 1
    stats.object_size(combined.size)
    stats.slices_per_object(len(rows))


def _bytes_from(local: UnifiedLog, offset: int) -> int:
    """About how many bytes the log has from `offset` on."""
    if offset >= local.log_end_offset:
        return 0
    first, *others = local.segments.from_offset(offset)
    try:
        position = first.position_of(offset) or 0
    except KafkaError:  # whoever reads it will tell
        position = 0
    return first.size_bytes - position + sum(each.size_bytes for each in others)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
