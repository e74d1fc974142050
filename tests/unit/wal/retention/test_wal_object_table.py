"""What a broker knows of its objects, and how much of it."""

import dataclasses
from collections.abc import Mapping
from uuid import UUID

import pytest

from broker.common.identifiers import TopicIdPartition
from broker.schemas.remote_wal_metadata import RemoteWalCombinedLogSegmentMetadataRecord
from broker.wal.objects.combined_segment import ObjectIdentity, build_combined_segment
from broker.wal.objects.object_key import WalObjectKey
from broker.wal.retention.wal_object_table import WalObjectTable
from tests.unit.wal.wal_world import BAR, FOO, log_bytes, make_slice

CLUSTER = "5L6g3nShT-eMCtK--X86sw"
START_MS = 1_700_000_040_000  # the beginning of a minute


def announced(
    number: int,
    ends: Mapping[TopicIdPartition, int] | None = None,
    *,
    at_ms: int = 0,
    broker_id: int = 1,
    cluster_id: str = CLUSTER,
    bucket: str = "file:///zone-a",
) -> RemoteWalCombinedLogSegmentMetadataRecord:
    combined_id = UUID(int=number)
    key = WalObjectKey.at(
        START_MS + at_ms,
        cluster_id=cluster_id,
        broker_id=broker_id,
        broker_epoch=7,
        sequence=number,
        combined_id=combined_id,
    )
    slices = [
        make_slice(log_bytes((0, 1), start=end), start=end, partition=partition)
        for partition, end in (ends or {FOO: number}).items()
    ]
    identity = ObjectIdentity(combined_id, broker_id, 7, START_MS + at_ms, bucket, str(key))
    return build_combined_segment(identity, slices, lambda partition: ()).metadata


def kept(table: WalObjectTable) -> list[tuple[dict[TopicIdPartition, int], int]]:
    """(end offsets, number of objects) of each group."""
    return [(group.end_offsets, len(group.keys)) for group in table.groups()]


def test_an_object_is_kept_with_the_highest_offset_of_each_partition() -> None:
    table = WalObjectTable(CLUSTER, 1)
    record = announced(1, {FOO: 9, BAR: 4})
    again = dataclasses.replace(record.slices[0], end_offset=12)
    assert table.add(dataclasses.replace(record, slices=(*record.slices, again)))
    (group,) = table.groups()
    partition = again.remote_log_segment_id.topic_id_partition.topic_id_partition
    assert group.end_offsets == {FOO: 9, BAR: 4} | {partition: 12}
    assert group.bucket == "file:///zone-a" and group.uploaded_ms == START_MS
    assert [table.object_key(packed) for packed in group.keys] == [record.object_key]
    assert table.holds(record.object_key) and len(table) == 1 and table.slice_count == 2


def test_the_same_event_again_changes_nothing() -> None:
    table = WalObjectTable(CLUSTER, 1)
    assert table.add(announced(1)) and not table.add(announced(1))
    assert len(table) == 1 and table.slice_count == 1


@pytest.mark.parametrize("other", [{"broker_id": 2}, {"broker_id": 11}, {"cluster_id": "another"}])
def test_others_objects_are_not_ours(other: dict[str, object]) -> None:
    table = WalObjectTable(CLUSTER, 1)
    record = announced(1, **other)  # type: ignore[arg-type]
    assert not table.add(record) and not table.holds(record.object_key)
    assert len(table) == 0


def test_a_key_that_is_none_is_not_ours() -> None:
    table = WalObjectTable(CLUSTER, 1)
    assert not table.add(dataclasses.replace(announced(1), object_key="wal/k"))
    assert not table.holds("wal/k")


def test_what_is_deleted_is_gone() -> None:
    table = WalObjectTable(CLUSTER, 1)
    first, second = announced(1), announced(2)
    table.add(first)
    table.add(second)
    (group, _) = table.groups()
    table.remove(group.keys)
    assert not table.holds(first.object_key) and table.holds(second.object_key)
    assert len(table) == 1 and table.slice_count == 1
    assert kept(table) == [({FOO: 2}, 1)]


def test_what_is_old_is_kept_by_the_minute_when_there_is_too_much() -> None:
    table = WalObjectTable(CLUSTER, 1, slices_max=3)
    for number in range(1, 7):
        table.add(announced(number, {FOO: number, BAR: 100 - number}, at_ms=number))
    assert kept(table) == [({FOO: 6, BAR: 99}, 6)]
    assert len(table) == 6 and table.slice_count == 2
    assert table.holds(announced(3, at_ms=3).object_key)
    table.add(announced(7, {FOO: 7}, at_ms=70_000))
    assert kept(table) == [({FOO: 6, BAR: 99}, 6), ({FOO: 7}, 1)]
    assert [group.uploaded_ms for group in table.groups()] == [START_MS + 6, START_MS + 70_000]
    assert table.forgotten_until_ms == -1


def test_objects_of_one_minute_in_two_buckets_stay_apart() -> None:
    table = WalObjectTable(CLUSTER, 1, slices_max=2)
    for number in range(1, 5):
        table.add(announced(number, bucket=f"file:///zone-{number % 2}"))
    assert kept(table) == [({FOO: 3}, 2), ({FOO: 4}, 2)]
    assert [group.bucket for group in table.groups()] == ["file:///zone-1", "file:///zone-0"]


def test_a_group_can_be_deleted_in_parts_and_take_more_meanwhile() -> None:
    table = WalObjectTable(CLUSTER, 1, slices_max=1)
    for number in range(1, 4):
        table.add(announced(number))
    (group,) = table.groups()
    table.remove(group.keys[:2])
    table.add(announced(4))
    assert kept(table) == [({FOO: 4}, 2)] and table.slice_count == 1
    table.remove(list(group.keys))
    assert kept(table) == [] and table.slice_count == 0 and len(table) == 0


def test_deleting_a_lone_object_leaves_the_rest_of_its_minute() -> None:
    table = WalObjectTable(CLUSTER, 1, slices_max=2)
    for number in range(1, 4):
        table.add(announced(number))
    folded, lone = table.groups()
    table.remove(lone.keys)
    assert list(table.groups()) == [folded] and table.slice_count == 1


def test_what_does_not_fit_at_all_is_forgotten_oldest_first() -> None:
    table = WalObjectTable(CLUSTER, 1, objects_max=2)
    for number in range(1, 4):
        table.add(announced(number, at_ms=number))
    assert len(table) == 2 and not table.holds(announced(1, at_ms=1).object_key)
    assert table.forgotten_until_ms == START_MS + 1


def test_too_many_partitions_a_minute_are_forgotten_too() -> None:
    table = WalObjectTable(CLUSTER, 1, slices_max=2)
    for number in range(3):
        table.add(announced(number, {FOO._replace(partition=number): 1}, at_ms=60_000 * number))
    assert table.slice_count == 2 and len(table) == 2
    assert table.forgotten_until_ms == START_MS
    table.add(announced(9, {FOO._replace(partition=each): 1 for each in range(3)}, at_ms=300_000))
    assert len(table) == 0 and table.slice_count == 0


def test_the_size_of_what_is_live_is_known() -> None:
    table = WalObjectTable(CLUSTER, 1, slices_max=2)
    records = [dataclasses.replace(announced(number), object_size_in_bytes=100 * number) for number in (1, 2, 3)]
    for record in records:
        table.add(record)
    assert not table.add(records[0])
    assert table.live_bytes == 600
    first, *others = [packed for group in table.groups() for packed in group.keys]
    table.remove([first])  # one of two that are kept together: half of their 300 bytes
    assert table.live_bytes == 450
    table.remove(others)
    assert (table.live_bytes, len(table)) == (0, 0)


def test_what_is_forgotten_is_not_counted_any_more() -> None:
    table = WalObjectTable(CLUSTER, 1, objects_max=1)
    for number in (1, 2):
        table.add(dataclasses.replace(announced(number), object_size_in_bytes=100 * number))
    assert table.live_bytes == 200
