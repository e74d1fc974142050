import struct
from typing import Any

import pytest

from broker.common.errors import (
    CorruptMessageError,
    ErrorCode,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from broker.records import record_batch
from broker.records.append_origin import AppendOrigin
from broker.records.compression import CompressionType
from broker.records.control_record import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from broker.records.log_validator import (
    LogValidator,
    RecordValidationError,
    parse_produced_batch,
)
from broker.records.memory_records_builder import MemoryRecordsBuilder, records_batch
from broker.records.record_batch import RecordBatch, TimestampType, set_crc

NOW = 1_700_000_000_000
HOUR = 3_600_000
FOREVER = 2**63 - 1


def validator(**changes: Any) -> LogValidator:
    keywords: dict[str, Any] = {
        "topic": "t-0",
        "compression_type": None,
        "compact": False,
        "timestamp_type": TimestampType.CREATE_TIME,
        "timestamp_before_max_ms": FOREVER,
        "timestamp_after_max_ms": HOUR,
        "message_size_max": 1_048_588,
    }
    return LogValidator(**(keywords | changes))


def with_header(raw: bytearray, position: int, format_: str, value: int) -> bytearray:
    """The batch with another value in its header, and the CRC that belongs to it."""
    struct.pack_into(format_, raw, position, value)
    set_crc(raw)
    return raw


def check(raw: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT, **changes: Any) -> None:
    validator(**changes).check_batch(RecordBatch.parse(raw), origin)


def assign(raw: bytearray, **changes: Any) -> RecordBatch:
    return validator(**changes).assign(RecordBatch.parse(raw), 500, 7, NOW)


def refused(raw: bytearray, **changes: Any) -> RecordValidationError:
    """The error for a batch with bad records; nothing has been changed then."""
    before = bytes(raw)
    with pytest.raises(RecordValidationError) as caught:
        assign(raw, **changes)
    assert bytes(raw) == before
    return caught.value


@pytest.fixture
def no_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **keywords: object) -> None:
        raise AssertionError("records were decoded")

    monkeypatch.setattr(record_batch, "decode_records", fail)
    monkeypatch.setattr(record_batch, "decompress", fail)


def good() -> bytearray:
    return records_batch((NOW, b"k", b"1"), (NOW + 1, b"k", b"2"))


# --- check_batch -----------------------------------------------------------------------------------------------------


def marker() -> bytearray:
    return end_transaction_marker_batch(
        EndTransactionMarker(ControlRecordType.COMMIT, 1), producer_id=4, producer_epoch=0, timestamp=NOW
    )


BAD_BATCHES = {
    "base offset": (records_batch((NOW, b"k", b"1"), base_offset=1), InvalidRecordError),
    "too large": (records_batch((NOW, b"k", bytes(2_000_000))), MessageTooLargeError),
    "crc": (good()[:-1] + b"!", CorruptMessageError),
    "offset delta below 0": (with_header(good(), 23, ">i", -1), InvalidRecordError),
    "offset delta that wraps": (with_header(good(), 23, ">i", -(2**31)), InvalidRecordError),
    "count 0": (with_header(with_header(good(), 57, ">i", 0), 23, ">i", -1), InvalidRecordError),
    "no record for two offsets": (with_header(good(), 57, ">i", 0), InvalidRecordError),
    "negative count": (with_header(good(), 57, ">i", -1), InvalidRecordError),
    "more records than offsets": (with_header(good(), 57, ">i", 3), InvalidRecordError),
    "fewer records than offsets": (with_header(good(), 23, ">i", 2), InvalidRecordError),
    "control batch": (marker(), InvalidRecordError),
    "producer without sequence": (records_batch((NOW, b"", b""), producer_id=0, producer_epoch=0), InvalidRecordError),
    "unknown codec": (with_header(good(), 21, ">h", 5), InvalidRecordError),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_bad_batches_of_clients_are_refused(name: str) -> None:
    raw, error = BAD_BATCHES[name]
    with pytest.raises(KafkaError) as caught:
        check(raw)
    assert type(caught.value) is error


def test_the_codes_are_kafkas() -> None:
    assert InvalidRecordError.code is ErrorCode.invalid_record
    assert MessageTooLargeError.code is ErrorCode.message_too_large
    assert CorruptMessageError.code is ErrorCode.corrupt_message


@pytest.mark.usefixtures("no_decoding")
def test_good_batches_pass() -> None:
    check(good())
    check(records_batch((NOW, None, b"1"), compression=CompressionType.ZSTD))
    check(records_batch((NOW, None, b"1"), producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True))


def test_the_size_limit_is_inclusive() -> None:
    raw = good()
    check(raw, message_size_max=len(raw))
    with pytest.raises(MessageTooLargeError, match=f"{len(raw)} bytes which exceeds the maximum configured value"):
        check(raw, message_size_max=len(raw) - 1)


def test_coordinators_write_markers_at_any_offset_but_crc_and_size_count() -> None:
    check(marker(), AppendOrigin.COORDINATOR)
    check(records_batch((NOW, b"k", b"1"), base_offset=1), AppendOrigin.COORDINATOR)
    for name, error in (("crc", CorruptMessageError), ("too large", MessageTooLargeError)):
        with pytest.raises(error):
            check(BAD_BATCHES[name][0], AppendOrigin.COORDINATOR)


def test_followers_take_any_size_but_check_the_crc() -> None:
    check(BAD_BATCHES["too large"][0], AppendOrigin.REPLICATION)
    check(BAD_BATCHES["base offset"][0], AppendOrigin.REPLICATION)
    with pytest.raises(CorruptMessageError):
        check(BAD_BATCHES["crc"][0], AppendOrigin.REPLICATION)


# --- parse_produced_batch --------------------------------------------------------------------------------------------


def test_a_produce_request_has_one_batch_a_partition() -> None:
    raw = good()
    batch = parse_produced_batch(raw, 12)
    assert (batch.buffer is raw, batch.record_count) == (True, 2)
    with pytest.raises(InvalidRecordError, match="exactly one"):
        parse_produced_batch(bytes(raw + raw), 12)


@pytest.mark.parametrize("records", [b"", b"\x00" * 16, bytes(good())[:-1], bytes(good())[:40]])
def test_no_whole_batch_is_an_invalid_record(records: bytes) -> None:
    with pytest.raises(InvalidRecordError, match="at least one"):
        parse_produced_batch(records, 12)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_invalid_records(magic: int) -> None:
    raw = good()
    raw[16] = magic
    with pytest.raises(InvalidRecordError, match="magic version 2"):
        parse_produced_batch(raw, 12)


def test_what_makes_no_sense_is_corrupt() -> None:
    raw = good()
    raw[16] = 9
    with pytest.raises(CorruptMessageError):
        parse_produced_batch(raw, 12)
    with pytest.raises(CorruptMessageError):
        parse_produced_batch(bytes(100), 12)


def test_a_part_of_a_second_batch_is_left_out() -> None:
    raw = good()
    batch = parse_produced_batch(bytes(raw + raw[:-1]), 12)
    assert (batch.size_bytes, bytes(batch.buffer)) == (len(raw), bytes(raw))


def test_zstd_needs_produce_7() -> None:
    raw = records_batch((NOW, b"k", b"v"), compression=CompressionType.ZSTD)
    assert parse_produced_batch(raw, 7).compression is CompressionType.ZSTD
    with pytest.raises(UnsupportedCompressionTypeError):
        parse_produced_batch(raw, 6)


# --- assign, in place ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_decoding")
@pytest.mark.parametrize("codec", CompressionType)
def test_offsets_and_epoch_are_stamped_in_place_without_decoding(codec: CompressionType) -> None:
    raw = records_batch((NOW, b"k", b"1"), (NOW + 5, None, b"2"), compression=codec)
    before = bytes(raw)
    validated = assign(raw)
    assert validated.buffer is raw
    assert (validated.base_offset, validated.last_offset) == (500, 501)
    assert validated.partition_leader_epoch == 7
    assert (validated.max_timestamp, validated.last_offset) == (NOW + 5, 501)
    assert validated.log_append_time == -1
    assert struct.unpack_from(">qii", raw) == (500, len(raw) - 12, 7)
    assert raw[16:] == before[16:]


@pytest.mark.parametrize("timestamp_type", TimestampType)
def test_the_view_says_what_the_bytes_say(timestamp_type: TimestampType) -> None:
    raw = good()
    batch = RecordBatch.parse(raw)
    validated = validator(timestamp_type=timestamp_type).assign(batch, 500, 7, NOW)
    assert validated is batch
    fresh = RecordBatch.parse(raw)
    assert {name: getattr(batch, name) for name in RecordBatch.__slots__} == {
        name: getattr(fresh, name) for name in RecordBatch.__slots__
    }


def test_what_follows_the_batch_in_its_buffer_stays() -> None:
    raw = good() + b"\x07"
    validator(timestamp_type=TimestampType.LOG_APPEND_TIME).assign(RecordBatch.parse(raw), 500, 7, NOW)
    batch = RecordBatch.parse(raw)
    batch.ensure_valid()
    assert (batch.base_offset, batch.size_bytes, raw[-1]) == (500, len(raw) - 1, 7)


@pytest.mark.usefixtures("no_decoding")
def test_log_append_time_needs_only_the_header() -> None:
    raw = good()
    validated = assign(raw, timestamp_type=TimestampType.LOG_APPEND_TIME, timestamp_before_max_ms=0)
    assert validated.buffer is raw
    assert (validated.max_timestamp, validated.log_append_time) == (NOW, NOW)
    batch = RecordBatch.parse(raw)
    batch.ensure_valid()
    assert (batch.timestamp_type, batch.max_timestamp, batch.base_offset) == (TimestampType.LOG_APPEND_TIME, NOW, 500)
    assert batch.crc == validated.crc


def test_records_of_a_log_append_time_topic_all_have_its_time() -> None:
    raw = records_batch((1, b"k", b"1"), (2, b"k", b"2"))
    assign(raw, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert [record.timestamp for record in RecordBatch.parse(raw).records()] == [NOW, NOW]


@pytest.mark.usefixtures("no_decoding")
def test_timestamps_at_the_edges_of_the_window_need_no_decoding() -> None:
    raw = records_batch((NOW - 1000, b"k", b"1"), (NOW + HOUR, b"k", b"2"))
    assert assign(raw, timestamp_before_max_ms=1000).max_timestamp == NOW + HOUR


@pytest.mark.usefixtures("no_decoding")
def test_a_batch_without_timestamps_needs_no_decoding() -> None:
    assert assign(records_batch((-1, b"k", b"1")), timestamp_before_max_ms=0).max_timestamp == -1


def test_a_marker_passes_the_rules_of_its_topic() -> None:
    raw = marker()
    validated = assign(
        raw, compact=True, compression_type=CompressionType.GZIP, timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    assert validated.buffer is raw
    batch = RecordBatch.parse(raw)
    batch.ensure_valid()
    assert (batch.attributes, batch.size_bytes, batch.max_timestamp) == (0x38, 78, NOW)


# --- assign, bad records ---------------------------------------------------------------------------------------------


def test_every_record_without_a_key_is_named_on_a_compacted_topic() -> None:
    raw = records_batch((NOW, None, b"1"), (NOW, b"k", b"2"), (NOW, None, b"3"), compression=CompressionType.LZ4)
    error = refused(raw, compact=True)
    assert error.code is ErrorCode.invalid_record
    assert [record_error.batch_index for record_error in error.record_errors] == [0, 2]
    assert error.record_errors[0].message == "Compacted topic cannot accept message without key in topic partition t-0."
    assert error.message is not None
    assert error.message.startswith("One or more records have been rejected due to 2 record errors in total")


def test_an_empty_key_is_a_key() -> None:
    assert assign(records_batch((NOW, b"", b"1")), compact=True).buffer


def test_every_timestamp_outside_the_window_is_named() -> None:
    raw = records_batch(
        (NOW, b"k", b""),
        (NOW + HOUR + 1, b"k", b""),
        (NOW - 10, b"k", b""),
        (NOW - 11, b"k", b""),
        (-1, b"k", b""),
        (NOW + HOUR, b"k", b""),
    )
    error = refused(raw, timestamp_before_max_ms=10)
    assert isinstance(error, InvalidTimestampError)
    assert error.code is ErrorCode.invalid_timestamp
    assert [record_error.batch_index for record_error in error.record_errors] == [1, 3]
    assert error.record_errors[0].message == (
        f"Timestamp {NOW + HOUR + 1} of message with offset 1 is out of range. "
        f"The timestamp should be within [{NOW - 10}, {NOW + HOUR}]"
    )
    assert error.message == "One or more records have been rejected due to invalid timestamp"


def test_a_bad_timestamp_wins_over_a_missing_key() -> None:
    raw = records_batch((NOW, None, b""), (NOW + 2 * HOUR, b"k", b""), (NOW, b"k", b""))
    error = refused(raw, compact=True)
    assert error.code is ErrorCode.invalid_timestamp
    assert [record_error.batch_index for record_error in error.record_errors] == [0, 1]


def test_the_first_record_counts_as_well() -> None:
    raw = records_batch((NOW - 100, b"k", b""), (NOW, b"k", b""))
    error = refused(raw, timestamp_before_max_ms=50)
    assert [record_error.batch_index for record_error in error.record_errors] == [0]


def test_a_header_that_lies_about_the_largest_timestamp_is_put_right() -> None:
    raw = with_header(records_batch((NOW, b"k", b""), (NOW + 9, b"k", b"")), 35, ">q", -1)
    validated = assign(raw)
    assert validated.max_timestamp == NOW + 9
    batch = RecordBatch.parse(raw)
    batch.ensure_valid()
    assert (batch.max_timestamp, batch.base_offset, batch.crc) == (NOW + 9, 500, validated.crc)


def test_a_header_outside_the_window_is_no_reason_when_the_records_are_inside() -> None:
    raw = with_header(records_batch((NOW, b"k", b""), (NOW + 9, b"k", b"")), 35, ">q", NOW + 2 * HOUR)
    assert assign(raw).max_timestamp == NOW + 9


def log_append_time_batch(max_timestamp: int) -> bytearray:
    return records_batch(
        (NOW, b"k", b"1"),
        (NOW, b"k", b"2"),
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        log_append_time=max_timestamp,
    )


@pytest.mark.parametrize(
    ("topic_type", "max_timestamp"),
    [(TimestampType.LOG_APPEND_TIME, NOW), (TimestampType.LOG_APPEND_TIME, -1), (TimestampType.CREATE_TIME, -1)],
)
def test_clients_may_not_say_log_append_time(topic_type: TimestampType, max_timestamp: int) -> None:
    error = refused(log_append_time_batch(max_timestamp), timestamp_type=topic_type)
    assert error.code is ErrorCode.invalid_timestamp
    assert [record_error.batch_index for record_error in error.record_errors] == [0, 1]
    assert "should not be LogAppendTime" in error.record_errors[1].message


def test_on_a_create_time_topic_its_timestamp_counts_and_the_type_is_put_right() -> None:
    raw = log_append_time_batch(NOW + 3)
    assert assign(raw).max_timestamp == NOW + 3
    batch = RecordBatch.parse(raw)
    batch.ensure_valid()
    assert (batch.timestamp_type, batch.max_timestamp) == (TimestampType.CREATE_TIME, NOW + 3)
    assert len(refused(log_append_time_batch(NOW + 2 * HOUR)).record_errors) == 2


def test_records_that_cannot_be_decoded_are_refused_where_they_are_decoded() -> None:
    raw = with_header(good(), 61, ">b", 0x7F)
    with pytest.raises(InvalidRecordError):
        assign(raw, compact=True)
    broken = with_header(good(), 21, ">h", CompressionType.ZSTD)
    with pytest.raises(InvalidRecordError):
        assign(broken, compact=True)


# --- assign, rebuilt -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", CompressionType)
@pytest.mark.parametrize("target", CompressionType)
def test_a_batch_is_rebuilt_for_the_codec_of_its_topic(source: CompressionType, target: CompressionType) -> None:
    builder = MemoryRecordsBuilder(
        compression=source, producer_id=9, producer_epoch=3, base_sequence=11, is_transactional=True
    )
    builder.append(NOW, b"k", b"1" * 100, [("h", None)])
    builder.append(NOW - 7, None, None)
    raw = builder.build()
    validated = assign(raw, compression_type=target)
    assert (validated.buffer is raw) is (source is target)
    batch = RecordBatch.parse(validated.buffer)
    batch.ensure_valid()
    assert repr(batch) == repr(validated)
    assert (batch.compression, batch.is_transactional, batch.is_control) == (target, True, False)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 3, 11)
    assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch) == (500, 501, 7)
    assert (batch.base_timestamp, batch.max_timestamp, validated.max_timestamp) == (NOW, NOW, NOW)
    assert [tuple(record) for record in batch.records()] == [
        (500, NOW, b"k", b"1" * 100, (("h", None),), 11),
        (501, NOW - 7, None, None, (), 12),
    ]


def test_a_batch_that_grows_too_large_in_another_codec_is_refused() -> None:
    raw = records_batch((NOW, b"k", bytes(5000)), compression=CompressionType.GZIP)
    check(raw, message_size_max=1000)
    before = bytes(raw)
    with pytest.raises(MessageTooLargeError):
        assign(raw, compression_type=CompressionType.NONE, message_size_max=1000)
    assert bytes(raw) == before


def test_recompression_checks_the_records_first() -> None:
    raw = records_batch((NOW + 2 * HOUR, b"k", b""))
    assert refused(raw, compression_type=CompressionType.GZIP).code is ErrorCode.invalid_timestamp


def test_recompression_on_a_log_append_time_topic() -> None:
    validated = assign(good(), compression_type=CompressionType.ZSTD, timestamp_type=TimestampType.LOG_APPEND_TIME)
    batch = validated
    batch.ensure_valid()
    assert (batch.timestamp_type, batch.max_timestamp, batch.compression) == (
        TimestampType.LOG_APPEND_TIME,
        NOW,
        CompressionType.ZSTD,
    )
    assert (validated.log_append_time, validated.max_timestamp) == (NOW, NOW)


def test_the_level_is_the_topics() -> None:
    words = b"".join(b"%d squared is %d; " % (number, number * number) for number in range(2000))
    sizes = [
        len(
            assign(
                records_batch((NOW, b"k", words)), compression_type=CompressionType.GZIP, compression_level=level
            ).buffer
        )
        for level in (1, 9)
    ]
    assert sizes[1] < sizes[0]


def test_offsets_with_gaps_inside_the_batch_are_closed_when_they_are_seen() -> None:
    builder = MemoryRecordsBuilder()
    builder.append(NOW, b"a", b"", offset=1)
    builder.append(NOW, b"b", b"", offset=2)
    raw = with_header(builder.build(), 23, ">i", 1)
    validated = assign(raw, compact=True)
    assert [record.offset for record in validated.records()] == [500, 501]
    assert validated.buffer is not raw
