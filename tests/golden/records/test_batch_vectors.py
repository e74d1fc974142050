"""Record batches against known bytes: each vector is built, decoded, and protected by its CRC."""

from pathlib import Path

import pytest

from broker.records.control_record import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from broker.records.memory_records_builder import MemoryRecordsBuilder, empty_batch
from broker.records.record import Header, Record
from broker.records.record_batch import CompressionType, RecordBatch, TimestampType, batches
from tests.golden.vectors import lines_of

VECTORS = {name: bytes.fromhex(text) for name, text in lines_of(Path(__file__).with_name("vectors.txt"))}
BATCHES = ("B1", "B2", "B2a", "B3", "B4")
NOW = 1700000000000


def build_b1() -> bytearray:
    builder = MemoryRecordsBuilder(100, partition_leader_epoch=7)
    builder.append(NOW, b"k1", b"v1")
    builder.append(NOW + 5, None, b"hello", [Header("h", b"x")])
    return builder.build()


def build_marker(kind: ControlRecordType) -> bytearray:
    return end_transaction_marker_batch(
        EndTransactionMarker(kind, coordinator_epoch=3),
        producer_id=4000,
        producer_epoch=1,
        timestamp=NOW + 10,
        base_offset=102,
        partition_leader_epoch=7,
    )


def build_b3() -> bytearray:
    return empty_batch(
        100,
        101,
        max_timestamp=NOW + 5,
        producer_id=4000,
        producer_epoch=1,
        base_sequence=10,
        partition_leader_epoch=7,
        is_transactional=True,
    )


def build_b4() -> bytearray:
    builder = MemoryRecordsBuilder(200, partition_leader_epoch=7, delete_horizon_ms=NOW + 3_600_000)
    builder.append(NOW, b"k1", None)
    return builder.build()


def build(name: str) -> bytearray:
    match name:
        case "B1":
            return build_b1()
        case "B2":
            return build_marker(ControlRecordType.COMMIT)
        case "B2a":
            return build_marker(ControlRecordType.ABORT)
        case "B3":
            return build_b3()
        case _:
            return build_b4()


@pytest.mark.parametrize("name", BATCHES)
def test_the_builder_makes_these_bytes(name: str) -> None:
    assert build(name).hex() == VECTORS[name].hex()


@pytest.mark.parametrize("name", BATCHES)
def test_any_byte_under_the_crc_is_protected_and_offset_and_epoch_are_not(name: str) -> None:
    good = VECTORS[name]
    for position in range(len(good)):
        changed = bytearray(good)
        changed[position] ^= 0x01
        if 8 <= position < 12 or position == 16:  # the length and the magic: another batch altogether
            continue
        is_free = position < 8 or 12 <= position < 16
        assert RecordBatch.parse(changed).is_crc_valid() is is_free, position


def test_two_records() -> None:
    batch = RecordBatch.parse(VECTORS["B1"])
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (100, 101, 102)
    assert (batch.size_bytes, batch.partition_leader_epoch, batch.record_count) == (88, 7, 2)
    assert (batch.base_timestamp, batch.max_timestamp) == (NOW, NOW + 5)
    assert (batch.compression, batch.timestamp_type) == (CompressionType.NONE, TimestampType.CREATE_TIME)
    assert not (batch.is_control or batch.is_transactional or batch.has_delete_horizon or batch.has_producer_id)
    assert list(batch.records()) == [
        Record(100, NOW, b"k1", b"v1"),
        Record(101, NOW + 5, None, b"hello", (Header("h", b"x"),)),
    ]


@pytest.mark.parametrize(("name", "kind"), [("B2", ControlRecordType.COMMIT), ("B2a", ControlRecordType.ABORT)])
def test_end_transaction_markers(name: str, kind: ControlRecordType) -> None:
    batch = RecordBatch.parse(VECTORS[name])
    assert batch.is_control and batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (4000, 1, -1, -1)
    (record,) = batch.records()
    assert (record.offset, record.timestamp) == (102, NOW + 10)
    assert EndTransactionMarker.parse(record) == EndTransactionMarker(kind, 3)


def test_a_marker_on_a_log_append_time_topic_has_attributes_38() -> None:
    marker = EndTransactionMarker(ControlRecordType.COMMIT, 3)
    raw = end_transaction_marker_batch(
        marker, producer_id=1, producer_epoch=0, timestamp=NOW, timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    batch = RecordBatch.parse(raw)
    assert (batch.attributes, batch.max_timestamp, batch.size_bytes) == (0x38, NOW, 78)


def test_an_empty_batch_keeps_its_span_and_sequence() -> None:
    batch = RecordBatch.parse(VECTORS["B3"])
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (100, 101, 0)
    assert (batch.base_sequence, batch.last_sequence, batch.max_timestamp) == (10, 11, NOW + 5)
    assert list(batch.records()) == []


def test_a_delete_horizon_is_the_base_timestamp_and_records_keep_theirs() -> None:
    batch = RecordBatch.parse(VECTORS["B4"])
    assert batch.delete_horizon_ms == NOW + 3_600_000
    assert list(batch.records()) == [Record(200, NOW, b"k1", None)]


def test_a_segment_is_walked_batch_by_batch() -> None:
    segment = b"".join(VECTORS[name] for name in BATCHES)
    assert [(batch.base_offset, batch.size_bytes) for batch in batches(segment)] == [
        (100, 88),
        (102, 78),
        (102, 78),
        (100, 61),
        (200, 73),
    ]


def test_offset_and_epoch_are_patched_without_a_new_crc() -> None:
    raw = bytearray(VECTORS["B1"])
    RecordBatch.parse(raw).set_base_offset_and_epoch(2**40, 12)
    batch = RecordBatch.parse(raw)
    batch.ensure_valid()
    assert (batch.base_offset, batch.partition_leader_epoch) == (2**40, 12)
    assert raw[16:] == VECTORS["B1"][16:]
