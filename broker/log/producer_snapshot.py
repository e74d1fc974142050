"""The bytes of a producer snapshot: every producer a partition knew below an offset (Kafka: ProducerStateManager).

int16 version 1 | uint32 CRC-32C of what follows | int32 count | entries of 46 bytes.

Kafka writes one entry per producer, with its newest batch, so a restart or a truncation forgets that older batches in
flight are duplicates, and answers them with OUT_OF_ORDER_SEQUENCE_NUMBER.  Here each remembered batch is an entry, the
newest last: Kafka's reader takes the last entry of a producer, and this one all of them.
"""

import struct
from collections.abc import Iterable
from typing import Final

from crc32c import crc32c

from broker.common.buffers import Buffer
from broker.common.identifiers import NO_OFFSET, NO_SEQUENCE
from broker.log.producer_state_entry import BatchMetadata, ProducerStateEntry

VERSION: Final = 1

_PREFIX: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")


class CorruptSnapshotError(Exception):
    """A snapshot that cannot be used (Kafka: CorruptSnapshotException)."""


def encode_snapshot(entries: Iterable[ProducerStateEntry]) -> bytes:
    """Every remembered batch of each producer, the newest last; -1, -1, 0 stands for none."""
    parts = [b""]
    for entry in entries:
        none = BatchMetadata(NO_SEQUENCE, NO_OFFSET, 0, entry.last_timestamp)
        *older, last = entry.batches or (none,)
        parts += [_encode_batch(entry, batch, batch.timestamp, NO_OFFSET) for batch in older]
        first_offset = entry.current_txn_first_offset
        parts.append(
            _encode_batch(entry, last, entry.last_timestamp, NO_OFFSET if first_offset is None else first_offset)
        )
    parts[0] = _COUNT.pack(len(parts) - 1)
    body = b"".join(parts)
    return _PREFIX.pack(VERSION, crc32c(body)) + body


def _encode_batch(entry: ProducerStateEntry, batch: BatchMetadata, timestamp: int, txn_first_offset: int) -> bytes:
    return _ENTRY.pack(
        entry.producer_id,
        entry.producer_epoch,
        batch.last_sequence,
        batch.last_offset,
        batch.offset_delta,
        timestamp,
        entry.coordinator_epoch,
        txn_first_offset,
    )


def decode_snapshot(data: Buffer) -> list[ProducerStateEntry]:
    """CorruptSnapshotError when version, CRC or length are wrong."""
    if len(data) < _PREFIX.size + _COUNT.size:
        raise CorruptSnapshotError(f"{len(data)} bytes are no snapshot")
    version, crc = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshotError(f"version {version} is unknown")
    body = memoryview(data)[_PREFIX.size :]
    if crc32c(body) != crc:
        raise CorruptSnapshotError("the CRC does not match")
    (count,) = _COUNT.unpack_from(body)
    if count < 0 or len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"{count} entries do not fill {len(body)} bytes")
    entries: dict[int, ProducerStateEntry] = {}
    for fields in _ENTRY.iter_unpack(body[_COUNT.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, txn_first_offset = fields
        entry = entries.get(producer_id) or entries.setdefault(producer_id, ProducerStateEntry(producer_id))
        entry.update_epoch(epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.current_txn_first_offset = txn_first_offset if txn_first_offset >= 0 else None
        if last_offset >= 0:
            entry.add_batch(BatchMetadata(last_sequence, last_offset, delta, timestamp))
    return list(entries.values())
