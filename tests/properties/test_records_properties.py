"""Record batches, varints and stored messages: what goes in comes out, and no bytes whatever do harm."""

import contextlib
import struct
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from broker.common.errors import CorruptMessageError, InvalidRecordError
from broker.records.append_origin import AppendOrigin
from broker.records.compression import CompressionType, compress, decompress
from broker.records.log_validator import LogValidator, RecordValidationError
from broker.records.memory_records_builder import MemoryRecordsBuilder
from broker.records.record_batch import RecordBatch, TimestampType, batches, set_crc, whole_batches_size
from broker.records.varint import (
    decode_uvarint,
    decode_varint,
    decode_varlong,
    encode_uvarint,
    encode_varint,
    encode_varlong,
)
from broker.schemas import cluster_metadata as metadata
from broker.schemas.framing import UnknownRecordError
from broker.schemas.message_codec import MalformedRecordError

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NULLABLE_BYTES = st.none() | st.binary(max_size=300)
TIMESTAMPS = st.integers(0, 2**45)
HEADERS = st.lists(st.tuples(st.text(max_size=5), NULLABLE_BYTES), max_size=3)
ENTRIES = st.lists(st.tuples(TIMESTAMPS, NULLABLE_BYTES, NULLABLE_BYTES, HEADERS), min_size=1, max_size=8)
CODECS = st.sampled_from(CompressionType)
NOW = 2**44


@given(INT64)
def test_varlongs_come_back(value: int) -> None:
    raw = encode_varlong(value)
    assert len(raw) <= 10
    assert decode_varlong(raw, 0) == (value, len(raw))


@given(INT32)
def test_varints_come_back(value: int) -> None:
    raw = encode_varint(value)
    assert len(raw) <= 5
    assert decode_varint(raw, 0) == (value, len(raw))
    assert encode_varlong(value) == raw


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varints_come_back(value: int) -> None:
    raw = encode_uvarint(value)
    assert decode_uvarint(raw, 0) == (value, len(raw))


@given(CODECS, st.binary(max_size=2000), st.integers(1, 200))
def test_payloads_come_back(codec: CompressionType, data: bytes, repeat: int) -> None:
    assert decompress(codec, compress(codec, data * repeat), len(data) * repeat) == data * repeat


@given(CODECS, st.binary(max_size=200))
def test_any_payload_is_unpacked_or_refused(codec: CompressionType, data: bytes) -> None:
    with contextlib.suppress(InvalidRecordError):
        assert len(decompress(codec, data, 1000)) <= 1000


def build(entries: list[tuple[Any, ...]], codec: CompressionType, **keywords: Any) -> bytearray:
    builder = MemoryRecordsBuilder(compression=codec, **keywords)
    for timestamp, key, value, headers in entries:
        builder.append(timestamp, key, value, headers)
    return builder.build()


@given(ENTRIES, CODECS, st.integers(0, 2**40))
def test_records_come_back(entries: list[tuple[Any, ...]], codec: CompressionType, base_offset: int) -> None:
    batch = RecordBatch.parse(build(entries, codec, base_offset=base_offset))
    batch.ensure_valid()
    assert [(record.timestamp, record.key, record.value, list(record.headers)) for record in batch.records()] == entries
    assert [record.offset for record in batch.records()] == list(range(base_offset, base_offset + len(entries)))
    assert batch.max_timestamp == max(timestamp for timestamp, *_ in entries)


@given(
    ENTRIES, st.sampled_from([CompressionType.NONE, CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD])
)
def test_another_implementation_reads_ours(entries: list[tuple[Any, ...]], codec: CompressionType) -> None:
    theirs = DefaultRecordBatch(bytes(build(entries, codec)))
    assert theirs.validate_crc()
    assert [(record.timestamp, record.key, record.value, list(record.headers)) for record in theirs] == entries


@given(
    ENTRIES, st.sampled_from([CompressionType.NONE, CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD])
)
def test_we_read_another_implementation(entries: list[tuple[Any, ...]], codec: CompressionType) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=5,
        producer_epoch=1,
        base_sequence=9,
        batch_size=10**7,
    )
    for index, (timestamp, key, value, headers) in enumerate(entries):
        builder.append(index, timestamp, key, value, headers)
    batch = RecordBatch.parse(bytes(builder.build()))
    batch.ensure_valid()
    assert [(record.timestamp, record.key, record.value, list(record.headers)) for record in batch.records()] == entries
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 1, 9)


@given(ENTRIES, st.data())
def test_a_log_cut_anywhere_gives_its_whole_batches(entries: list[tuple[Any, ...]], data: st.DataObject) -> None:
    parts = [bytes(build([entry], CompressionType.NONE, base_offset=index)) for index, entry in enumerate(entries)]
    log = b"".join(parts)
    size = data.draw(st.integers(0, len(log)))
    whole = [part for index, part in enumerate(parts) if sum(map(len, parts[: index + 1])) <= size]
    assert [bytes(batch.buffer) for batch in batches(log[:size])] == whole
    assert whole_batches_size(log[:size]) == sum(map(len, whole))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_corrupt(data: bytes) -> None:
    with contextlib.suppress(CorruptMessageError):
        RecordBatch.parse(data)


@given(ENTRIES, CODECS, st.integers(61, 10**6), st.integers(1, 255))
def test_a_damaged_record_is_read_or_refused(
    entries: list[tuple[Any, ...]], codec: CompressionType, position: int, flip: int
) -> None:
    raw = build(entries, codec)
    raw[61 + position % (len(raw) - 61)] ^= flip
    batch = RecordBatch.parse(raw)
    assert not batch.is_crc_valid()
    with contextlib.suppress(InvalidRecordError):
        list(batch.records())


@settings(max_examples=60)
@given(
    ENTRIES,
    CODECS,
    st.none() | CODECS,
    st.booleans(),
    st.sampled_from(TimestampType),
    st.sampled_from([0, 2**43, 2**63 - 1]),
    st.booleans(),
)
def test_the_validator_agrees_with_a_record_by_record_check(
    entries: list[tuple[Any, ...]],
    codec: CompressionType,
    topic_codec: CompressionType | None,
    compact: bool,
    timestamp_type: TimestampType,
    window_ms: int,
    header_is_wrong: bool,
) -> None:
    raw = build(entries, codec)
    if header_is_wrong:
        struct.pack_into(">q", raw, 35, -1)
        set_crc(raw)
    validator = LogValidator(
        topic="t-0",
        compression_type=topic_codec,
        compact=compact,
        timestamp_type=timestamp_type,
        timestamp_before_max_ms=window_ms,
        timestamp_after_max_ms=window_ms,
        message_size_max=10**6,
    )
    is_create_time = timestamp_type is TimestampType.CREATE_TIME
    # A record between the first and the latest one may be older than the first: the header does not show it.
    earliest_seen = entries[0][0]
    checks_each = header_is_wrong or compact or (topic_codec is not None and topic_codec is not codec)
    checks_each = checks_each or not NOW - window_ms <= earliest_seen <= max(e[0] for e in entries) <= NOW + window_ms
    bad = [
        index
        for index, (timestamp, key, _, _) in enumerate(entries)
        if (compact and key is None)
        or (is_create_time and checks_each and not NOW - window_ms <= timestamp <= NOW + window_ms)
    ]
    batch = RecordBatch.parse(raw)
    validator.check_batch(batch, AppendOrigin.CLIENT)
    try:
        assigned = validator.assign(batch, 10, 3, NOW)
    except RecordValidationError as error:
        assert [record_error.batch_index for record_error in error.record_errors] == bad
        return
    assert bad == []
    written = RecordBatch.parse(assigned.buffer)
    written.ensure_valid()
    assert (written.base_offset, written.partition_leader_epoch, written.record_count) == (10, 3, len(entries))
    assert written.compression is (codec if topic_codec is None else topic_codec)
    assert repr(written) == repr(assigned)
    largest = max(timestamp for timestamp, *_ in entries) if is_create_time else NOW
    assert written.max_timestamp == assigned.max_timestamp == largest
    assert [(record.key, record.value, list(record.headers)) for record in written.records()] == [
        entry[1:] for entry in entries
    ]


IDS = st.uuids() | st.just(UUID(int=0))
INT32S = st.lists(INT32, max_size=4).map(tuple)


@given(
    st.builds(
        metadata.PartitionChangeRecord,
        partition_id=INT32,
        topic_id=IDS,
        isr=st.none() | INT32S,
        leader=INT32,
        replicas=st.none() | INT32S,
        leader_recovery_state=st.integers(-128, 127),
        eligible_leader_replicas=st.none() | INT32S,
        directories=st.none() | st.lists(IDS, max_size=3).map(tuple),
    )
    | st.builds(
        metadata.RegisterBrokerRecord,
        broker_id=INT32,
        incarnation_id=IDS,
        broker_epoch=INT64,
        end_points=st.lists(
            st.builds(
                metadata.BrokerEndpoint,
                name=st.text(max_size=300),
                host=st.text(),
                port=st.integers(0, 65535),
                security_protocol=st.integers(-32768, 32767),
            ),
            max_size=3,
        ).map(tuple),
        rack=st.none() | st.text(),
        log_dirs=st.lists(IDS, max_size=3).map(tuple),
    )
)
def test_metadata_records_come_back(record: metadata.MetadataRecord) -> None:
    assert metadata.decode(metadata.encode(record)) == record


@given(st.sampled_from([0, 2, 3, 5, 14, 17, 27]), st.integers(0, 3), st.binary(max_size=100))
def test_any_bytes_are_a_metadata_record_or_malformed(api_key: int, version: int, body: bytes) -> None:
    with contextlib.suppress(MalformedRecordError, UnknownRecordError):
        metadata.decode(bytes([1, api_key, version]) + body)
