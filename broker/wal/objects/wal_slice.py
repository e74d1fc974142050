"""WalSlice: a range of one partition's log as it goes into the bucket: whole batches, byte for byte as in the file."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from crc32c import crc32c

from broker.common.buffers import Buffer
from broker.common.errors import CorruptMessageError
from broker.common.identifiers import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP, TopicIdPartition
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.records.record_batch import BATCH_HEADER_SIZE, LOG_OVERHEAD, MAGIC, RecordBatch

_HEADER: Final = struct.Struct(">qiibIhiqq")  # base offset .. max timestamp
_BEFORE_EPOCHS: Final = NO_EPOCH - 1
_LENGTH_MIN: Final = BATCH_HEADER_SIZE - LOG_OVERHEAD


class ReservationToken(NamedTuple):
    """What must still be true when a slice is announced; taken before its bytes are read.

    The bytes may otherwise be those of a log that was truncated and led again since: then the epoch of now would vouch
    for records of before.  A log end offset compared later cannot tell.  `truncation_generation` counts truncations
    and resets of the log, `reservation_id` the ranges ever given out.
    """

    leader_epoch: int
    truncation_generation: int
    reservation_id: int


class SliceReadError(Exception):
    """The bytes read are not the range that was reserved: the range is released and read again."""


class SliceGapError(SliceReadError):
    """The log has nothing at the start of the range: the next batch begins at `next_base_offset`."""

    def __init__(self, start_offset: int, next_base_offset: int) -> None:
        super().__init__(f"The log goes on at {next_base_offset}, not at {start_offset}")
        self.next_base_offset = next_base_offset


@dataclass(frozen=True, slots=True)
class WalSlice:
    """`end_offset` is inclusive.  `leader_epochs` are those of the batches, from the bytes."""

    partition: TopicIdPartition
    slice_id: UUID
    token: ReservationToken
    records: Buffer
    start_offset: int
    end_offset: int
    crc32c: int
    max_timestamp: int
    leader_epochs: tuple[EpochEntry, ...]

    @property
    def size(self) -> int:
        return len(self.records)


def build_slice(
    partition: TopicIdPartition,
    slice_id: UUID,
    token: ReservationToken,
    records: Buffer,
    *,
    start_offset: int,
    upper_offset: int,
    size_max: int,
    room: int | None,
) -> WalSlice | None:
    """The whole batches at the front of `records`, read from one segment file at `start_offset`, below `upper_offset`.

    About `size_max` bytes, but a first batch that is larger comes alone.  None when that one exceeds the `room` left
    in the object (None: the object is empty, and takes a batch of any size).  A slice may begin before `start_offset`,
    when the log now starts within a batch.  SliceReadError when the bytes are not that range.
    """
    try:
        front = _scan(records, upper_offset, size_max, room, token.leader_epoch)
    except CorruptMessageError as error:
        raise SliceReadError(f"{partition.topic_partition} at {start_offset}: {error}") from error
    if front is None:
        return None
    if front.size == 0:
        raise SliceReadError(f"No whole batch of {partition.topic_partition} at {start_offset}")
    if front.base_offset > start_offset:
        raise SliceGapError(start_offset, front.base_offset)
    if front.first_last_offset < start_offset:
        raise SliceReadError(f"The batch of {partition.topic_partition} ends at {front.first_last_offset}")
    data = memoryview(records)[: front.size]
    return WalSlice(
        partition=partition,
        slice_id=slice_id,
        token=token,
        records=data,
        start_offset=front.base_offset,
        end_offset=front.last_offset,
        crc32c=crc32c(data),
        max_timestamp=front.max_timestamp,
        leader_epochs=tuple(front.epochs),
    )


class _Front:
    """The whole batches at the front of a buffer that go into a slice."""

    __slots__ = ("base_offset", "epochs", "first_last_offset", "last_offset", "max_timestamp", "size")

    def __init__(self) -> None:
        self.size = 0
        self.base_offset = self.first_last_offset = self.last_offset = NO_OFFSET
        self.max_timestamp = NO_TIMESTAMP
        self.epochs: list[EpochEntry] = []


def _scan(records: Buffer, upper_offset: int, size_max: int, room: int | None, epoch_max: int) -> _Front | None:
    """Only what a slice needs of each header: there may be a thousand batches, and the event loop waits."""
    front = _Front()
    unpack = _HEADER.unpack_from
    limit = size_max if room is None else min(size_max, room)
    end = len(records)
    position, last_offset, max_timestamp, newest_epoch = 0, NO_OFFSET, NO_TIMESTAMP, _BEFORE_EPOCHS
    while end - position >= BATCH_HEADER_SIZE:
        base_offset, length, epoch, magic, _, _, delta, _, timestamp = unpack(records, position)
        if length < _LENGTH_MIN or magic != MAGIC:
            raise CorruptMessageError(f"No batch of format 2 at position {position}")
        next_position = position + LOG_OVERHEAD + length
        if next_position > end or base_offset + delta >= upper_offset:
            break
        if position == 0:
            if room is not None and next_position > room:
                return None
            front.base_offset, front.first_last_offset = base_offset, base_offset + delta
        elif next_position > limit:
            break
        if base_offset <= last_offset or delta < 0:
            raise CorruptMessageError(f"Offset {base_offset} follows {last_offset}")
        if epoch != newest_epoch:
            if not (newest_epoch < epoch <= epoch_max and epoch >= 0):
                raise CorruptMessageError(
                    f"A batch of epoch {epoch} at {base_offset}, after {newest_epoch} in epoch {epoch_max}"
                )
            newest_epoch = epoch
            front.epochs.append(EpochEntry(epoch, base_offset))
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        last_offset, position = base_offset + delta, next_position
    front.size, front.last_offset, front.max_timestamp = position, last_offset, max_timestamp
    return front


def leader_epochs_of(chosen: Iterable[RecordBatch], epoch_max: int) -> tuple[EpochEntry, ...]:
    """Each epoch with the base offset of its first batch.

    CorruptMessageError when offsets or epochs go back, or an epoch is newer than `epoch_max`.
    """
    epochs: list[EpochEntry] = []
    next_offset = 0
    for batch in chosen:
        epoch = batch.partition_leader_epoch
        if batch.base_offset < next_offset or batch.last_offset_delta < 0:
            raise CorruptMessageError(f"Offset {batch.base_offset} follows {next_offset - 1}")
        if not 0 <= epoch <= epoch_max or (epochs and epoch < epochs[-1].epoch):
            raise CorruptMessageError(f"A batch of epoch {epoch} at {batch.base_offset}, after {epochs} of {epoch_max}")
        if not epochs or epoch > epochs[-1].epoch:
            epochs.append(EpochEntry(epoch, batch.base_offset))
        next_offset = batch.next_offset
    return tuple(epochs)
