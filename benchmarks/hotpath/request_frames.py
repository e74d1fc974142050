"""Encoded requests for the load generator: Produce 9 and Fetch 12, one partition each, with where to patch them."""

import os
import time
from pathlib import Path
from struct import Struct
from typing import Final

from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.protocol.requests import encode_request
from broker.protocol.response_schema import RequestSchema
from broker.records.memory_records_builder import MemoryRecordsBuilder
from broker.records.record_batch import BATCH_HEADER_SIZE

RECORD_BYTES: Final = 1024
RECORD_OVERHEAD_BYTES: Final = 10
CLIENT_ID: Final = "bench"
PRODUCE_VERSION, FETCH_VERSION = 9, 12
ACKS_LEADER, ACKS_ALL = 1, -1
FETCH_BYTES_MAX: Final = 50 << 20
UNLIKELY_OFFSET: Final = 0x7A7B7C7D7E  # to find the field again

_INT64: Final = Struct(">q")


def batch_of(size_bytes: int, producer_id: int = -1) -> tuple[bytes, int]:
    """A batch of about that size and its number of records; with a producer id its sequences begin at 0."""
    is_idempotent = producer_id >= 0
    builder = MemoryRecordsBuilder(
        producer_id=producer_id, producer_epoch=0 if is_idempotent else -1, base_sequence=0 if is_idempotent else -1
    )
    count = max(1, (size_bytes - BATCH_HEADER_SIZE) // RECORD_BYTES)
    value = os.urandom(RECORD_BYTES - RECORD_OVERHEAD_BYTES)
    for _ in range(count):
        builder.append(time.time_ns() // 1_000_000, None, value)
    return bytes(builder.build()), count


def write_produce(path: Path, topic: str, partitions: int, size_bytes: int, first_producer_id: int = -1) -> None:
    """One request per partition; with a producer id each has its own producer, and the generator numbers them."""
    frames = []
    for partition in range(partitions):
        producer_id = first_producer_id + partition if first_producer_id >= 0 else -1
        batch, records = batch_of(size_bytes, producer_id)
        frame = _produce_frame(topic, partition, batch, ACKS_LEADER if producer_id < 0 else ACKS_ALL)
        frames.append((frame, 0, frame.index(batch) if producer_id >= 0 else 0))
    _write(path, records, frames)


def write_fetch(
    path: Path, topic: str, partitions: int, size_bytes: int, *, start_offset: int = 0, max_wait_ms: int = 0
) -> None:
    """One request per partition, from `start_offset` on."""
    frames = []
    for partition in range(partitions):
        frame = bytearray(_fetch_frame(topic, partition, size_bytes, max_wait_ms))
        offset_at = frame.index(_INT64.pack(UNLIKELY_OFFSET))
        _INT64.pack_into(frame, offset_at, start_offset)
        frames.append((bytes(frame), offset_at, 0))
    _write(path, 0, frames)


def _produce_frame(topic: str, partition: int, batch: bytes, acks: int) -> bytes:
    schema = RequestSchema.of(ApiKey.PRODUCE, PRODUCE_VERSION)
    data = schema.PartitionProduceData(index=partition, records=batch)
    entity = schema.ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout=milliseconds(30_000),
        topic_data=(schema.TopicProduceData(name=topic, partition_data=(data,)),),
    )
    return bytes(encode_request(ApiKey.PRODUCE, PRODUCE_VERSION, 0, CLIENT_ID, entity))


def _fetch_frame(topic: str, partition: int, size_bytes: int, max_wait_ms: int) -> bytes:
    schema = RequestSchema.of(ApiKey.FETCH, FETCH_VERSION)
    asked = schema.FetchPartition(partition=partition, fetch_offset=UNLIKELY_OFFSET, partition_max_bytes=size_bytes)
    entity = schema.FetchRequest(
        max_wait=milliseconds(max_wait_ms),
        min_bytes=1,
        max_bytes=FETCH_BYTES_MAX,
        topics=(schema.FetchTopic(topic=topic, partitions=(asked,)),),
        forgotten_topics_data=(),
        rack_id="",
    )
    return bytes(encode_request(ApiKey.FETCH, FETCH_VERSION, 0, CLIENT_ID, entity))


def _write(path: Path, records_per_request: int, frames: list[tuple[bytes, int, int]]) -> None:
    with path.open("wb") as file:
        file.write(b"%d\n" % records_per_request)
        for frame, offset_at, batch_at in frames:
            file.write(b"%d %d %d\n" % (len(frame), offset_at, batch_at) + frame + b"\n")
