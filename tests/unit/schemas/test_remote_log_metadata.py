"""The golden bytes are those of Apache Kafka 4.4's RemoteLogMetadataSerde."""

import dataclasses
from typing import get_args
from uuid import UUID

import pytest

from broker.common.identifiers import TopicIdPartition
from broker.schemas.framing import UnknownRecordError
from broker.schemas.message_codec import MalformedRecordError
from broker.schemas.remote_log_metadata import (
    RECORD_TYPES,
    RemoteLogMetadataRecord,
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
    decode,
    encode,
)


def uuid_from(first: int) -> UUID:
    return UUID(bytes=bytes(range(first, first + 16)))


FOO_2 = TopicIdPartition(uuid_from(0), "foo", 2)
SEGMENT_ID = RemoteLogSegmentIdEntry(topic_id_partition=TopicIdPartitionEntry.of(FOO_2), id=uuid_from(0x10))
EPOCHS = (SegmentLeaderEpochEntry(leader_epoch=0, offset=0), SegmentLeaderEpochEntry(leader_epoch=1, offset=50))
SEGMENT = RemoteLogSegmentMetadataRecord(
    remote_log_segment_id=SEGMENT_ID,
    start_offset=0,
    end_offset=99,
    broker_id=1,
    max_timestamp_ms=1000,
    event_timestamp_ms=2000,
    segment_leader_epochs=EPOCHS,
    segment_size_in_bytes=1234,
    remote_log_segment_state=0,
)
UPDATE = RemoteLogSegmentMetadataUpdateRecord(
    remote_log_segment_id=SEGMENT_ID,
    broker_id=1,
    event_timestamp_ms=3000,
    custom_metadata=b"\1\2",
    remote_log_segment_state=1,
)
DELETION = RemotePartitionDeleteMetadataRecord(
    topic_id_partition=TopicIdPartitionEntry.of(FOO_2),
    broker_id=1,
    event_timestamp_ms=4000,
    remote_partition_delete_state=0,
)
SNAPSHOT = RemoteLogSegmentMetadataSnapshotRecord(
    segment_id=uuid_from(0x10),
    start_offset=0,
    end_offset=99,
    broker_id=1,
    max_timestamp_ms=1000,
    event_timestamp_ms=2000,
    segment_leader_epochs=EPOCHS,
    segment_size_in_bytes=1234,
    remote_log_segment_state=1,
)
SEGMENT_BYTES = (
    "01000004666f6f000102030405060708090a0b0c0d0e0f0000000200101112131415161718191a1b1c1d1e1f0000000000000000"
    "0000000000000000630000000100000000000003e800000000000007d00300000000000000000000000000000000010000000000"
    "00003200000004d2000000"
)
GOLDEN: list[tuple[RemoteLogMetadataRecord, str]] = [
    (SEGMENT, SEGMENT_BYTES),
    (
        UPDATE,
        "01010004666f6f000102030405060708090a0b0c0d0e0f0000000200101112131415161718191a1b1c1d1e1f00000000010000000000"
        "000bb80301020100",
    ),
    (DELETION, "01020004666f6f000102030405060708090a0b0c0d0e0f0000000200000000010000000000000fa00000"),
    (
        SNAPSHOT,
        "010300101112131415161718191a1b1c1d1e1f000000000000000000000000000000630000000100000000000003e800000000000007d0"
        "030000000000000000000000000000000001000000000000003200000004d2000100",
    ),
]
NAMES = [type(record).__name__ for record, _ in GOLDEN]


def test_the_keys_are_kafkas() -> None:
    assert {key: kind.__name__ for key, kind in RECORD_TYPES.items()} == {
        0: "RemoteLogSegmentMetadataRecord",
        1: "RemoteLogSegmentMetadataUpdateRecord",
        2: "RemotePartitionDeleteMetadataRecord",
        3: "RemoteLogSegmentMetadataSnapshotRecord",
    }
    assert len(get_args(RemoteLogMetadataRecord)) == 4


@pytest.mark.parametrize(("record", "golden"), GOLDEN, ids=NAMES)
def test_1_the_golden_bytes(record: RemoteLogMetadataRecord, golden: str) -> None:
    assert encode(record).hex() == golden
    assert decode(bytes.fromhex(golden)) == record
    assert decode(memoryview(bytes.fromhex(golden))) == record


def test_1_an_empty_transaction_index_is_a_tagged_field() -> None:
    record = dataclasses.replace(SEGMENT, txn_index_empty=True)
    assert encode(record).hex() == SEGMENT_BYTES[:-2] + "01000101"
    assert decode(encode(record)) == record
    snapshot = dataclasses.replace(SNAPSHOT, txn_index_empty=True)
    assert decode(encode(snapshot)) == snapshot


@pytest.mark.parametrize(("record", "golden"), GOLDEN, ids=NAMES)
def test_1_unknown_tags_are_skipped(record: RemoteLogMetadataRecord, golden: str) -> None:
    tagged = bytes.fromhex(golden)[:-1] + bytes.fromhex("01" + "05" + "02" + "abcd")
    assert decode(tagged) == record


def test_1_unknown_tags_within_the_segment_id_are_skipped() -> None:
    partition_end = bytes.fromhex("00000002" + "00" + "1011")
    data = bytes.fromhex(SEGMENT_BYTES)
    assert data.count(partition_end) == 1
    assert decode(data.replace(partition_end, bytes.fromhex("00000002" + "01" + "0700" + "1011"))) == SEGMENT


@pytest.mark.parametrize("golden", [golden for _, golden in GOLDEN], ids=NAMES)
def test_1_bytes_that_follow_or_are_missing_are_refused(golden: str) -> None:
    data = bytes.fromhex(golden)
    with pytest.raises(MalformedRecordError):
        decode(data + b"\0")
    for size in range(len(data)):
        with pytest.raises(MalformedRecordError):
            decode(data[:size])


@pytest.mark.parametrize("frame_version", [0, 2])
def test_1_other_frame_versions_are_refused(frame_version: int) -> None:
    with pytest.raises(MalformedRecordError, match=f"frame version {frame_version}"):
        decode(bytes([frame_version]) + bytes.fromhex(SEGMENT_BYTES)[1:])


@pytest.mark.parametrize("frame", ["010400", "010001"])
def test_1_other_keys_and_versions_are_unknown(frame: str) -> None:
    with pytest.raises(UnknownRecordError):
        decode(bytes.fromhex(frame))


@pytest.mark.parametrize("custom", [None, b"", b"etag"])
def test_custom_metadata_may_be_null_empty_or_anything(custom: bytes | None) -> None:
    for record in (SEGMENT, UPDATE, SNAPSHOT):
        changed = dataclasses.replace(record, custom_metadata=custom)
        decoded = decode(encode(changed))
        assert decoded == changed
        assert not isinstance(decoded, RemotePartitionDeleteMetadataRecord) and decoded.custom_metadata == custom


def test_a_partition_survives_its_entry() -> None:
    assert TopicIdPartitionEntry.of(FOO_2).topic_id_partition == FOO_2
