"""What goes over `__remote_wal_log_metadata`: how many records, how many bytes, and who reads them.

Sizes are not assumed: events are made, encoded and compressed as brokers do it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from broker.common.chance import Chance
from broker.common.identifiers import TopicIdPartition
from broker.cost_model.objects import Objects
from broker.cost_model.plan import Plan
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.records.compression import CompressionType
from broker.records.memory_records_builder import MemoryRecordsBuilder
from broker.schemas.remote_metadata_partitioner import combined_event_partition_of
from broker.schemas.remote_wal_metadata import encode, slice_records
from broker.wal.objects.combined_segment import FOOTER_SIZE, CombinedSegment, ObjectIdentity, build_combined_segment
from broker.wal.objects.object_key import WalObjectKey
from broker.wal.objects.wal_slice import ReservationToken, WalSlice

LINGER_SECONDS: Final = 0.5  # of slice events, which wait for others: `LINGER_SECONDS` of the topic's queue
_EVENTS_MAX: Final = 256  # that are made to measure them; beyond, sizes grow in proportion
_CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qk"
_WALL_TIME_MS: Final = 1_790_000_000_000
_SEED: Final = 1176


@dataclass(frozen=True, slots=True)
class Metadata:
    """Per second of the cluster, one copy of each record.  `partitions_read` is of one broker, `share_read` which part
    of the topic's partitions that is, `table_bytes` what an object has behind its slices."""

    combined_records: float
    slice_records: float
    combined_bytes: float
    slice_bytes: float
    partitions_read: float
    share_read: float
    table_bytes: float

    @property
    def records(self) -> float:
        return self.combined_records + self.slice_records

    @property
    def bytes(self) -> float:
        return self.combined_bytes + self.slice_bytes

    @property
    def records_read(self) -> float:
        """By one broker: of all objects, and of the slices that are told of where it reads."""
        return self.combined_records + self.share_read * self.slice_records

    @property
    def bytes_read(self) -> float:
        """By one broker."""
        return self.combined_bytes + self.share_read * self.slice_bytes


def metadata_of(plan: Plan, objects: Objects) -> Metadata:
    """What the plan's brokers tell of such objects."""
    told = objects.per_second * plan.brokers
    slices = objects.slices if plan.slice_events else 0.0
    read = partitions_read(plan)
    return Metadata(
        combined_records=told,
        slice_records=told * slices,
        combined_bytes=told * combined_batch_bytes(plan.topic, plan.bucket, objects.slices),
        slice_bytes=_slice_bytes(plan, objects) if plan.slice_events else 0.0,
        partitions_read=read,
        share_read=read / plan.metadata_partitions,
        table_bytes=table_bytes(plan.topic, plan.bucket, objects.slices),
    )


def partitions_read(plan: Plan) -> float:
    """Partitions of the metadata topic that one broker reads: those of all brokers' objects, and of what it hosts."""
    count = plan.metadata_partitions
    plans = combined_partitions(plan.brokers, count)
    missed: float = (1 - 1 / count) ** plan.hosted_partitions
    return plans + (count - plans) * (1 - missed)


def combined_partitions(brokers: int, metadata_partitions: int) -> int:
    """In how many partitions the objects of brokers 1 to `brokers` are told of."""
    return len({combined_event_partition_of(broker_id, metadata_partitions) for broker_id in range(1, brokers + 1)})


def combined_batch_bytes(topic: str, bucket: str, slices: float) -> float:
    """The event of one object in a batch of its own, as the log has it."""
    return _interpolated(slices, lambda count: _batch_bytes((_sample(topic, bucket, count).event,)))


def slice_batch_bytes(topic: str, bucket: str, events: float) -> float:
    """Events of so many slices of one object in one batch, as the log has it."""
    return _interpolated(events, lambda count: _batch_bytes(_slice_values(topic, bucket)[:count]))


def table_bytes(topic: str, bucket: str, slices: float) -> float:
    """Behind the slices of an object."""
    return FOOTER_SIZE + _interpolated(slices, lambda count: len(_sample(topic, bucket, count).event))


def _slice_bytes(plan: Plan, objects: Objects) -> float:
    """Per second of the cluster.

    A batch has what is for one metadata partition: slices of one object; and, where that partition's leader is told of
    nothing else, those of the objects that come within the linger.  One leader is told of the objects themselves.
    """
    slices = objects.per_second * objects.slices  # per second of one broker
    places = plan.metadata_partitions * (1 - (1 - 1 / plan.metadata_partitions) ** plan.led_partitions)
    with_objects = 1 / min(plan.brokers, plan.metadata_partitions)
    per_object = 1 + max(objects.slices - 1, 0) / max(places, 1)
    total = 0.0
    for part, wait_seconds in ((with_objects, 0.0), (1 - with_objects, LINGER_SECONDS)):
        together = per_object + slices / max(places, 1) * wait_seconds
        total += part * slices / together * slice_batch_bytes(plan.topic, plan.bucket, together)
    return total * plan.brokers


def _interpolated(count: float, size_of: Callable[[int], int]) -> float:
    """For a number of events that is an average."""
    if count >= _EVENTS_MAX:
        return size_of(_EVENTS_MAX) * count / _EVENTS_MAX
    low = max(1, math.floor(count))
    part = max(count - low, 0.0)
    return size_of(low) if part == 0 else (1 - part) * size_of(low) + part * size_of(low + 1)


@lru_cache(maxsize=1024)
def _sample(topic: str, bucket: str, slices: int) -> CombinedSegment:
    """An object of so many slices, without records."""
    chance = Chance(_SEED)
    topic_id, combined_id = chance.uuid(), chance.uuid()
    key = WalObjectKey.at(
        _WALL_TIME_MS, cluster_id=_CLUSTER_ID, broker_id=1, broker_epoch=1000, sequence=1000, combined_id=combined_id
    )
    identity = ObjectIdentity(combined_id, 1, 1000, _WALL_TIME_MS, bucket, str(key), _WALL_TIME_MS)
    return build_combined_segment(
        identity,
        [_slice(chance, TopicIdPartition(topic_id, topic, number), number) for number in range(slices)],
        lambda partition: (),
    )


def _slice(chance: Chance, partition: TopicIdPartition, number: int) -> WalSlice:
    start_offset = chance.below(1 << 24)
    return WalSlice(
        partition=partition,
        slice_id=chance.uuid(),
        token=ReservationToken(leader_epoch=0, truncation_generation=0, reservation_id=number),
        records=bytes(16),
        start_offset=start_offset,
        end_offset=start_offset + 10,
        crc32c=chance.below(1 << 32),
        max_timestamp=_WALL_TIME_MS,
        leader_epochs=(EpochEntry(0, start_offset),),
    )


@lru_cache(maxsize=16)
def _slice_values(topic: str, bucket: str) -> tuple[bytes, ...]:
    return tuple(encode(record) for record in slice_records(_sample(topic, bucket, _EVENTS_MAX).metadata))


def _batch_bytes(values: tuple[bytes, ...]) -> int:
    builder = MemoryRecordsBuilder(compression=CompressionType.LZ4)
    for value in values:
        builder.append(_WALL_TIME_MS, None, value)
    return len(builder.build())
