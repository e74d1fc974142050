import pytest

from broker.common.errors import InvalidRecordError
from broker.records.record import Header, Record, decode_records, encode_record


def decode(data: bytes, count: int, **changes: int) -> list[Record]:
    keywords = {"base_offset": 100, "base_timestamp": 1000} | changes
    return list(decode_records(data, count, **keywords))


def test_a_record_in_bytes() -> None:
    raw = encode_record(1, 5, None, b"hello", [("h", b"x")])
    assert raw.hex() == "1e000a02010a68656c6c6f0202680278"
    assert decode(raw, 1) == [Record(101, 1005, None, b"hello", (Header("h", b"x"),), -1)]


def test_null_and_empty_are_different() -> None:
    raw = encode_record(0, 0, b"", None, [("", None), ("e", b"")]) + encode_record(1, 0, None, b"")
    first, second = decode(raw, 2)
    assert (first.key, first.value) == (b"", None)
    assert first.headers == (Header("", None), Header("e", b""))
    assert (second.key, second.value, second.headers) == (None, b"", ())


def test_deltas_may_be_negative_and_large() -> None:
    raw = encode_record(2**31 - 1, -(10**12), b"k" * 200, b"v" * 20_000)
    (record,) = decode(raw, 1)
    assert (record.offset, record.timestamp) == (100 + 2**31 - 1, 1000 - 10**12)
    assert (record.key, record.value) == (b"k" * 200, b"v" * 20_000)


@pytest.mark.parametrize(("timestamp", "base"), [(-(2**63), 1000), (2**63 - 1, -1000), (5, 2**63 - 1), (5, -(2**63))])
def test_timestamps_far_apart_wrap_around_and_back(timestamp: int, base: int) -> None:
    (record,) = decode(encode_record(0, timestamp - base, None, None), 1, base_timestamp=base)
    assert record.timestamp == timestamp


def test_a_timestamp_beyond_64_bits_is_what_java_reads() -> None:
    (record,) = decode(encode_record(0, 6, None, None), 1, base_timestamp=2**63 - 1)
    assert record.timestamp == -(2**63) + 5


def test_log_append_time_replaces_every_timestamp() -> None:
    raw = encode_record(0, 5, b"a", b"") + encode_record(1, 9, b"b", b"")
    assert [record.timestamp for record in decode(raw, 2, log_append_time=77)] == [77, 77]


def test_sequences_follow_the_offset_delta_and_wrap() -> None:
    raw = encode_record(0, 0, b"a", b"") + encode_record(2, 0, b"b", b"")
    assert [record.sequence for record in decode(raw, 2, base_sequence=2147483646)] == [2147483646, 0]
    assert [record.sequence for record in decode(raw, 2, base_sequence=-1)] == [-1, -1]


def test_header_keys_that_are_not_text_survive() -> None:
    body = bytes.fromhex("00 00 00 01 01 02 04 ff fe 01".replace(" ", ""))
    raw = bytes([len(body) * 2]) + body
    (record,) = decode(raw, 1)
    assert encode_record(0, 0, None, None, record.headers) == raw


BAD_RECORDS = {
    "shorter than the smallest record": ("0a0000000101", 1),
    "a negative length": ("01" + "00" * 8, 1),
    "longer than what is left": ("1c0000000101", 1),
    "fields end before the record": ("0e 00 00 00 01 01 00 00", 1),
    "a key past the end": ("0c 00 00 00 20 01 00", 1),
    "a value past the end": ("0c 00 00 00 01 20 00", 1),
    "the header count is negative": ("0c 00 00 00 01 01 01", 1),
    "more headers than bytes": ("0e 00 00 00 01 01 08 00", 1),
    "a header without a key": ("10 00 00 00 01 01 02 01 01", 1),
    "a header value past the end": ("10 00 00 00 01 01 02 00 10", 1),
    "a record less than counted": ("0c 00 00 00 01 01 00", 2),
    "a record more than counted": ("0c 00 00 00 01 01 00 0c 00 00 02 01 01 00", 1),
    "bytes after the last record": ("0c 00 00 00 01 01 00 00", 1),
    "bytes without any record": ("00", 0),
    "a negative count": ("", -1),
    "an integer of six bytes": ("808080808001 00 00 00 01 01 00", 1),
    "fields of the next record": ("0c 00 00 00 01 01 80 01 00 00 02 01 01 00", 1),
}


def test_the_smallest_record_is_accepted() -> None:
    assert decode(bytes.fromhex("0c000000010100"), 1) == [Record(100, 1000, None, None, (), -1)]


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_bad_structure_is_refused(name: str) -> None:
    text, count = BAD_RECORDS[name]
    with pytest.raises(InvalidRecordError):
        decode(bytes.fromhex(text.replace(" ", "")), count)


def test_records_before_the_bad_one_are_given() -> None:
    records = decode_records(bytes.fromhex("0c000000010100" + "0a"), 2, base_offset=0, base_timestamp=0)
    assert next(records).offset == 0
    with pytest.raises(InvalidRecordError):
        next(records)
