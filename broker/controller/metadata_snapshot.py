"""Snapshots of the metadata log: `<end offset>-<epoch>.checkpoint` files of control and data batches (KIP-630)."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from broker.common.errors import CorruptMessageError, KafkaError
from broker.common.file_system import FileSystem, read_file
from broker.controller.metadata_segment import MetadataLogCorruptError
from broker.records.control_record import ControlRecordType, control_batch, parse_control_key
from broker.records.memory_records_builder import MemoryRecordsBuilder
from broker.records.record_batch import RecordBatch
from broker.schemas import cluster_metadata
from broker.schemas.cluster_metadata import MetadataRecord
from broker.schemas.control_messages import SnapshotFooterRecord, SnapshotHeaderRecord, encode_control_message

CHECKPOINT_SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".part"
BATCH_BYTES_MAX: Final = 1 << 20  # readers take a batch at a time; Apache's writer allows itself 8 MiB
BATCH_RECORDS_MAX: Final = 10_000

_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """A snapshot holds everything below `end_offset`; the record before it was written in `epoch`."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{CHECKPOINT_SUFFIX}"

    @property
    def is_bootstrap(self) -> bool:
        """The first content of a cluster rather than a state of its log; never sent to observers."""
        return self.end_offset == 0

    @classmethod
    def parse(cls, file_name: str) -> "SnapshotId | None":
        match = _NAME.fullmatch(file_name)
        return cls(int(match[1]), int(match[2])) if match else None


def write_checkpoint(
    file_system: FileSystem,
    path: Path,
    records: Iterable[MetadataRecord],
    *,
    metadata_version: int,
    epoch: int,
    timestamp_ms: int,
) -> int:
    """Write a snapshot so that it exists whole or not at all; returns its size.  Runs in a thread."""
    part = path.with_name(path.name + PART_SUFFIX)
    file = file_system.open(part, create=True)
    try:
        file.truncate(0)
        position = 0
        for batch in _batches(records, metadata_version, epoch, timestamp_ms):
            position += file.write_at(position, [batch])
        file.sync()
    finally:
        file.close()
    file_system.rename(part, path)
    file_system.sync_directory(path.parent)
    return position


def _batches(
    records: Iterable[MetadataRecord], metadata_version: int, epoch: int, timestamp_ms: int
) -> Iterator[bytearray]:
    # Offsets inside a snapshot only count its own records.
    header = SnapshotHeaderRecord(last_contained_log_timestamp=timestamp_ms)
    yield control_batch(
        [(ControlRecordType.SNAPSHOT_HEADER, encode_control_message(header))],
        timestamp=timestamp_ms,
        base_offset=0,
        partition_leader_epoch=epoch,
    )
    builder = MemoryRecordsBuilder(1, partition_leader_epoch=epoch)
    for record in records:
        version = cluster_metadata.record_version(type(record), metadata_version)
        builder.append(timestamp_ms, None, cluster_metadata.encode(record, version))
        if builder.size_bytes_estimate >= BATCH_BYTES_MAX or builder.record_count >= BATCH_RECORDS_MAX:
            yield builder.build()
            builder = MemoryRecordsBuilder(builder.next_offset, partition_leader_epoch=epoch)
    if builder.record_count:
        yield builder.build()
    yield control_batch(
        [(ControlRecordType.SNAPSHOT_FOOTER, encode_control_message(SnapshotFooterRecord()))],
        timestamp=timestamp_ms,
        base_offset=builder.next_offset,
        partition_leader_epoch=epoch,
    )


def read_checkpoint(file_system: FileSystem, path: Path) -> list[MetadataRecord]:
    """The records of a snapshot.  MetadataLogCorruptError unless it is whole, from its header to its footer."""
    data = read_file(file_system, path)
    records: list[MetadataRecord] = []
    control: list[ControlRecordType | None] = []
    position = 0
    try:
        while position < len(data):
            batch = RecordBatch.parse(data, position)
            batch.ensure_valid()
            if batch.is_control:
                control += [parse_control_key(record.key) for record in batch.records()]
            else:
                records += decode_batch(batch)
            position += batch.size_bytes
    except (CorruptMessageError, ValueError) as error:
        raise MetadataLogCorruptError(f"{path} is broken at position {position}: {error}") from error
    is_whole = control[:1] == [ControlRecordType.SNAPSHOT_HEADER] and control[-1:] == [
        ControlRecordType.SNAPSHOT_FOOTER
    ]
    if not is_whole:
        raise MetadataLogCorruptError(f"{path} has no header or no footer: it was not written to its end")
    return records


def decode_batch(batch: RecordBatch) -> list[MetadataRecord]:
    """The metadata records of a data batch."""
    decoded = []
    try:
        for record in batch.records():
            if record.value is None:
                raise MetadataLogCorruptError(f"the record at offset {record.offset} has no value")
            decoded.append(cluster_metadata.decode(record.value))
    except KafkaError as error:
        raise MetadataLogCorruptError(f"the batch at offset {batch.base_offset} is broken: {error}") from error
    return decoded
