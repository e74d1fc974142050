"""Backfill: a new leader uploads what no bucket in reach holds, and voids what older leaders announced beyond its log.

KIP-1176's republish.  Live records never wait for it: it has uploads of its own, one at a time, gives way while the
combiner is pressed, and keeps to a rate.
"""

import asyncio
import contextlib
import dataclasses
import functools
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

import structlog

from broker.common.clock import Clock
from broker.common.errors import KafkaError
from broker.common.identifiers import TopicIdPartition
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.objectstore.errors import ObjectStoreError
from broker.replication.partition import Partition
from broker.schemas.remote_wal_metadata import RemoteWalCombinedLogSegmentMetadataRecord
from broker.wal.follow.coverage_index import OffsetRange
from broker.wal.follow.wal_interval_map import WalIntervalMap
from broker.wal.objects.combined_segment import (
    EVENT_SIZE_MAX,
    TABLE_SIZE_MAX,
    CombinedSegment,
    build_combined_segment,
    table_row_size_max,
    with_slices,
)
from broker.wal.objects.wal_slice import ReservationToken, SliceGapError, SliceReadError, WalSlice
from broker.wal.remote_wal_stats import RemoteWalStats
from broker.wal.storage.remote_wal_storage_manager import RemoteWalStorageManager
from broker.wal.upload.backfill_plan import BackfillPlan
from broker.wal.upload.bucket_coverage import BucketCoverage
from broker.wal.upload.combiner import Combiner, count_stored
from broker.wal.upload.object_identities import ObjectIdentities
from broker.wal.upload.partition_uploads import Reservation
from broker.wal.upload.republish_plan import RepublishMode
from broker.wal.upload.slice_reader import SliceReader
from broker.wal.upload.upload_queue import ANNOUNCE_WITHIN_MS, ROW_EPOCHS, SliceRead

log = structlog.get_logger(__name__)

OBJECT_BYTES_MAX: Final = 4 << 20  # nobody waits for it: few requests are worth more than a quick one
SLICE_BYTES_MAX: Final = 1 << 20
CATCH_UP_SECONDS: Final = 1.0  # to hear of what older leaders announced, which need not be uploaded again
CATCH_UP_CHECK_SECONDS: Final = 0.05
GIVE_WAY_SECONDS: Final = 1.0  # to live records, for each object
RETRY_SECONDS: Final = 1.0
RECHECK_SECONDS: Final = 10.0  # whether buckets that held something still answer, as far as somebody has asked them
PROBED_SECONDS: Final = 10.0  # an answer is good for all that are elected meanwhile
_BACKFILL_ID: Final = -1  # these ranges are not the upload queue's


class Publisher(Protocol):
    """What announces (`RemoteWalMetadataPublisher`)."""

    @property
    def is_ready(self) -> bool: ...
    async def publish(self, metadata: RemoteWalCombinedLogSegmentMetadataRecord, event: bytes | None) -> None: ...
    async def publish_slices(self, metadata: RemoteWalCombinedLogSegmentMetadataRecord) -> None: ...
    def publish_invalidate(self, partition: TopicIdPartition, leader_epoch: int, from_offset: int) -> None: ...


class _Read(NamedTuple):
    """A slice, the plan it is of, and what of the plan it takes care of."""

    plan: BackfillPlan
    slice: WalSlice
    range: OffsetRange


class _NextObject:
    """An object while its slices are read."""

    def __init__(self) -> None:
        self.reads: list[_Read] = []
        self.room = OBJECT_BYTES_MAX  # for records
        self._table_size = TABLE_SIZE_MAX

    def takes(self, topic: str) -> bool:
        """Whether there is room for another slice of that topic."""
        return self.room > 0 and self._table_size + table_row_size_max(topic, ROW_EPOCHS) <= EVENT_SIZE_MAX

    def add(self, read: _Read) -> None:
        self.reads.append(read)
        self.room -= read.slice.size
        self._table_size += table_row_size_max(read.plan.place.topic, len(read.slice.leader_epochs))


class Backfill:
    """`metadata_lag`: how many records of the metadata topic this broker has not read."""

    def __init__(
        self,
        config: ConfigHolder[BrokerConfig],
        identities: ObjectIdentities,
        storage: RemoteWalStorageManager,
        publisher: Publisher,
        reader: SliceReader,
        combiner: Combiner,
        stats: RemoteWalStats,
        clock: Clock,
        metadata_lag: Callable[[], int],
    ) -> None:
        self._config = config
        self._identities = identities
        self._storage = storage
        self._publisher = publisher
        self._reader = reader
        self._combiner = combiner
        self._stats = stats
        self._clock = clock
        self._metadata_lag = metadata_lag
        self._plans: OrderedDict[TopicIdPartition, BackfillPlan] = OrderedDict()  # whoever had its turn is last
        self._began: dict[TopicIdPartition, float] = {}  # not looked at yet: since when
        self._unreachable: frozenset[str] = frozenset()
        self._probed: dict[str, float] = {}  # buckets of others, and when
        self._is_failing = False  # uploads, since the last that was stored
        self._invalidations: dict[TopicIdPartition, tuple[int, int]] = {}
        self._woken = asyncio.Event()
        self._has_invalidations = asyncio.Event()
        self._tasks = BackgroundTasks("wal-backfill")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Backfill"]:
        async with self._tasks:
            self._tasks.start("republish", self._republish())
            self._tasks.start("invalidate", self._invalidate())
            yield self

    def begin(self, partition: Partition, known: WalIntervalMap) -> None:
        """This broker has just begun to lead the partition, and to upload it; `known` is what it knows of slices."""
        place = TopicIdPartition(partition.topic_id, *partition.topic_partition)
        led, uploads = self._combiner.led(place), self._combiner.uploads_of(place)
        if led is None or uploads is None:
            return
        coverage = BucketCoverage(partition, known, self._clock)
        plan = BackfillPlan(place, partition, coverage, uploads.wal_start)
        led.coverage = coverage
        led.republish = functools.partial(self._again, plan)
        self._plans[place] = plan
        self._began[place] = asyncio.get_running_loop().time()
        if partition.leader_epoch > 0:
            self._invalidations[place] = (partition.leader_epoch, partition.log.log_end_offset)
            self._has_invalidations.set()
        self._woken.set()

    def end(self, partition: TopicIdPartition) -> None:
        """It is not led here any more."""
        self._plans.pop(partition, None)
        self._began.pop(partition, None)
        self._invalidations.pop(partition, None)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is known that is still to be uploaded."""
        return not any(plan.has_work for plan in self._plans.values())

    def _again(self, plan: BackfillPlan, replica_id: int, unread: OffsetRange) -> None:
        if not plan.again(replica_id, unread):
            return
        log.warning(
            "wal_uploaded_again",
            follower=replica_id,
            partition=str(plan.partition.topic_partition),
            from_offset=unread.start_offset,
            to_offset=unread.end_offset,
            reason="a follower does not get it",
        )
        self._woken.set()

    # -- what is void -----------------------------------------------------------------------------------------------

    async def _invalidate(self) -> None:
        """Followers need no such event, it spares them questions to the leader: so nothing waits for it, and many
        elections at a time do not hold up others."""
        while True:
            self._has_invalidations.clear()
            while self._invalidations:
                place, (epoch, offset) = self._invalidations.popitem()
                self._publisher.publish_invalidate(place, epoch, offset)
                await self._reader.breathe()
            await self._has_invalidations.wait()

    # -- what is uploaded again -------------------------------------------------------------------------------------

    async def _republish(self) -> None:
        while True:
            self._woken.clear()
            self._recheck()
            await self._look()
            while self._may_upload() and (reads := await self._read_object()) is not None:
                began = asyncio.get_running_loop().time()
                size_bytes = await self._upload(reads)
                if not size_bytes:
                    break  # partitions that are led since then come in as well
                await self._keep_to_rate(size_bytes, began)
            else:
                await self._pause()

    def _may_upload(self) -> bool:
        """While the own bucket does not answer nothing is known of what it holds, and nothing can be done; and nobody
        can be told of it without a metadata topic."""
        is_reachable = self._storage.is_reachable(self._storage.own_bucket)
        return is_reachable and self._publisher.is_ready and not self._combiner.is_shutting_down

    async def _pause(self) -> None:
        """Until there is something to do.  What was uploaded elsewhere may become unreachable."""
        seconds: float | None = None
        if not self.is_idle:
            seconds = RETRY_SECONDS
        elif any(plan.coverage.buckets for plan in self._plans.values()):
            seconds = RECHECK_SECONDS
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    def _recheck(self) -> None:
        """Plan anew where a bucket of others holds something and has ceased to answer."""
        own = self._storage.own_bucket
        held = {place: plan.coverage.buckets - {own} for place, plan in self._plans.items()}
        unreachable = {each for each in frozenset().union(*held.values()) if not self._storage.is_reachable(each)}
        lost = unreachable - self._unreachable
        for place, plan in self._plans.items():
            plan.is_due = plan.is_due or not lost.isdisjoint(held[place])
        self._unreachable = frozenset(unreachable)

    async def _look(self) -> None:
        """Plan for those that are due, once it is known what older leaders announced, or after a second."""
        loop = asyncio.get_running_loop()
        while self._began and self._metadata_lag() > 0:
            if loop.time() - max(self._began.values()) >= CATCH_UP_SECONDS:
                break
            await asyncio.sleep(CATCH_UP_CHECK_SECONDS)
        self._began.clear()
        if not self._may_upload():
            return
        mode = RepublishMode(self._config.current.remote_wal_republish_mode)
        if mode is not RepublishMode.NONE:
            await self._probe()
        for place, plan in list(self._plans.items()):
            if not (plan.is_due and plan.holds):
                continue
            try:
                plan.look(mode, self._clock.now_ms())
            except KafkaError as error:
                log.warning("wal_coverage_unknown", partition=str(place.topic_partition), error=str(error))
            await self._reader.breathe()

    async def _probe(self) -> None:
        """Whether the buckets of others are there that new plans count on: they may be lost with the leaders that
        wrote to them, and then nobody who reads would find out."""
        now = asyncio.get_running_loop().time()
        due = [plan for plan in self._plans.values() if plan.is_due and plan.holds]
        buckets = frozenset().union(*(plan.coverage.buckets for plan in due)) - {self._storage.own_bucket}
        self._probed = {bucket: at for bucket, at in self._probed.items() if at > now - PROBED_SECONDS}
        to_ask = buckets - self._probed.keys()
        self._probed.update(dict.fromkeys(to_ask, now))
        await asyncio.gather(*(self._storage.probe(bucket) for bucket in to_ask))

    async def _read_object(self) -> list[_Read] | None:
        """The slices of the next object: one of each partition with an urgent range, then whatever there is room for.

        None when there is nothing to do.
        """
        making = _NextObject()
        for plan in list(self._plans.values()):
            if plan.is_urgent:
                await self._add_slice(making, plan)
        for plan in list(self._plans.values()):
            while await self._add_slice(making, plan):
                pass
        return making.reads or None

    async def _add_slice(self, making: _NextObject, plan: BackfillPlan) -> bool:
        """Read the next slice of a plan into the object; False when there is none, or no room for it."""
        place = plan.place
        if not (making.takes(place.topic) and self._plans.get(place) is plan and plan.holds):
            return False
        if plan.is_urgent:
            self._plans.move_to_end(place)
        wanted = plan.next_range()
        read = None if wanted is None else await self._read(plan, wanted, making.room)
        if read is None:
            return False
        making.add(read)
        await self._reader.breathe()
        return True

    async def _read(self, plan: BackfillPlan, wanted: OffsetRange, room: int) -> _Read | None:
        local = plan.partition.log
        token = ReservationToken(*plan.term, _BACKFILL_ID)
        reservation = Reservation(plan.place, token, wanted.start_offset, starts_run=True, first_dirty_ms=0)
        size_max = min(SLICE_BYTES_MAX, room)
        try:
            try:
                built = await self._reader.read(
                    local, SliceRead(reservation, wanted.start_offset, wanted.end_offset, size_max, None)
                )
            except SliceGapError:
                raise
            except SliceReadError:  # its end is within a batch, which goes as a whole
                built = await self._reader.read(
                    local, SliceRead(reservation, wanted.start_offset, local.log_end_offset, 1, None)
                )
        except SliceGapError as gap:
            plan.uploaded(_until(wanted, gap.next_base_offset))
            return None
        except SliceReadError as error:
            log.warning("wal_slice_unreadable", partition=str(plan.partition.topic_partition), error=str(error))
            plan.uploaded(wanted)  # followers get it from here
            return None
        assert built is not None  # there is always room for a first batch
        done = _until(wanted, built.end_offset + 1)
        plan.uploaded(done)
        return _Read(plan, built, done)

    async def _upload(self, reads: Sequence[_Read]) -> int:
        """Store and announce; returns how much it was, 0 when it is to be done again."""
        size_bytes = sum(each.slice.size for each in reads)
        await self._give_way()
        combined = build_combined_segment(
            self._identities.make(None), [each.slice for each in reads], self._combiner.followers_of
        )
        combined = dataclasses.replace(combined, buffers=(b"".join(combined.buffers),))
        try:
            await self._storage.copy_wal_combined_segment(combined)
        except ObjectStoreError as error:
            say = log.debug if self._is_failing else log.warning  # once until one is stored
            say("wal_backfill_failed", object=combined.metadata.object_key, error=str(error))
            self._is_failing = True
            _put_back(reads)
            await asyncio.sleep(RETRY_SECONDS)
            return 0
        self._is_failing = False
        count_stored(self._stats, combined)
        for each in reads:
            self._stats.of(each.plan.place.topic).republish_bytes += each.slice.size
        return size_bytes if await self._announce(reads, combined) else 0

    async def _announce(self, reads: Sequence[_Read], combined: CombinedSegment) -> bool:
        """False when that was given up: the sweep may soon take the object.  What was sent may still arrive."""
        slice_ids = self._current(reads)
        if not slice_ids:
            return True  # an orphan, for the sweep
        metadata = with_slices(combined.metadata, slice_ids)
        event = combined.event if metadata is combined.metadata else None
        publishing = self._tasks.start(f"publish:{metadata.object_key}", self._publisher.publish(metadata, event))
        loop = asyncio.get_running_loop()
        overdue_at = loop.time() + ANNOUNCE_WITHIN_MS / 1000
        while not publishing.done():
            await asyncio.wait([publishing], timeout=RETRY_SECONDS)
            if not publishing.done() and (loop.time() >= overdue_at or not self._current(reads)):
                publishing.cancel()
        if not publishing.cancelled():
            await self._publisher.publish_slices(metadata)
        elif self._current(reads):
            log.warning("wal_object_abandoned", object=metadata.object_key)
            _put_back(reads)
            return False
        return True

    def _current(self, reads: Sequence[_Read]) -> set[UUID]:
        """Ids of the slices that still hold."""
        return {
            each.slice.slice_id for each in reads if self._plans.get(each.plan.place) is each.plan and each.plan.holds
        }

    async def _give_way(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + GIVE_WAY_SECONDS
        while self._combiner.is_pressed:
            if loop.time() >= until:
                break
            await asyncio.sleep(CATCH_UP_CHECK_SECONDS)

    async def _keep_to_rate(self, size_bytes: int, began: float) -> None:
        rate = self._config.current.remote_wal_republish_max_bytes_per_second
        left = size_bytes / rate - (asyncio.get_running_loop().time() - began)
        if left > 0:
            await asyncio.sleep(left)


def _until(wanted: OffsetRange, end_offset: int) -> OffsetRange:
    """What of the range is below an offset."""
    return wanted._replace(end_offset=min(end_offset, wanted.end_offset))


def _put_back(reads: Sequence[_Read]) -> None:
    """They are next again."""
    for each in reversed(reads):
        each.plan.put_back(each.range)
