import dataclasses
from typing import get_args
from uuid import UUID

import pytest

from broker.common.identifiers import TopicIdPartition
from broker.schemas.framing import UnknownRecordError
from broker.schemas.message_codec import MalformedRecordError
from broker.schemas.remote_wal_metadata import (
    RECORD_TYPES,
    RemoteLogSegmentIdEntry,
    RemoteWalCombinedLogSegmentMetadataRecord,
    RemoteWalLogSegmentMetadataRecord,
    RemoteWalLogSegmentMetadataUpdateRecord,
    RemoteWalMetadataRecord,
    RemoteWalPartitionInvalidateRecord,
    RemoteWalSliceEntry,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
    decode,
    encode,
    slice_records,
)


def uuid_from(first: int) -> UUID:
    return UUID(bytes=bytes(range(first, first + 16)))


FOO_2 = TopicIdPartition(uuid_from(0), "foo", 2)
SLICE_ID = RemoteLogSegmentIdEntry(topic_id_partition=TopicIdPartitionEntry.of(FOO_2), id=uuid_from(0x10))
EPOCHS = (SegmentLeaderEpochEntry(leader_epoch=3, offset=100),)
COMBINED = RemoteWalCombinedLogSegmentMetadataRecord(
    combined_segment_id=uuid_from(0x20),
    broker_id=1,
    broker_epoch=7,
    event_timestamp_ms=2000,
    bucket="b",
    object_key="k",
    object_size_in_bytes=12288,
    max_timestamp_ms=1000,
    slices=(
        RemoteWalSliceEntry(
            remote_log_segment_id=SLICE_ID,
            leader_epoch=3,
            start_offset=100,
            end_offset=149,
            position_in_object=8192,
            size_in_bytes=4096,
            slice_crc32c=0xDEADBEEF,
            max_timestamp_ms=1000,
            segment_leader_epochs=EPOCHS,
        ),
    ),
)
SLICE = RemoteWalLogSegmentMetadataRecord(
    remote_log_segment_id=SLICE_ID,
    combined_segment_id=uuid_from(0x20),
    start_offset=100,
    end_offset=149,
    broker_id=1,
    leader_epoch=3,
    max_timestamp_ms=1000,
    event_timestamp_ms=2000,
    segment_leader_epochs=EPOCHS,
    segment_size_in_bytes=4096,
    bucket="b",
    object_key="k",
    position_in_object=8192,
    slice_crc32c=0xDEADBEEF,
)
UPDATE = RemoteWalLogSegmentMetadataUpdateRecord(
    remote_log_segment_id=SLICE_ID, broker_id=1, leader_epoch=4, event_timestamp_ms=2600, remote_log_segment_state=3
)
INVALIDATE = RemoteWalPartitionInvalidateRecord(
    topic_id_partition=TopicIdPartitionEntry.of(FOO_2),
    broker_id=1,
    leader_epoch=4,
    from_offset=150,
    event_timestamp_ms=2500,
)
GOLDEN: list[tuple[RemoteWalMetadataRecord, str]] = [
    (
        COMBINED,
        "010400202122232425262728292a2b2c2d2e2f00000001000000000000000700000000000007d00262026b0000300000000000000003e8"
        "0204666f6f000102030405060708090a0b0c0d0e0f0000000200101112131415161718191a1b1c1d1e1f000000000300000000000000"
        "640000000000000095000020000000100000000000deadbeef00000000000003e8020000000300000000000000640000000100",
    ),
    (
        SLICE,
        "01050004666f6f000102030405060708090a0b0c0d0e0f0000000200101112131415161718191a1b1c1d1e1f0020212223242526"
        "2728292a2b2c2d2e2f00000000000000640000000000000095000000010000000300000000000003e800000000000007d0020000"
        "0003000000000000006400000010000262026b0000200000000000deadbeef000100",
    ),
    (
        UPDATE,
        "01060004666f6f000102030405060708090a0b0c0d0e0f0000000200101112131415161718191a1b1c1d1e1f00000000010000000400"
        "00000000000a28000300",
    ),
    (
        INVALIDATE,
        "01070004666f6f000102030405060708090a0b0c0d0e0f00000002000000000100000004000000000000009600000000000009c400",
    ),
]
NAMES = [type(record).__name__ for record, _ in GOLDEN]


def test_the_keys_follow_those_of_kip_405() -> None:
    assert sorted(RECORD_TYPES) == [4, 5, 6, 7]
    assert len(get_args(RemoteWalMetadataRecord)) == 4


@pytest.mark.parametrize(("record", "golden"), GOLDEN, ids=NAMES)
def test_the_golden_bytes(record: RemoteWalMetadataRecord, golden: str) -> None:
    assert encode(record).hex() == golden
    assert decode(bytes.fromhex(golden)) == record
    assert decode(memoryview(bytes.fromhex(golden))) == record


@pytest.mark.parametrize(("record", "golden"), GOLDEN, ids=NAMES)
def test_unknown_tags_are_skipped(record: RemoteWalMetadataRecord, golden: str) -> None:
    tagged = bytes.fromhex(golden)[:-1] + bytes.fromhex("01" + "05" + "02" + "abcd")
    assert decode(tagged) == record


@pytest.mark.parametrize("golden", [golden for _, golden in GOLDEN], ids=NAMES)
def test_bytes_that_follow_or_are_missing_are_refused(golden: str) -> None:
    data = bytes.fromhex(golden)
    with pytest.raises(MalformedRecordError):
        decode(data + b"\0")
    for size in range(3, len(data)):
        with pytest.raises(MalformedRecordError):
            decode(data[:size])


def test_records_of_other_topics_and_versions_are_unknown() -> None:
    with pytest.raises(UnknownRecordError):
        decode(bytes.fromhex("010000"))
    with pytest.raises(UnknownRecordError):
        decode(bytes.fromhex("010501"))


@pytest.mark.parametrize("custom", [None, b"", b"etag"])
def test_custom_metadata_may_be_null_empty_or_anything(custom: bytes | None) -> None:
    for record in (COMBINED, SLICE, UPDATE):
        changed = dataclasses.replace(record, custom_metadata=custom)
        decoded = decode(encode(changed))
        assert decoded == changed
        assert not isinstance(decoded, RemoteWalPartitionInvalidateRecord) and decoded.custom_metadata == custom


def test_the_slice_events_say_what_the_combined_event_says() -> None:
    assert slice_records(COMBINED) == (SLICE,)


def test_a_partition_survives_its_entry() -> None:
    assert TopicIdPartitionEntry.of(FOO_2).topic_id_partition == FOO_2
