"""What `wherry wal ls` and `wherry wal show` print."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from broker.cli.wal_bucket import WalBucket
from broker.common.identifiers import uuid_to_text
from broker.objectstore.errors import NotFound
from broker.objectstore.objects import ObjectInfo
from broker.schemas.remote_wal_metadata import RemoteWalCombinedLogSegmentMetadataRecord
from broker.wal.objects.combined_segment import CorruptObjectError, append_time_of, read_object
from broker.wal.objects.object_key import WalObjectKey
from broker.wal.objects.slice_verifier import CorruptSliceError, verify_slice
from broker.wal.objects.wal_entry import WalEntry, entries_of

PARALLEL: Final = 16
_LISTED: Final = "{age:>8} {size:>9} {broker:>6} {slices:>6}  {key}"
_SLICE: Final = "{partition:<40} {offsets:<25} {epoch:>5}  {epochs:<20} {position:>9} {size:>9}  {crc}  {state}"


async def list_objects(bucket: WalBucket, now_ms: int, *, with_slices: bool) -> AsyncIterator[str]:
    """A line for each object; "?" where an object does not tell.  ObjectStoreError."""
    yield _LISTED.format(age="AGE", size="SIZE", broker="BROKER", slices="SLICES", key="KEY")
    waiting: list[ObjectInfo] = []
    async for found in bucket.objects():
        waiting.append(found)
        if len(waiting) == PARALLEL:
            for line in await _lines(bucket, waiting, now_ms, with_slices=with_slices):
                yield line
            waiting = []
    for line in await _lines(bucket, waiting, now_ms, with_slices=with_slices):
        yield line


async def _lines(bucket: WalBucket, found: Sequence[ObjectInfo], now_ms: int, *, with_slices: bool) -> list[str]:
    return await asyncio.gather(*(_line(bucket, each, now_ms, with_slices=with_slices) for each in found))


async def _line(bucket: WalBucket, found: ObjectInfo, now_ms: int, *, with_slices: bool) -> str:
    broker, slices = "?", "?"
    try:
        broker = str(WalObjectKey.parse(found.key).broker_id)
        if with_slices:
            slices = str(len((await bucket.table(found)).slices))
    except (ValueError, CorruptObjectError, NotFound):
        pass
    age = f"{max(0, now_ms - found.last_modified_ms) // 1000}"
    return _LISTED.format(age=age, size=found.size_bytes, broker=broker, slices=slices, key=found.key)


async def show_object(bucket: WalBucket, key: str) -> tuple[list[str], bool]:
    """The lines about one object, and whether all its bytes are what it says.  ObjectStoreError."""
    found = await bucket.find(key)
    data = await bucket.read(found)
    lines = [f"key      {key}", f"size     {found.size_bytes} bytes", f"stored   {_time(found.last_modified_ms)}"]
    try:
        table = read_object(data)
    except CorruptObjectError as error:
        return [*lines, f"corrupt  {error}"], False
    lines += _head(table)
    lines.append(
        _SLICE.format(
            partition="PARTITION",
            offsets="OFFSETS",
            epoch="EPOCH",
            epochs="BATCHES' EPOCHS",
            position="POSITION",
            size="SIZE",
            crc="CRC-32C   ",
            state="BYTES",
        )
    )
    is_whole = True
    for entry in entries_of(table):
        state = _state(entry, data)
        is_whole = is_whole and state == "ok"
        lines.append(_slice_line(entry, state))
    return lines, is_whole


def _head(table: RemoteWalCombinedLogSegmentMetadataRecord) -> Iterator[str]:
    yield f"bucket   {table.bucket}"
    yield f"broker   {table.broker_id}, epoch {table.broker_epoch}"
    yield f"id       {uuid_to_text(table.combined_segment_id)}"
    yield f"made     {_time(table.event_timestamp_ms)}"
    append_ms = append_time_of(table.custom_metadata)
    if append_ms is not None:
        yield f"oldest   appended {_time(append_ms)}"
    yield f"slices   {len(table.slices)}"


def _slice_line(entry: WalEntry, state: str) -> str:
    return _SLICE.format(
        partition=str(entry.partition.topic_partition),
        offsets=f"{entry.start_offset}-{entry.end_offset}",
        epoch=entry.leader_epoch,
        epochs=",".join(f"{each.epoch}:{each.start_offset}" for each in entry.leader_epochs),
        position=entry.position,
        size=entry.size,
        crc=f"{entry.crc32c:#010x}",
        state=state,
    )


def _state(entry: WalEntry, data: bytes) -> str:
    try:
        verify_slice(entry, memoryview(data)[entry.position : entry.object_end])
    except CorruptSliceError as error:
        return str(error)
    return "ok"


def _time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
