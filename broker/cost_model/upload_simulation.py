"""UploadSimulation: one broker of a plan in virtual time, with the queue and the layout that brokers have.

Batches come at random; the `UploadQueue` decides what becomes an object and when, `build_combined_segment` in which
order, `plan_ranges` what each follower gets of it.  The formulas are held against this.
"""

import heapq
import math
from dataclasses import dataclass
from typing import Final

from broker.common.chance import Chance
from broker.common.identifiers import TopicIdPartition
from broker.cost_model.plan import Plan
from broker.cost_model.reading import followers_by_chance
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.wal.objects.combined_segment import ObjectIdentity, build_combined_segment
from broker.wal.objects.object_ranges import plan_ranges
from broker.wal.objects.wal_entry import WalEntry, entries_of
from broker.wal.objects.wal_slice import WalSlice
from broker.wal.upload.partition_uploads import LeaderTerm
from broker.wal.upload.queued_partition import QueuedPartition
from broker.wal.upload.upload_queue import CombinedObject, SliceRead, UploadLimits, UploadQueue

PUT_MS: Final = 8.0  # of S3 Express, on average
ACKNOWLEDGED_MS: Final = 5.0  # of the metadata topic
_TERM: Final = LeaderTerm(0, 0)


@dataclass(slots=True)
class SimulatedBroker:
    """Counts since the start; `wanted_bytes` is what followers needed of the `got_bytes` they asked for."""

    seconds: float = 0.0
    objects: int = 0
    slices: int = 0
    record_bytes: int = 0
    object_bytes: int = 0
    gets: int = 0
    got_bytes: int = 0
    wanted_bytes: int = 0

    @property
    def objects_per_second(self) -> float:
        return self.objects / self.seconds

    @property
    def slices_per_object(self) -> float:
        return self.slices / self.objects

    @property
    def gets_per_object(self) -> float:
        return self.gets / self.objects

    @property
    def amplification(self) -> float:
        return self.got_bytes / self.wanted_bytes if self.wanted_bytes else 1.0

    @property
    def metadata_records_per_second(self) -> float:
        """With events of slices."""
        return (self.objects + self.slices) / self.seconds


class UploadSimulation:
    """`limits` are those of now: the policy has chosen."""

    def __init__(self, plan: Plan, limits: UploadLimits, chance: Chance) -> None:
        self._plan = plan
        self._chance = chance
        self._batch_bytes = round(plan.batch_bytes)
        self._data = memoryview(bytes(max(limits.partition_max_bytes, self._batch_bytes)))
        self._batches_per_ms = plan.batches_per_second / plan.brokers / 1000
        self._queue = UploadQueue(limits, lambda partition: _TERM)
        topic_id = chance.uuid()
        self._partitions = [
            TopicIdPartition(topic_id, plan.topic, number) for number in range(max(1, round(plan.led_partitions)))
        ]
        self._followers = {
            each: followers_by_chance(chance, plan.brokers, plan.zones, plan.followers) for each in self._partitions
        }
        self._queued = [self._activate(each) for each in self._partitions]
        self._now = 0.0  # milliseconds
        self._events: list[tuple[float, int, CombinedObject, bool]] = []  # objects that are stored, or acknowledged
        self.broker = SimulatedBroker()

    def run(self, seconds: float) -> SimulatedBroker:
        """Go on for so long."""
        end = self._now + seconds * 1000
        arrival = self._now + self._gap()
        while True:
            wait_ms = self._queue.wait_ms(int(self._now))
            due = math.inf if wait_ms is None else int(self._now) + wait_ms if wait_ms else self._now
            event = self._events[0][0] if self._events else math.inf
            self._now = max(self._now, min(arrival, due, event))
            if self._now >= end:
                break
            if event <= self._now:
                self._happens()
            elif due <= self._now:
                self._make_object()
            else:
                self._arrives(self._queued[self._chance.below(len(self._queued))])
                arrival = self._now + self._gap()
        self._now = end
        self.broker.seconds += seconds
        return self.broker

    def _activate(self, partition: TopicIdPartition) -> QueuedPartition:
        self._queue.activate(
            partition, log_start_offset=0, high_watermark=0, log_end_offset=0, pending_bytes=0, now_ms=0
        )
        queued = self._queue.queued(partition)
        assert queued is not None, partition
        return queued

    def _gap(self) -> float:
        return -math.log(1 - self._chance.random()) / self._batches_per_ms

    def _arrives(self, queued: QueuedPartition) -> None:
        """A batch, which counts as one offset."""
        self._queue.grown(queued, queued.log_end_offset + 1, self._batch_bytes, int(self._now))

    def _make_object(self) -> None:
        making = self._queue.begin_object(int(self._now))
        if making is None:
            return
        while (wanted := self._queue.next_read(making)) is not None:
            self._queue.filled(making, wanted, self._read(wanted))
        slices = list(making.slices)
        if self._queue.seal(making):
            self._count(slices)
            heapq.heappush(self._events, (self._now + PUT_MS, self.broker.objects, making, False))

    def _read(self, wanted: SliceRead) -> WalSlice | None:
        if wanted.room is not None and self._batch_bytes > wanted.room:
            return None
        batches = max(1, min(wanted.size_max // self._batch_bytes, wanted.upper_offset - wanted.start_offset))
        return WalSlice(
            partition=wanted.partition,
            slice_id=self._chance.uuid(),
            token=wanted.reservation.token,
            records=self._data[: batches * self._batch_bytes],
            start_offset=wanted.start_offset,
            end_offset=wanted.start_offset + batches - 1,
            crc32c=0,
            max_timestamp=0,
            leader_epochs=(EpochEntry(0, wanted.start_offset),),
        )

    def _count(self, slices: list[WalSlice]) -> None:
        identity = ObjectIdentity(self._chance.uuid(), 0, 1000, 0, self._plan.bucket, "k", 0)
        combined = build_combined_segment(identity, slices, self._followers.__getitem__)
        broker, records = self.broker, sum(each.size for each in slices)
        broker.objects += 1
        broker.slices += len(slices)
        broker.record_bytes += records
        broker.object_bytes += combined.size
        wanted: dict[int, list[WalEntry]] = {}
        for entry in entries_of(combined.metadata):
            for follower in self._followers[entry.partition]:
                wanted.setdefault(follower, []).append(entry)
        for entries in wanted.values():
            ranges = plan_ranges(entries)
            broker.gets += len(ranges)
            broker.got_bytes += sum(each.size for each in ranges)
            broker.wanted_bytes += sum(each.size for each in entries)

    def _happens(self) -> None:
        _, number, sealed, is_stored = heapq.heappop(self._events)
        if is_stored:
            self._queue.acknowledged(sealed)
            return
        self._queue.stored(sealed, int(self._now))
        for each in self._queue.announceable():
            heapq.heappush(self._events, (self._now + ACKNOWLEDGED_MS, number, each, True))
