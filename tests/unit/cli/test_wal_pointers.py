import dataclasses

from broker.cli.wal_pointers import WalPointers, slice_digest
from broker.common.metadata_topic import MetadataRecord
from broker.schemas.remote_wal_metadata import (
    RemoteLogSegmentState,
    RemoteWalPartitionInvalidateRecord,
    TopicIdPartitionEntry,
    encode,
    slice_records,
)
from broker.wal.objects.wal_entry import entries_of

from .wal_look_world import BAR, FOO, NOW_MS, URL, LookWorld


def read(*values: bytes) -> WalPointers:
    pointers = WalPointers()
    pointers.add(4, [MetadataRecord(offset, NOW_MS, value) for offset, value in enumerate(values)])
    return pointers


def test_combined_and_slice_events_tell_the_same() -> None:
    combined = LookWorld().first
    key, table = combined.metadata.object_key, {slice_digest(entry) for entry in entries_of(combined.metadata)}
    assert len(table) == 2
    slices = [encode(record) for record in slice_records(combined.metadata)]
    for values in ([combined.event], slices, [combined.event, *slices, combined.event]):
        pointers = read(*values)
        pointer = pointers.by_key[key]
        assert (pointer.bucket, pointer.event_timestamp_ms) == (URL, NOW_MS - 5000)
        assert pointer.slices == table
        assert pointer.topic_ids == {FOO.topic_id, BAR.topic_id}
        assert pointers.record_count == len(values)


def test_any_other_fact_is_another_digest() -> None:
    (entry,) = entries_of(LookWorld().second.metadata)
    others = [
        dataclasses.replace(entry, position=1),
        dataclasses.replace(entry, crc32c=entry.crc32c ^ 1),
        dataclasses.replace(entry, end_offset=entry.end_offset + 1),
        dataclasses.replace(entry, partition=BAR),
    ]
    assert len({slice_digest(each) for each in [entry, *others]}) == 5


def test_void_slices_and_other_events_point_to_nothing() -> None:
    combined = LookWorld().first.metadata
    void = dataclasses.replace(combined, state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
    invalidate = RemoteWalPartitionInvalidateRecord(
        topic_id_partition=TopicIdPartitionEntry.of(FOO),
        broker_id=1,
        leader_epoch=2,
        from_offset=3,
        event_timestamp_ms=4,
    )
    pointers = read(encode(void), encode(invalidate))
    assert (pointers.by_key, pointers.record_count) == ({}, 2)


def test_what_cannot_be_read_is_told_and_what_is_newer_is_counted() -> None:
    combined = LookWorld().first
    pointers = read(b"\x01\x04\x00", b"", combined.event[:50], b"\x01\x63\x00", b"\x01\x04\x07" + combined.event[3:])
    assert [sentence.partition(":")[0] for sentence in pointers.unreadable] == [
        f"record {offset} of partition 4 cannot be read" for offset in (0, 1, 2)
    ]
    assert pointers.unknown_count == 2
