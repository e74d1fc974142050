"""WalPointers: what the metadata topic says is in buckets, as far as `wherry wal verify` compares it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from uuid import UUID

from broker.common.errors import CorruptMessageError, InvalidRecordError, UnsupportedVersionError
from broker.common.metadata_topic import MetadataRecord
from broker.schemas.remote_wal_metadata import (
    RemoteLogSegmentState,
    RemoteWalCombinedLogSegmentMetadataRecord,
    RemoteWalLogSegmentMetadataRecord,
    decode,
)
from broker.wal.objects.wal_entry import WalEntry, entries_of, entry_of


@dataclass(slots=True)
class WalPointer:
    """All events about one object.  `slices` are digests of slices, which say where each is and what it must be."""

    bucket: str
    event_timestamp_ms: int
    slices: set[int] = field(default_factory=set)
    topic_ids: set[UUID] = field(default_factory=set)


def slice_digest(entry: WalEntry) -> int:
    """Equal for a slice in an object's table, in the combined event and in its slice event when they say the same."""
    facts = (
        entry.partition,
        entry.slice_id,
        entry.leader_epoch,
        entry.start_offset,
        entry.end_offset,
        tuple(entry.leader_epochs),
        entry.position,
        entry.size,
        entry.crc32c,
    )
    return int.from_bytes(blake2b(repr(facts).encode(), digest_size=8).digest(), "big")


class WalPointers:
    """About a hundred bytes of memory for each slice announced."""

    def __init__(self) -> None:
        self.by_key: dict[str, WalPointer] = {}
        self.record_count = 0
        self.unreadable: list[str] = []  # sentences
        self.unknown_count = 0  # of types and versions that this program does not know

    def add(self, partition: int, records: Iterable[MetadataRecord]) -> None:
        for record in records:
            self.record_count += 1
            try:
                self._add(record)
            except UnsupportedVersionError:
                self.unknown_count += 1
            except (CorruptMessageError, InvalidRecordError, ValueError, IndexError) as error:
                self.unreadable.append(f"record {record.offset} of partition {partition} cannot be read: {error}")

    def _add(self, record: MetadataRecord) -> None:
        event = decode(record.value)
        match event:
            case RemoteWalCombinedLogSegmentMetadataRecord():
                entries = entries_of(event)
            case RemoteWalLogSegmentMetadataRecord():
                entries = (entry_of(event),)
            case _:
                return
        for entry in entries:
            if entry.state != RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                continue
            pointer = self.by_key.get(entry.object_key)
            if pointer is None:
                pointer = self.by_key[entry.object_key] = WalPointer(entry.bucket, entry.event_timestamp_ms)
            pointer.slices.add(slice_digest(entry))
            pointer.topic_ids.add(entry.partition.topic_id)
