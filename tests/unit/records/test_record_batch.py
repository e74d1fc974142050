import struct
from collections.abc import Callable

import pytest

from broker.common.buffers import Buffer
from broker.common.errors import CorruptMessageError, InvalidRecordError
from broker.records.memory_records_builder import records_batch
from broker.records.record_batch import (
    CompressionType,
    RecordBatch,
    TimestampType,
    batches,
    whole_batches_size,
)

A = bytes(records_batch((1000, b"k", b"a"), base_offset=0))
B = bytes(records_batch((1001, b"k", b"b"), (1002, b"k", b"c"), base_offset=1))


def changed(raw: bytes, position: int, format_: str, value: int) -> bytes:
    copy = bytearray(raw)
    struct.pack_into(format_, copy, position, value)
    return bytes(copy)


def test_a_view_copies_nothing() -> None:
    whole = bytearray(A)
    assert RecordBatch.parse(whole).buffer is whole
    both = bytearray(A + B)
    second = RecordBatch.parse(both, len(A))
    assert isinstance(second.buffer, memoryview)
    assert second.buffer.obj is both
    assert (second.base_offset, second.last_offset, len(second.buffer), second.size_bytes) == (1, 2, len(B), len(B))


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_all_buffers_are_read(make: Callable[[bytes], Buffer]) -> None:
    batch = RecordBatch.parse(make(A))
    assert batch.is_crc_valid()
    assert [record.value for record in batch.records()] == [b"a"]


CORRUPT = {
    "nothing": (b"", "fits into 0 bytes"),
    "only a few bytes": (A[:16], "fits into 16 bytes"),
    "a part of the header": (A[:60], "does not fit into 60"),
    "a part of the records": (A[:-1], f"{len(A)} bytes does not fit"),
    "zeros": (bytes(100), "Record size 0 is less"),
    "a negative length": (changed(A, 8, ">i", -1), "Record size -1 is less"),
    "a length of 13": (changed(A, 8, ">i", 13), "Record size 13 is less"),
    "shorter than the header": (changed(A, 8, ">i", 48), "its size 60 is below 61"),
    "an enormous length": (changed(A, 8, ">i", 2**31 - 1), "does not fit"),
    "format 0": (changed(A, 16, ">b", 0), "old format 0"),
    "format 1": (changed(A, 16, ">b", 1), "old format 1"),
    "format 3": (changed(A, 16, ">b", 3), "Invalid magic 3"),
    "a negative format": (changed(A, 16, ">b", -1), "Invalid magic 255"),
    "an old message, shorter than our header": (changed(A, 16, ">b", 1)[:40], "old format 1"),
}


@pytest.mark.parametrize("name", CORRUPT)
def test_what_is_no_batch_is_refused(name: str) -> None:
    raw, message = CORRUPT[name]
    with pytest.raises(CorruptMessageError, match=message):
        RecordBatch.parse(raw)


def test_a_wrong_crc_is_refused() -> None:
    batch = RecordBatch.parse(changed(A, len(A) - 2, ">b", 0x55))
    assert not batch.is_crc_valid()
    with pytest.raises(CorruptMessageError, match="stored crc = "):
        batch.ensure_valid()


def test_batches_stop_at_a_partial_tail() -> None:
    assert [batch.base_offset for batch in batches(A + B)] == [0, 1]
    for tail in range(len(B)):
        assert [batch.base_offset for batch in batches(A + B[:tail])] == [0], tail
        assert whole_batches_size(A + B[:tail]) == len(A), tail
    assert [batch.base_offset for batch in batches(A + B, len(A))] == [1]
    assert whole_batches_size(A + B) == len(A) + len(B)
    assert (list(batches(b"")), whole_batches_size(b"")) == ([], 0)


@pytest.mark.parametrize("name", ["zeros", "a negative length", "a length of 13", "format 1", "format 3"])
def test_batches_do_not_pass_over_corruption(name: str) -> None:
    raw, message = CORRUPT[name]
    found = batches(A + raw)
    assert next(found).base_offset == 0
    with pytest.raises(CorruptMessageError, match=message):
        next(found)
    with pytest.raises(CorruptMessageError, match=message):
        whole_batches_size(A + raw)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused_when_records_are_wanted(codec: int) -> None:
    batch = RecordBatch.parse(changed(A, 21, ">h", codec))
    with pytest.raises(InvalidRecordError, match=f"compression type id: {codec}"):
        batch.records()


def test_a_small_batch_that_unpacks_to_a_large_one_is_refused() -> None:
    raw = records_batch((1, b"k", bytes(1_000_000)), compression=CompressionType.ZSTD)
    assert len(raw) < 1000
    batch = RecordBatch.parse(raw)
    assert len(next(batch.records()).value or b"") == 1_000_000
    with pytest.raises(InvalidRecordError, match="more than 100000 bytes"):
        batch.records(decompressed_size_max=100_000)


def test_a_payload_that_is_not_of_its_codec_is_refused() -> None:
    batch = RecordBatch.parse(changed(A, 21, ">h", CompressionType.GZIP))
    with pytest.raises(InvalidRecordError, match="unpacked as gzip"):
        batch.records()


def test_a_record_count_that_is_not_true_is_refused() -> None:
    for count in (-1, 1, 3):
        with pytest.raises(InvalidRecordError):
            list(RecordBatch.parse(changed(B, 57, ">i", count)).records())


def test_the_timestamp_type_is_set_in_place() -> None:
    raw = bytearray(B)
    RecordBatch.parse(raw).set_max_timestamp(TimestampType.LOG_APPEND_TIME, 5555)
    batch = RecordBatch.parse(raw)
    batch.ensure_valid()
    assert (batch.timestamp_type, batch.max_timestamp, batch.base_timestamp) == (
        TimestampType.LOG_APPEND_TIME,
        5555,
        1001,
    )
    assert [record.timestamp for record in batch.records()] == [5555, 5555]
    batch.set_max_timestamp(TimestampType.CREATE_TIME, 1002)
    assert bytes(raw) == B


def test_the_last_sequence_wraps() -> None:
    raw = records_batch((1, b"", b""), (1, b"", b""), producer_id=1, producer_epoch=0, base_sequence=2147483647)
    assert RecordBatch.parse(raw).last_sequence == 0


def test_timestamp_type_names() -> None:
    assert [kind.label for kind in TimestampType] == ["CreateTime", "LogAppendTime"]
    assert [TimestampType.of(kind.label) for kind in TimestampType] == list(TimestampType)
    with pytest.raises(ValueError, match="unknown timestamp type"):
        TimestampType.of("createtime")


def test_it_shows_what_matters() -> None:
    assert repr(RecordBatch.parse(B)) == (
        "RecordBatch(offsets=1..2, epoch=-1, producer=-1/-1, sequence=-1, count=2, attributes=0x0, size=79)"
    )
