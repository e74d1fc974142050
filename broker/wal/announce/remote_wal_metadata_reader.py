"""RemoteWalMetadataReader: from records of the metadata topic to what is known of partitions.

Nothing on the topic is believed to be readable: a record of a newer broker, or of nobody's, is skipped and counted.
What it would have told is then missing, as if its object had never been announced; followers do without.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from uuid import UUID

import structlog

from broker.common.clock import Clock
from broker.common.errors import CorruptMessageError, InvalidRecordError, UnsupportedVersionError
from broker.common.identifiers import TopicIdPartition
from broker.common.metadata_topic import MetadataRecord
from broker.records.varint import decode_uvarint
from broker.schemas.remote_wal_metadata import (
    RemoteWalCombinedLogSegmentMetadataRecord,
    RemoteWalLogSegmentMetadataRecord,
    RemoteWalLogSegmentMetadataUpdateRecord,
    RemoteWalPartitionInvalidateRecord,
    RemoteWalSliceEntry,
    decode,
)
from broker.wal.follow.wal_partitions import WalPartitions
from broker.wal.objects.wal_entry import entries_of, entry_of
from broker.wal.remote_wal_stats import RemoteWalStats, WalHop

log = structlog.get_logger(__name__)

# Frame version 1, then the api key, then version 0: each of one byte.  The partition follows, whichever of these it is.
_OF_ONE_PARTITION: Final = tuple(
    bytes((1, kind.API_KEY, 0))
    for kind in (
        RemoteWalLogSegmentMetadataRecord,
        RemoteWalLogSegmentMetadataUpdateRecord,
        RemoteWalPartitionInvalidateRecord,
    )
)
_HEAD_SIZE: Final = 3
_SLICE_EVENT: Final = bytes((1, RemoteWalLogSegmentMetadataRecord.API_KEY, 0))
_ID_SIZE: Final = 16

# A slice's own event comes right behind that of its object: within seconds, at 15,000 slices a second.
TOLD_MAX: Final = 100_000

OnCombined = Callable[[RemoteWalCombinedLogSegmentMetadataRecord], None]


class RemoteWalMetadataReader:
    """Counts what it read and what it could not read; `on_combined` is told of every object, whoever made it."""

    def __init__(
        self,
        local_broker_id: int,
        clock: Clock,
        stats: RemoteWalStats,
        on_combined: OnCombined = lambda record: None,
    ) -> None:
        self._local_broker_id = local_broker_id
        self._clock = clock
        self._stats = stats
        self._on_combined = on_combined
        self.read_count = 0
        self.elsewhere_count = 0  # of partitions that are not here: skipped before they were decoded
        self.unknown_count = 0  # of a type or version this broker does not know
        self.malformed_count = 0
        self.repeated_count = 0  # slices told of before, with their object
        self._told: dict[bytes, None] = {}  # ids of slices that partitions here were told of, oldest first
        self._made_ms = clock.now_ms()
        self._began_ms: dict[int, int] = {}  # since when a metadata partition is read, or its past is once more

    def begins(self, metadata_partitions: Iterable[int]) -> None:
        """The past of these is read, beside what is new: what was announced before now is history, and somebody is to
        be told of it who was not, or has forgotten."""
        self._told.clear()
        self._began_ms.update(dict.fromkeys(metadata_partitions, self._clock.now_ms()))

    def read(
        self, metadata_partition: int, records: Sequence[MetadataRecord], partitions: WalPartitions
    ) -> set[TopicIdPartition]:
        """Tell the partitions what the records say; those for which something was new are returned."""
        changed: set[TopicIdPartition] = set()
        for record in records:
            try:
                self._read_one(metadata_partition, record, partitions, changed)
            except UnsupportedVersionError as error:
                self.unknown_count += 1
                self._stats.unreadable_events += 1
                self._say("wal_metadata_record_unknown", record, error, self.unknown_count)
            except (CorruptMessageError, InvalidRecordError, ValueError, IndexError) as error:
                self.malformed_count += 1
                self._stats.unreadable_events += 1
                self._say("wal_metadata_record_malformed", record, error, self.malformed_count)
        return changed

    def _read_one(
        self,
        metadata_partition: int,
        record: MetadataRecord,
        partitions: WalPartitions,
        changed: set[TopicIdPartition],
    ) -> None:
        value = record.value
        if value.startswith(_OF_ONE_PARTITION):
            if self._was_told(value):
                self.repeated_count += 1
                return
            if not partitions.is_wanted(_partition_of(value)):
                self.elsewhere_count += 1
                return
        event = decode(value)
        self.read_count += 1
        match event:
            case RemoteWalCombinedLogSegmentMetadataRecord():
                if event.broker_id != self._local_broker_id:  # which reads of its own when it has nothing else to do
                    self._time_delivery(metadata_partition, event.event_timestamp_ms)
                self._on_combined(event)
                wanted = tuple(
                    row
                    for row in event.slices
                    if partitions.is_wanted(row.remote_log_segment_id.topic_id_partition.topic_id_partition)
                )
                changed |= partitions.add(entries_of(dataclasses.replace(event, slices=wanted), record.offset))
                self._note_told(wanted)
            case RemoteWalLogSegmentMetadataRecord():
                changed |= partitions.add((entry_of(event, record.offset),))
            case RemoteWalLogSegmentMetadataUpdateRecord():
                partitions.update(event)
                changed.add(event.remote_log_segment_id.topic_id_partition.topic_id_partition)
            case RemoteWalPartitionInvalidateRecord():
                partitions.invalidate(event)
                changed.add(event.topic_id_partition.topic_id_partition)

    def _note_told(self, rows: Iterable[RemoteWalSliceEntry]) -> None:
        told = self._told
        for row in rows:
            told[row.remote_log_segment_id.id.bytes] = None
        while len(told) > TOLD_MAX:
            del told[next(iter(told))]

    def _was_told(self, value: bytes) -> bool:
        """Whether it is the event of a slice that is known from that of its object."""
        if not self._told or not value.startswith(_SLICE_EVENT):
            return False
        size, position = decode_uvarint(value, _HEAD_SIZE)
        start = position + size - 1 + _ID_SIZE + 4 + 1  # behind name, id, number and no tags
        return value[start : start + _ID_SIZE] in self._told

    def _time_delivery(self, metadata_partition: int, event_timestamp_ms: int) -> None:
        """What is older than our reading of its partition was not on its way for so long: nobody asked for it."""
        if event_timestamp_ms >= self._began_ms.get(metadata_partition, self._made_ms):
            self._stats.hop(WalHop.METADATA_DELIVERY, (self._clock.now_ms() - event_timestamp_ms) / 1000)

    @staticmethod
    def _say(event: str, record: MetadataRecord, error: Exception, count: int) -> None:
        """Loudly once: whoever writes nonsense may write a lot of it."""
        say = log.warning if count == 1 else log.debug
        say(event, offset=record.offset, size=len(record.value), error=str(error))


def _partition_of(value: bytes) -> TopicIdPartition:
    """The partition an event begins with: name, id and number."""
    size, position = decode_uvarint(value, _HEAD_SIZE)
    name_end = position + size - 1
    id_end = name_end + _ID_SIZE
    topic = value[position:name_end].decode()
    partition = int.from_bytes(value[id_end : id_end + 4], "big", signed=True)
    return TopicIdPartition(UUID(bytes=value[name_end:id_end]), topic, partition)
