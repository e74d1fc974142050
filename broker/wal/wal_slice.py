"""WalSlice: a range of one partition's log as it goes into the bucket: whole batches, byte for byte as in the file."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from broker.common.buffers import Buffer
from broker.common.errors import CorruptMessageError
from broker.common.identifiers import TopicIdPartition
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.records.record_batch import RecordBatch, batches


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
    chosen: list[RecordBatch] = []
    size = 0
    try:
        for batch in batches(records):
            if batch.next_offset > upper_offset:
                break
            limit = size_max if room is None else min(size_max, room)
            if chosen and size + batch.size_bytes > limit:
                break
            if not chosen and room is not None and batch.size_bytes > room:
                return None
            chosen.append(batch)
            size += batch.size_bytes
        if not chosen:
            raise SliceReadError(f"No whole batch of {partition.topic_partition} at {start_offset}")
        epochs = leader_epochs_of(chosen, token.leader_epoch)
    except CorruptMessageError as error:
        raise SliceReadError(f"{partition.topic_partition} at {start_offset}: {error}") from error
    first, last = chosen[0], chosen[-1]
    if first.base_offset > start_offset:
        raise SliceGapError(start_offset, first.base_offset)
    if first.last_offset < start_offset:
        raise SliceReadError(f"The batch of {partition.topic_partition} ends at {first.last_offset} < {start_offset}")
    data = memoryview(records)[:size]
    return WalSlice(
        partition=partition,
        slice_id=slice_id,
        token=token,
        records=data,
        start_offset=first.base_offset,
        end_offset=last.last_offset,
        crc32c=crc32c(data),
        max_timestamp=max(batch.max_timestamp for batch in chosen),
        leader_epochs=epochs,
    )


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
