import dataclasses
import struct

import pytest
from crc32c import crc32c

from broker.schemas.remote_wal_metadata import decode, encode, slice_records
from broker.wal.objects.combined_segment import (
    FOOTER_SIZE,
    TABLE_SIZE_MAX,
    CorruptObjectError,
    ObjectIdentity,
    append_time_of,
    build_combined_segment,
    read_object,
    read_table,
    table_range,
    table_row_size_max,
    with_slices,
)
from broker.wal.objects.slice_verifier import verify_slice
from broker.wal.objects.wal_entry import entries_of
from tests.unit.wal.wal_world import BAR, BUCKET, FOO, batch, bytes_of, log_bytes, make_object, make_slice, new_id

BAZ = FOO._replace(topic="baz", partition=0)
FOO_SLICE = make_slice(log_bytes((0, 2), (0, 3), start=5), start=5)
FOO_NEXT = make_slice(batch(10, 2), start=10)
BAR_SLICE = make_slice(batch(0, 4), partition=BAR)
BAZ_SLICE = make_slice(batch(7, timestamp=5000), start=7, partition=BAZ)


def test_13_slices_of_many_partitions_back_to_back() -> None:
    combined = make_object([FOO_NEXT, BAZ_SLICE, FOO_SLICE, BAR_SLICE])
    data = bytes_of(combined)
    ordered = [BAZ_SLICE, FOO_SLICE, FOO_NEXT, BAR_SLICE]  # by topic id, partition, offset
    assert data.startswith(b"".join(bytes(each.records) for each in ordered))
    assert [row.remote_log_segment_id.id for row in combined.metadata.slices] == [each.slice_id for each in ordered]
    for found, each in zip(entries_of(combined.metadata), ordered, strict=True):
        assert found.is_plausible()
        batches = verify_slice(found, data[found.position : found.object_end])
        assert (batches[0].base_offset, batches[-1].last_offset) == (each.start_offset, each.end_offset)
    assert combined.size == len(data) == combined.metadata.object_size_in_bytes
    assert combined.metadata.max_timestamp_ms == 5000
    assert (combined.metadata.bucket, combined.metadata.broker_epoch) == (BUCKET, 7)


def test_partitions_with_the_same_followers_are_neighbours() -> None:
    followers = {FOO: (3, 2), BAR: (1, 4), BAZ: (2, 3)}
    combined = make_object([FOO_SLICE, BAR_SLICE, BAZ_SLICE], followers)
    order = [row.remote_log_segment_id.topic_id_partition.name for row in combined.metadata.slices]
    assert order == ["bar", "baz", "foo"]


def test_the_trailer_is_the_combined_event_and_a_footer() -> None:
    combined = make_object([BAR_SLICE])
    data = bytes_of(combined)
    size, checksum, magic, version = struct.unpack(">iI4sb", data[-13:])
    table = data[-13 - size : -13]
    assert (table, checksum) == (encode(combined.metadata), crc32c(table))
    assert table == combined.event
    assert (magic, version) == (b"KWAL", 1)
    assert decode(table) == combined.metadata == read_object(data)
    assert len(data) == BAR_SLICE.size + size + FOOTER_SIZE


def test_a_table_can_be_read_in_two_ranged_gets() -> None:
    combined = make_object([FOO_SLICE, BAR_SLICE])
    data = bytes_of(combined)
    position, size = table_range(data[-FOOTER_SIZE:], len(data))
    assert position == FOO_SLICE.size + BAR_SLICE.size
    assert read_table(data[position : position + size], data[-FOOTER_SIZE:], len(data)) == combined.metadata


def test_damage_is_noticed() -> None:
    data = bytes_of(make_object([FOO_SLICE, BAR_SLICE]))
    table_at, _ = table_range(data[-FOOTER_SIZE:], len(data))
    for position in range(table_at, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x41
        with pytest.raises(CorruptObjectError):
            read_object(damaged)
    for size in (0, 5, FOOTER_SIZE, table_at, len(data) - 1):
        with pytest.raises(CorruptObjectError):
            read_object(data[:size])
    with pytest.raises(CorruptObjectError, match="Slices end at"):
        read_object(b"\0" + data)


def test_a_table_of_something_else_is_refused() -> None:
    other = bytes.fromhex(
        "01070004666f6f000102030405060708090a0b0c0d0e0f00000002000000000100000004000000000000009600000000000009c400"
    )
    for table, reason in ((other, "RemoteWalPartitionInvalidateRecord"), (b"\1\x63\0", "cannot be read")):
        data = b"slices" + table + struct.pack(">iI4sb", len(table), crc32c(table), b"KWAL", 1)
        with pytest.raises(CorruptObjectError, match=reason):
            read_object(data)


def test_slices_that_are_not_back_to_back_are_refused() -> None:
    metadata = make_object([FOO_SLICE, BAR_SLICE]).metadata
    moved = tuple(dataclasses.replace(row, position_in_object=row.position_in_object + 1) for row in metadata.slices)
    table = encode(dataclasses.replace(metadata, slices=moved))
    data = bytes(500) + table + struct.pack(">iI4sb", len(table), crc32c(table), b"KWAL", 1)
    with pytest.raises(CorruptObjectError, match="begins at 1"):
        read_object(data)


def test_slices_that_lost_their_ground_are_not_announced() -> None:
    metadata = make_object([FOO_SLICE, BAR_SLICE]).metadata
    kept = with_slices(metadata, {BAR_SLICE.slice_id})
    assert [row.remote_log_segment_id.id for row in kept.slices] == [BAR_SLICE.slice_id]
    assert kept.object_key == metadata.object_key
    assert with_slices(metadata, {FOO_SLICE.slice_id, BAR_SLICE.slice_id}) is metadata


def test_the_bound_of_a_table_holds() -> None:
    """Whoever fills an object to its limit counts with the bound, before there is a table."""
    topic = FOO._replace(topic="t" * 249)
    slices = [
        make_slice(log_bytes((0, 1), (1, 1), (2, 1), start=3 * index), start=3 * index, partition=topic, leader_epoch=2)
        for index in range(200)
    ]
    combined = make_object(slices, key="k" * 1024)
    bound = TABLE_SIZE_MAX + 200 * table_row_size_max(topic.topic, 3)
    taken = combined.size - sum(each.size for each in slices)
    assert bound * 0.95 < taken <= bound


def test_the_event_and_the_table_tell_when_the_oldest_record_was_appended() -> None:
    identity = ObjectIdentity(new_id(), 1, 7, 2000, BUCKET, "wal/k", oldest_append_ms=1_764_000_000_123)
    combined = build_combined_segment(identity, [FOO_SLICE], lambda partition: ())
    assert combined.metadata.custom_metadata == bytes.fromhex("0000019ab697e87b")
    assert read_object(bytes_of(combined)) == combined.metadata
    assert append_time_of(combined.metadata.custom_metadata) == 1_764_000_000_123
    (event,) = slice_records(combined.metadata)
    assert append_time_of(event.custom_metadata) == 1_764_000_000_123
    assert make_object([FOO_SLICE]).metadata.custom_metadata is None
    assert (append_time_of(None), append_time_of(b"other")) == (None, None)
