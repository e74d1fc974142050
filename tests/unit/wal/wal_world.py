"""What the tests of the WAL share: logs of batches by (epoch, offsets), slices and entries of them."""

import itertools
from collections.abc import Sequence
from uuid import UUID

from broker.common.buffers import Buffer
from broker.common.identifiers import TopicIdPartition
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.records.memory_records_builder import records_batch
from broker.wal.objects.combined_segment import CombinedSegment, ObjectIdentity, build_combined_segment
from broker.wal.objects.wal_entry import WalEntry
from broker.wal.objects.wal_slice import ReservationToken, WalSlice, build_slice

FOO = TopicIdPartition(UUID(bytes=bytes(range(16))), "foo", 2)
BAR = TopicIdPartition(UUID(bytes=bytes(range(1, 17))), "bar", 0)
BUCKET = "file:///zone-a"
OTHER_BUCKET = "file:///zone-b"

_ids = itertools.count(1)


def new_id() -> UUID:
    return UUID(int=next(_ids) << 64)


def batch(base_offset: int, count: int = 1, *, epoch: int = 0, value: bytes = b"v", timestamp: int = 1000) -> bytes:
    """One batch of `count` records."""
    entries = [(timestamp + index, None, value) for index in range(count)]
    return bytes(records_batch(*entries, base_offset=base_offset, partition_leader_epoch=epoch))


def log_bytes(*shape: tuple[int, int], start: int = 0, value: bytes = b"v") -> bytes:
    """Batches one after the other, each given as (epoch, count of records)."""
    output = b""
    for epoch, count in shape:
        output += batch(start, count, epoch=epoch, value=value)
        start += count
    return output


def make_slice(
    records: Buffer, *, start: int = 0, partition: TopicIdPartition = FOO, leader_epoch: int = 0, reservation: int = 1
) -> WalSlice:
    """All of the batches as one slice."""
    built = build_slice(
        partition,
        new_id(),
        ReservationToken(leader_epoch, 0, reservation),
        records,
        start_offset=start,
        upper_offset=1 << 62,
        size_max=1 << 30,
        room=None,
    )
    assert built is not None
    return built


def make_object(
    slices: Sequence[WalSlice], followers: dict[TopicIdPartition, tuple[int, ...]] | None = None, key: str = "wal/k"
) -> CombinedSegment:
    identity = ObjectIdentity(new_id(), 1, 7, 2000, BUCKET, key)
    return build_combined_segment(identity, slices, lambda partition: (followers or {}).get(partition, ()))


def bytes_of(combined: CombinedSegment) -> bytes:
    return b"".join(bytes(buffer) for buffer in combined.buffers)


def entry(
    start: int,
    end: int,
    *,
    leader_epoch: int = 0,
    epochs: Sequence[tuple[int, int]] | None = None,
    bucket: str = BUCKET,
    metadata_offset: int = -1,
    broker_id: int = 1,
    slice_id: UUID | None = None,
    key: str = "wal/k",
    position: int = 0,
    size: int = 100,
    timestamp: int = 2000,
    state: int = 1,
) -> WalEntry:
    """Offsets start to end, inclusive, of batches of the publisher's epoch unless `epochs` says otherwise."""
    return WalEntry(
        partition=FOO,
        slice_id=slice_id or new_id(),
        combined_segment_id=new_id(),
        broker_id=broker_id,
        leader_epoch=leader_epoch,
        start_offset=start,
        end_offset=end,
        leader_epochs=tuple(EpochEntry(*each) for each in (epochs or [(leader_epoch, start)])),
        bucket=bucket,
        object_key=key,
        position=position,
        size=size,
        crc32c=0,
        event_timestamp_ms=timestamp,
        state=state,
        metadata_offset=metadata_offset,
    )
