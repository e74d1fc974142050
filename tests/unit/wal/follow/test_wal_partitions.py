from dataclasses import replace

import pytest

from broker.common.identifiers import TopicIdPartition
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.schemas.remote_wal_metadata import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentState,
    RemoteWalLogSegmentMetadataUpdateRecord,
    RemoteWalPartitionInvalidateRecord,
    TopicIdPartitionEntry,
)
from broker.wal.follow import wal_partitions
from broker.wal.follow.lineage import Lineage
from broker.wal.follow.wal_interval_map import WalIntervalMap
from broker.wal.follow.wal_partitions import Placement, WalPartitions
from broker.wal.objects.wal_entry import WalEntry
from tests.unit.wal.wal_world import BAR, BUCKET, FOO, entry

HOUR = 3_600_000


class World:
    def __init__(self) -> None:
        self.placement = Placement.UNKNOWN
        self.partitions = WalPartitions(
            lambda partition: WalIntervalMap(BUCKET, HOUR, lambda bucket: True), lambda partition: self.placement
        )

    def planned(self, partition: TopicIdPartition = FOO, leader_epoch: int = 0) -> list[int]:
        """Where the slices begin that would be fetched for an empty log."""
        known = self.partitions.map_of(partition)
        assert known is not None
        lineage = Lineage(leader_epoch)
        lineage.agree(0)
        return [each.entry.start_offset for each in known.plan(lineage, 0).slices]


def test_what_is_announced_goes_to_the_partition_that_is_here() -> None:
    world = World()
    assert world.partitions.host(FOO)
    assert world.partitions.add([entry(0, 9)]) == {FOO}
    assert world.planned() == [0]


def test_the_same_again_changes_nothing() -> None:
    world = World()
    world.partitions.host(FOO)
    same = entry(0, 9)
    world.partitions.add([same])
    assert world.partitions.add([same]) == set()


def test_a_partition_that_is_here_is_not_made_anew() -> None:
    world = World()
    world.partitions.host(FOO)
    known = world.partitions.map_of(FOO)
    assert not world.partitions.host(FOO)
    assert world.partitions.map_of(FOO) is known


def test_what_is_announced_before_the_metadata_tells_of_the_topic_is_kept() -> None:
    world = World()
    assert world.partitions.add([entry(0, 9)]) == set()
    world.partitions.host(FOO)
    assert world.planned() == [0]


def test_what_concerns_other_brokers_is_not_kept() -> None:
    world = World()
    world.placement = Placement.ELSEWHERE
    assert not world.partitions.is_wanted(FOO)
    world.partitions.add([entry(0, 9)])
    world.partitions.host(FOO)
    assert world.planned() == []
    assert world.partitions.is_wanted(FOO)


def test_so_much_is_kept_and_no_more() -> None:
    world = World()
    for offset in range(wal_partitions.EARLY_ENTRIES_MAX + 1):
        world.partitions.add([entry(offset, offset)])
    world.partitions.host(FOO)
    assert world.planned() == []  # the first is gone
    known = world.partitions.map_of(FOO)
    assert known is not None and len(known) == wal_partitions.EARLY_ENTRIES_MAX


def test_where_too_much_waits_the_partition_that_waits_longest_loses_its_oldest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wal_partitions, "EARLY_ENTRIES_MAX", 4)
    world = World()
    for start in range(0, 30, 10):
        world.partitions.add([entry(start, start + 9), replace(entry(start, start + 9), partition=BAR)])
    world.partitions.host(FOO)
    world.partitions.add([replace(entry(30, 39), partition=BAR)])
    world.partitions.host(BAR)
    assert (world.planned(FOO), len(dict(world.partitions)[FOO])) == ([], 1)
    assert world.planned(BAR) == [0, 10, 20, 30]


def test_a_partition_that_comes_does_not_search_what_waits_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    for start in range(0, 30, 10):
        world.partitions.add([replace(entry(start, start + 9), partition=BAR), entry(start, start + 9)])
    compared: list[object] = []

    def count(one: object, other: object) -> bool:
        compared.append(one)
        return one is other

    with monkeypatch.context() as patch:
        patch.setattr(WalEntry, "__eq__", count)
        world.partitions.host(FOO)
    assert compared == []
    world.partitions.host(BAR)
    assert world.planned(FOO) == world.planned(BAR) == [0, 10, 20]


def test_all_maps_together_are_bounded_and_the_largest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal_partitions, "ENTRIES_MAX", 20)
    world = World()
    world.partitions.host(FOO)
    world.partitions.host(BAR)
    world.partitions.add([entry(start, start) for start in range(20)])
    for start in range(30):
        world.partitions.add([replace(entry(start, start), partition=BAR)])
        assert sum(len(known) for _, known in world.partitions) <= 20
        known = world.partitions.map_of(BAR)
        assert known is not None
        known.log_moved(start + 1, start + 1)
    assert world.planned(FOO) == list(range(10))
    assert [run[:2] for run in known.coverage.runs] == [(0, 30)]


def test_a_partition_that_has_left_is_forgotten() -> None:
    world = World()
    world.partitions.host(FOO)
    world.partitions.add([entry(0, 9)])
    world.partitions.drop(FOO)
    assert world.partitions.map_of(FOO) is None
    assert len(world.partitions) == 0
    world.partitions.drop(FOO)


def test_a_leader_voids_what_older_ones_announced() -> None:
    world = World()
    world.partitions.host(FOO)
    world.partitions.add([entry(0, 9, leader_epoch=1, epochs=[(1, 0)])])
    known = world.partitions.map_of(FOO)
    assert known is not None
    lineage = Lineage.of_own_log(2, [EpochEntry(1, 0)], 0, 10)
    assert [each.valid_until for each in known.plan(lineage, 0).slices] == [10]
    world.partitions.invalidate(
        RemoteWalPartitionInvalidateRecord(
            topic_id_partition=TopicIdPartitionEntry.of(FOO),
            broker_id=2,
            leader_epoch=2,
            from_offset=5,
            event_timestamp_ms=0,
        )
    )
    assert [each.valid_until for each in known.plan(lineage, 0).slices] == [5]


def test_a_slice_is_voided() -> None:
    world = World()
    world.partitions.host(FOO)
    voided = entry(0, 9)
    world.partitions.add([voided])
    world.partitions.update(
        RemoteWalLogSegmentMetadataUpdateRecord(
            remote_log_segment_id=RemoteLogSegmentIdEntry(
                topic_id_partition=TopicIdPartitionEntry.of(FOO), id=voided.slice_id
            ),
            broker_id=voided.broker_id,
            leader_epoch=0,
            event_timestamp_ms=0,
            remote_log_segment_state=RemoteLogSegmentState.DELETE_SEGMENT_FINISHED,
        )
    )
    assert world.planned() == []
