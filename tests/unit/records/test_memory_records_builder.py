import pytest

from broker.records.compression import CompressionType
from broker.records.memory_records_builder import MemoryRecordsBuilder, empty_batch, records_batch
from broker.records.record import Record
from broker.records.record_batch import RecordBatch, TimestampType


@pytest.mark.parametrize("codec", CompressionType)
def test_what_is_put_in_comes_out(codec: CompressionType) -> None:
    raw = records_batch(
        (1000, b"a", b"1"),
        (900, None, b"2" * 5000),
        (1100, b"c", None),
        base_offset=50,
        compression=codec,
        producer_id=7,
        producer_epoch=2,
        base_sequence=30,
        partition_leader_epoch=4,
        is_transactional=True,
    )
    batch = RecordBatch.parse(raw)
    batch.ensure_valid()
    assert batch.buffer is raw
    assert (batch.compression, batch.attributes) == (codec, codec | 0x10)
    assert (batch.base_offset, batch.last_offset_delta, batch.record_count) == (50, 2, 3)
    assert (batch.base_timestamp, batch.max_timestamp) == (1000, 1100)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (7, 2, 30, 32)
    assert batch.partition_leader_epoch == 4
    assert list(batch.records()) == [
        Record(50, 1000, b"a", b"1", (), 30),
        Record(51, 900, None, b"2" * 5000, (), 31),
        Record(52, 1100, b"c", None, (), 32),
    ]


def test_the_defaults_are_a_plain_batch_at_0() -> None:
    batch = RecordBatch.parse(records_batch((5, b"k", b"v")))
    assert (batch.base_offset, batch.partition_leader_epoch, batch.attributes) == (0, -1, 0)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)


def test_log_append_time() -> None:
    raw = records_batch((5, b"k", b"v"), timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=9)
    batch = RecordBatch.parse(raw)
    assert (batch.timestamp_type, batch.base_timestamp, batch.max_timestamp) == (TimestampType.LOG_APPEND_TIME, 5, 9)
    assert [record.timestamp for record in batch.records()] == [9]


def test_offsets_may_have_gaps_and_the_span_may_go_on() -> None:
    builder = MemoryRecordsBuilder(10)
    builder.append(1, b"a", b"", offset=12)
    builder.append(2, b"b", b"")
    assert builder.next_offset == 14
    builder.override_last_offset(19)
    batch = RecordBatch.parse(builder.build())
    assert [record.offset for record in batch.records()] == [12, 13]
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (10, 19, 2)


def test_the_size_is_known_before_building() -> None:
    builder = MemoryRecordsBuilder()
    assert (builder.size_bytes_estimate, builder.record_count) == (61, 0)
    builder.append(1, b"a" * 100, b"b" * 1000, [("h", b"v")])
    assert builder.size_bytes_estimate == len(builder.build())
    assert builder.record_count == 1


def test_nothing_is_no_batch() -> None:
    with pytest.raises(AssertionError, match="at least one offset"):
        MemoryRecordsBuilder().build()


def test_offsets_do_not_go_back() -> None:
    builder = MemoryRecordsBuilder(10)
    builder.append(1, b"a", b"")
    with pytest.raises(AssertionError):
        builder.append(1, b"a", b"", offset=10)
    with pytest.raises(AssertionError):
        builder.override_last_offset(9)


def test_an_empty_control_batch() -> None:
    batch = RecordBatch.parse(empty_batch(5, 5, max_timestamp=70, producer_id=1, producer_epoch=0, is_control=True))
    batch.ensure_valid()
    assert (batch.attributes, batch.record_count, batch.base_timestamp, batch.max_timestamp) == (0x20, 0, -1, 70)
    assert list(batch.records()) == []
