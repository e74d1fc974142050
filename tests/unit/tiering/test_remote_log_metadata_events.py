import dataclasses
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.common.identifiers import TopicIdPartition
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.schemas.framing import UnknownRecordError
from broker.schemas.message_codec import MalformedRecordError
from broker.schemas.remote_log_metadata import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadataRecord,
    RemotePartitionDeleteState,
    SegmentLeaderEpochEntry,
    decode,
    encode,
)
from broker.tiering.remote_log_metadata_events import RemoteLogMetadataEvent, decode_event, encode_event
from broker.tiering.remote_log_segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)

FOO_2 = TopicIdPartition(UUID(bytes=bytes(range(16))), "foo", 2)
SEGMENT_ID = UUID(bytes=bytes(range(0x10, 0x20)))
SEGMENT = RemoteLogSegmentMetadata(
    partition=FOO_2,
    segment_id=SEGMENT_ID,
    start_offset=0,
    end_offset=99,
    broker_id=1,
    max_timestamp_ms=1000,
    event_timestamp_ms=2000,
    segment_leader_epochs=(EpochEntry(0, 0), EpochEntry(1, 50)),
    segment_size_in_bytes=1234,
)
UPDATE = RemoteLogSegmentMetadataUpdate(
    FOO_2, SEGMENT_ID, 1, 3000, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, custom_metadata=b"\1\2"
)
DELETION = RemotePartitionDeleteMetadata(FOO_2, 1, 4000, RemotePartitionDeleteState.DELETE_PARTITION_MARKED)
GOLDEN: list[tuple[RemoteLogMetadataEvent, str]] = [
    (
        SEGMENT,
        "01000004666f6f000102030405060708090a0b0c0d0e0f0000000200101112131415161718191a1b1c1d1e1f0000000000000000"
        "0000000000000000630000000100000000000003e800000000000007d00300000000000000000000000000000000010000000000"
        "00003200000004d2000000",
    ),
    (
        UPDATE,
        "01010004666f6f000102030405060708090a0b0c0d0e0f0000000200101112131415161718191a1b1c1d1e1f00000000010000000000"
        "000bb80301020100",
    ),
    (DELETION, "01020004666f6f000102030405060708090a0b0c0d0e0f0000000200000000010000000000000fa00000"),
]


def record_of(event: RemoteLogMetadataEvent) -> object:
    return decode(encode_event(event))


@pytest.mark.parametrize(("event", "golden"), GOLDEN, ids=["segment", "update", "deletion"])
def test_1_events_are_kafkas_records(event: RemoteLogMetadataEvent, golden: str) -> None:
    assert encode_event(event).hex() == golden
    assert decode_event(bytes.fromhex(golden)) == event


def test_1_every_field_of_a_segment_has_its_place() -> None:
    event = dataclasses.replace(
        SEGMENT, custom_metadata=b"etag", is_txn_index_empty=True, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    )
    record = record_of(event)
    assert isinstance(record, RemoteLogSegmentMetadataRecord)
    assert record.remote_log_segment_id.topic_id_partition.topic_id_partition == FOO_2
    assert record.remote_log_segment_id.id == SEGMENT_ID
    assert (record.start_offset, record.end_offset, record.broker_id) == (0, 99, 1)
    assert (record.max_timestamp_ms, record.event_timestamp_ms, record.segment_size_in_bytes) == (1000, 2000, 1234)
    assert [(each.leader_epoch, each.offset) for each in record.segment_leader_epochs] == [(0, 0), (1, 50)]
    assert (record.custom_metadata, record.remote_log_segment_state, record.txn_index_empty) == (b"etag", 1, True)
    assert decode_event(encode(record)) == event


def test_leader_epochs_may_come_in_any_order() -> None:
    record = record_of(SEGMENT)
    assert isinstance(record, RemoteLogSegmentMetadataRecord)
    turned = dataclasses.replace(record, segment_leader_epochs=record.segment_leader_epochs[::-1])
    assert decode_event(encode(turned)) == SEGMENT


@pytest.mark.parametrize(
    "change",
    [
        {"start_offset": -1},
        {"end_offset": -1},
        {"segment_leader_epochs": ()},
        {"segment_leader_epochs": (SegmentLeaderEpochEntry(leader_epoch=0, offset=1000),)},
        {"remote_log_segment_state": 4},
        {"remote_log_segment_state": -1},
    ],
    ids=str,
)
def test_segments_that_cannot_be_are_malformed(change: dict[str, object]) -> None:
    record = record_of(SEGMENT)
    assert isinstance(record, RemoteLogSegmentMetadataRecord)
    with pytest.raises(MalformedRecordError, match="cannot be"):
        decode_event(encode(dataclasses.replace(record, **change)))  # type: ignore[arg-type]


def test_states_that_cannot_be_are_malformed() -> None:
    update, deletion = record_of(UPDATE), record_of(DELETION)
    assert isinstance(update, RemoteLogSegmentMetadataUpdateRecord)
    assert isinstance(deletion, RemotePartitionDeleteMetadataRecord)
    with pytest.raises(MalformedRecordError, match="cannot be"):
        decode_event(encode(dataclasses.replace(update, remote_log_segment_state=4)))
    with pytest.raises(MalformedRecordError, match="cannot be"):
        decode_event(encode(dataclasses.replace(deletion, remote_partition_delete_state=3)))


def test_snapshots_have_no_place_in_the_topic() -> None:
    snapshot = RemoteLogSegmentMetadataSnapshotRecord(
        segment_id=SEGMENT_ID,
        start_offset=0,
        end_offset=9,
        broker_id=1,
        max_timestamp_ms=1,
        event_timestamp_ms=1,
        segment_leader_epochs=(SegmentLeaderEpochEntry(leader_epoch=0, offset=0),),
        segment_size_in_bytes=1,
        remote_log_segment_state=1,
    )
    with pytest.raises(MalformedRecordError, match="RemoteLogSegmentMetadataSnapshotRecord has no place"):
        decode_event(encode(snapshot))


def test_1_bytes_that_are_no_event() -> None:
    data = encode_event(SEGMENT)
    with pytest.raises(MalformedRecordError):
        decode_event(data + b"\0")
    with pytest.raises(MalformedRecordError):
        decode_event(b"\0" + data[1:])
    with pytest.raises(UnknownRecordError):
        decode_event(bytes.fromhex("010400"))


@given(
    st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**40), min_size=1, max_size=5),
    st.integers(0, 2**62),
    st.integers(0, 2**40),
    st.none() | st.binary(max_size=128),
    st.sampled_from(RemoteLogSegmentState),
    st.booleans(),
)
@settings(max_examples=80)
def test_any_segment_survives(
    epochs: dict[int, int], start: int, length: int, custom: bytes | None, state: RemoteLogSegmentState, empty: bool
) -> None:
    event = dataclasses.replace(
        SEGMENT,
        start_offset=start,
        end_offset=max(start, *epochs.values()) + length,
        segment_leader_epochs=tuple(EpochEntry(*entry) for entry in sorted(epochs.items())),
        custom_metadata=custom,
        state=state,
        is_txn_index_empty=empty,
    )
    assert decode_event(encode_event(event)) == event
