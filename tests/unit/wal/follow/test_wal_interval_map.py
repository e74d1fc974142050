import itertools
from collections.abc import Callable
from uuid import UUID

import pytest

from broker.log.leader_epoch_file_cache import EpochEndOffset, EpochEntry
from broker.schemas.remote_wal_metadata import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentState,
    RemoteWalLogSegmentMetadataUpdateRecord,
    RemoteWalPartitionInvalidateRecord,
    TopicIdPartitionEntry,
)
from broker.wal.follow import wal_interval_map
from broker.wal.follow.lineage import Lineage
from broker.wal.follow.wal_interval_map import OBJECTS_AHEAD_MAX, WalFetchPlan, WalIntervalMap
from broker.wal.objects.wal_entry import WalEntry
from tests.unit.wal.wal_world import BUCKET, FOO, OTHER_BUCKET, entry

HOUR = 3_600_000


class World:
    """A map, the lineage of its leader, and a log end."""

    def __init__(self, leader_epoch: int = 1, own_bucket: str = BUCKET) -> None:
        self.closed: set[str] = set()  # buckets that may not be asked
        self.map = WalIntervalMap(own_bucket, HOUR, lambda bucket: bucket not in self.closed)
        self.now_ms = 0
        self.lead(leader_epoch)

    def lead(self, leader_epoch: int, log_start: int = 0, **answers: tuple[int, int]) -> None:
        self.lineage = Lineage(leader_epoch)
        self.lineage.agree(log_start)
        self.map.begin_epoch(leader_epoch)
        for name, answer in answers.items():
            self.lineage.answered(int(name[1:]), EpochEndOffset(*answer), leader_epoch)

    def add(self, *entries: WalEntry) -> None:
        for each in entries:
            assert self.map.add(each)

    def plan(self) -> list[tuple[WalEntry, int]]:
        """The slices to fetch, and how far they are valid."""
        return [(each.entry, each.valid_until) for each in self.map.plan(self.lineage, self.now_ms).slices]

    def asked(self) -> set[int]:
        return set(self.map.plan(self.lineage, self.now_ms).epochs_to_ask)

    def uncovered(self, start: int, end: int) -> list[tuple[int, int]]:
        return [tuple(each) for each in self.map.uncovered(self.lineage, start, end, self.now_ms)]  # type: ignore[misc]


def deletion(
    slice_id: UUID, broker_id: int, leader_epoch: int, state: int = 3
) -> RemoteWalLogSegmentMetadataUpdateRecord:
    return RemoteWalLogSegmentMetadataUpdateRecord(
        remote_log_segment_id=RemoteLogSegmentIdEntry(topic_id_partition=TopicIdPartitionEntry.of(FOO), id=slice_id),
        broker_id=broker_id,
        leader_epoch=leader_epoch,
        event_timestamp_ms=0,
        remote_log_segment_state=state,
    )


def invalidation(leader_epoch: int, from_offset: int) -> RemoteWalPartitionInvalidateRecord:
    return RemoteWalPartitionInvalidateRecord(
        topic_id_partition=TopicIdPartitionEntry.of(FOO),
        broker_id=1,
        leader_epoch=leader_epoch,
        from_offset=from_offset,
        event_timestamp_ms=0,
    )


def test_23_slices_in_any_order_are_planned_in_order() -> None:
    world = World()
    first, second, third = (entry(start, start + 9, leader_epoch=1) for start in (0, 10, 20))
    world.add(third, first, second)
    assert world.plan() == [(first, 10), (second, 20), (third, 30)]


def test_56_slices_are_planned_ahead_by_objects() -> None:
    """What is in an object that is got anyway is taken from it at once."""
    world = World()
    world.add(*(entry(start, start, leader_epoch=1, key=f"wal/{start // 3}") for start in range(12)))
    plan = world.map.plan(world.lineage, 0, objects_max=2)
    assert [each.entry.start_offset for each in plan.slices] == list(range(6))
    assert plan.epochs_to_ask == frozenset() and not plan.is_held_back


def test_slices_planned_ahead_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.add(*(entry(start, start, leader_epoch=1, key=f"wal/{start}") for start in range(40)))
    assert len(world.plan()) == OBJECTS_AHEAD_MAX
    monkeypatch.setattr(wal_interval_map, "SLICES_AHEAD_MAX", 5)
    assert len(world.plan()) == 5


def test_24_a_missing_slice_is_waited_for() -> None:
    world = World()
    first, third = entry(0, 9, leader_epoch=1), entry(20, 29, leader_epoch=1)
    world.add(first, third)
    assert world.plan() == [(first, 10)]
    world.map.log_moved(10, 10)
    assert world.plan() == []


def test_22_the_same_event_twice_is_one_slice() -> None:
    world = World()
    each = entry(0, 9, leader_epoch=1)
    world.add(each)
    assert not world.map.add(each)
    assert len(world.map) == 1


def test_25_overlapping_slices_continue_from_the_log_end() -> None:
    world = World()
    long, other = entry(0, 19, leader_epoch=1, metadata_offset=1), entry(10, 29, leader_epoch=1, metadata_offset=2)
    world.add(long, other)
    assert world.plan() == [(long, 20), (other, 30)]
    world.map.log_moved(15, 0)
    assert world.plan() == [(other, 30)]  # told later


def test_useless_entries_are_not_kept() -> None:
    world = World()
    world.map.log_start_moved(10)
    assert not world.map.add(entry(0, 9, leader_epoch=1))
    assert not world.map.add(entry(20, 10, leader_epoch=1))
    for state in (0, 2, 3):
        assert not world.map.add(entry(20, 29, leader_epoch=1, state=state))
    assert len(world.map) == 0


def test_candidates_by_leader_then_bucket_then_age() -> None:
    world = World(leader_epoch=3)
    world.lead(3, e1=(1, 100), e2=(2, 200))
    older = entry(0, 9, leader_epoch=1)
    far = entry(0, 9, leader_epoch=2, epochs=[(1, 0)], bucket=OTHER_BUCKET, metadata_offset=9)
    near = entry(0, 9, leader_epoch=2, epochs=[(1, 0)], metadata_offset=3)
    nearer = entry(0, 9, leader_epoch=2, epochs=[(1, 0)], metadata_offset=4)
    world.add(older)
    for each in (far, near, nearer):
        world.add(each)
        assert world.plan() == [(each, 10)]
    world.add(entry(0, 9, leader_epoch=1, metadata_offset=99))
    assert world.plan() == [(nearer, 10)]


def test_31_a_slice_of_a_future_leader_is_used_when_its_epoch_comes() -> None:
    world = World(leader_epoch=1)
    future = entry(0, 9, leader_epoch=2)
    world.add(future)
    assert world.plan() == [] and world.asked() == set()
    world.lead(2)
    assert world.plan() == [(future, 10)]


def test_32_the_leader_is_asked_about_batch_epochs_of_older_slices() -> None:
    world = World(leader_epoch=3)
    mixed = entry(70, 90, leader_epoch=2, epochs=[(1, 70), (2, 80)])
    world.add(mixed)
    world.map.log_moved(70, 70)
    assert world.plan() == [] and world.asked() == {1, 2}
    world.lead(3, e1=(1, 100))
    assert world.plan() == [(mixed, 80)] and world.asked() == {2}
    world.lead(3, e1=(1, 100), e2=(1, 100))
    assert world.plan() == [(mixed, 80)] and world.asked() == set()


def test_30_a_zombies_slice_is_not_fetched_and_counted_once() -> None:
    world = World(leader_epoch=3)
    zombie, good = entry(80, 90, leader_epoch=2), entry(80, 84, leader_epoch=3)
    world.map.log_moved(80, 80)
    world.add(zombie)
    world.lead(3, e2=(1, 100))
    assert world.plan() == [] and world.plan() == []
    assert world.map.fenced_count == 1
    world.add(good)
    assert world.plan() == [(good, 85)]


def test_34_entries_above_the_new_leaders_start_are_void() -> None:
    """B1 announced 6-10 in epoch 1 and died; B2 leads from 5 in epoch 2."""
    world = World(leader_epoch=2)
    world.add(entry(3, 4, leader_epoch=1), entry(5, 9, leader_epoch=1))
    world.lead(2, e1=(1, 5))
    world.map.log_moved(5, 5)
    assert world.plan() == []
    after = entry(5, 6, leader_epoch=2)
    world.add(after)
    assert world.plan() == [(after, 7)]


def test_29_a_bucket_that_is_down_gives_way_to_another() -> None:
    world = World(leader_epoch=2)
    world.lead(2, e1=(1, 100))
    dead = entry(0, 9, leader_epoch=2, bucket=OTHER_BUCKET)
    alive = entry(0, 9, leader_epoch=1)
    world.add(dead, alive)
    assert world.plan() == [(dead, 10)]
    world.closed.add(OTHER_BUCKET)
    assert world.plan() == [(alive, 10)]
    world.closed.clear()
    assert world.plan() == [(dead, 10)]


def test_28_a_slice_that_is_gone_gives_way_and_does_not_come_back() -> None:
    world = World()
    gone, other = entry(0, 9, leader_epoch=1, metadata_offset=5), entry(0, 9, leader_epoch=1)
    world.add(gone, other)
    world.map.drop(gone)
    assert world.plan() == [(other, 10)]
    assert not world.map.add(gone)
    assert world.map.valid_until(gone, world.lineage, 0) == 0


def test_a_slice_that_could_not_be_fetched_is_tried_again_later() -> None:
    world = World()
    each = entry(0, 9, leader_epoch=1)
    world.add(each)
    world.map.set_aside(each, 5000)
    world.now_ms = 4999
    assert world.plan() == []
    world.now_ms = 5000
    assert world.plan() == [(each, 10)]


def test_what_may_be_appended_is_asked_again_at_the_lock() -> None:
    world = World(leader_epoch=1)
    each = entry(0, 9, leader_epoch=1)
    world.add(each)
    assert world.map.valid_until(each, world.lineage, 4) == 10
    assert world.map.valid_until(each, world.lineage, 10) == 10
    world.lead(2, e1=(1, 6))
    assert world.map.valid_until(each, world.lineage, 4) == 6
    assert world.map.valid_until(entry(0, 9, leader_epoch=1), world.lineage, 0) == 0  # nobody told of it


def test_key_6_by_the_publisher_or_the_leader_of_the_epoch_voids_a_slice() -> None:
    for broker_id, leader_epoch, is_void in ((1, 0, True), (2, 5, True), (2, 4, False), (2, 6, False)):
        world = World(leader_epoch=5)
        world.lead(5, e3=(3, 100))
        each = entry(0, 9, leader_epoch=3, broker_id=1)
        world.map.update(deletion(each.slice_id, broker_id, leader_epoch))  # before the slice is known
        world.add(each)
        assert (world.plan() == []) is is_void, (broker_id, leader_epoch)


def test_key_6_with_another_state_changes_nothing() -> None:
    world = World()
    each = entry(0, 9, leader_epoch=1)
    world.add(each)
    world.map.update(deletion(each.slice_id, 1, 1, RemoteLogSegmentState.COPY_SEGMENT_FINISHED))
    assert world.plan() == [(each, 10)]
    world.map.update(deletion(each.slice_id, 1, 1, RemoteLogSegmentState.DELETE_SEGMENT_STARTED))
    assert world.plan() == []


def test_deletions_that_wait_for_their_slices_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal_interval_map, "_DELETED_MAX", 2)
    world = World()
    entries = [entry(start, start, leader_epoch=1) for start in range(3)]
    for each in entries:
        world.map.update(deletion(each.slice_id, 1, 1))
    world.add(*entries)
    assert world.plan() == [(entries[0], 1)]


def test_key_7_voids_older_slices_from_its_offset_on() -> None:
    world = World(leader_epoch=4)
    world.lead(4, e3=(3, 1000))
    older, own = entry(140, 159, leader_epoch=3), entry(150, 159, leader_epoch=4)
    world.map.log_moved(140, 140)
    world.add(older)
    world.map.invalidate(invalidation(4, 150))
    assert world.plan() == [(older, 150)]
    world.add(own)
    assert world.plan() == [(older, 150), (own, 160)]
    world.map.log_moved(152, 140)
    world.map.drop(own)
    assert world.plan() == []


def test_h11_key_7_of_another_epoch_is_not_honoured() -> None:
    """{2, from 80} arrives late: it would void 80-99 of epoch 1, which the lineage {1: 0-99, 3: 100-} needs."""
    world = World(leader_epoch=3)
    needed = entry(80, 99, leader_epoch=1)
    world.map.log_moved(80, 80)
    world.add(needed)
    world.map.invalidate(invalidation(2, 80))
    world.map.invalidate(invalidation(4, 80))
    world.lead(3, e1=(1, 100))
    assert world.plan() == [(needed, 100)]
    world.lead(4, e1=(1, 100))
    assert world.plan() == []  # the one of epoch 4 was kept
    world.lead(5, e1=(1, 100))
    assert world.plan() == [(needed, 100)]


def test_h10_a_late_entry_of_a_zombie_replaces_nothing() -> None:
    world = World(leader_epoch=2)
    live = entry(10, 19, leader_epoch=2)
    world.map.log_moved(10, 10)
    world.add(live)
    world.add(entry(10, 24, leader_epoch=1, metadata_offset=99))
    world.lead(2, e1=(1, 10))
    assert world.plan() == [(live, 20)]


def test_h10_entries_below_a_foreign_tail_survive_its_truncation() -> None:
    """The follower holds 10-29 of a deposed leader; 10-19 of the right one arrive, below its log end."""
    world = World(leader_epoch=2)
    world.map.log_moved(30, 10)
    good = entry(10, 19, leader_epoch=2)
    world.add(good)
    assert world.plan() == []
    world.map.log_moved(10, 10)
    assert not world.map.needs_reseek
    assert world.plan() == [(good, 20)]


def test_h10_an_entry_that_was_passed_is_kept_until_the_high_watermark_passes_it() -> None:
    world = World()
    first, second = entry(0, 9, leader_epoch=1), entry(10, 19, leader_epoch=1)
    world.add(first, second)
    world.map.log_moved(20, 10)
    assert (len(world.map), world.map.prune_mark) == (1, 9)
    world.map.log_moved(10, 10)
    assert world.plan() == [(second, 20)]
    world.map.log_moved(20, 19)
    assert len(world.map) == 1
    world.map.log_moved(20, 20)
    assert (len(world.map), world.map.prune_mark) == (0, 19)


def test_h10_a_log_cut_below_what_was_let_go_reads_the_metadata_again() -> None:
    """Unclean elections lower even the high watermark."""
    world = World()
    lost, kept = entry(0, 9, leader_epoch=1), entry(10, 19, leader_epoch=1)
    world.add(lost, kept)
    world.map.log_moved(10, 10)
    world.map.log_moved(9, 9)
    assert world.map.needs_reseek
    assert len(world.map) == 0 and world.map.coverage.runs == ()
    world.map.reseek_began()
    world.add(lost, kept)
    assert world.plan() == [(lost, 10), (kept, 20)]
    world.map.log_moved(10, 9)
    assert not world.map.needs_reseek


def test_h10_a_log_cut_to_the_mark_is_fine() -> None:
    world = World()
    world.add(entry(0, 9, leader_epoch=1))
    world.map.log_moved(15, 15)
    world.map.log_moved(10, 10)
    assert not world.map.needs_reseek


def test_h10_deleted_records_are_let_go() -> None:
    world = World()
    low, high = entry(0, 9, leader_epoch=1), entry(5, 19, leader_epoch=1)
    world.add(low, high)
    world.map.log_start_moved(12)
    world.map.log_moved(12, 12)
    assert world.plan() == [(high, 20)]
    assert not world.map.needs_reseek
    world.map.log_moved(9, 9)
    assert world.map.needs_reseek


def test_h10_what_was_passed_over_is_read_again_when_the_log_begins_lower() -> None:
    """A log that was begun anew behind tiered storage may be begun anew once more, for another leader."""
    world = World()
    world.map.log_moved(20, 20)
    world.map.log_start_moved(20)
    assert not world.map.add(entry(10, 19, leader_epoch=1))
    world.map.log_start_moved(10)
    assert world.map.needs_reseek
    world.map.log_moved(10, 10)
    world.map.reseek_began()
    assert world.map.add(entry(10, 19, leader_epoch=1))


def test_h10_a_new_leader_knows_what_is_covered() -> None:
    """What was let go as a follower is still in the bucket: it is not uploaded again (47)."""
    world = World(leader_epoch=1)
    world.add(*(entry(start, start + 9, leader_epoch=1) for start in range(0, 50, 10)))
    world.map.log_moved(50, 40)
    assert len(world.map) == 1
    world.lineage = Lineage.of_own_log(2, [EpochEntry(1, 0), EpochEntry(2, 50)], 0, 50)
    assert world.uncovered(0, 50) == []
    world.add(entry(50, 59, leader_epoch=2))
    assert world.uncovered(0, 70) == [(60, 70)]
    world.now_ms = HOUR
    assert world.uncovered(0, 50) == [(0, 40)]  # those objects may be deleted by now


def test_h11_coverage_counts_what_a_follower_would_use() -> None:
    world = World(leader_epoch=1)
    lineage = Lineage.of_own_log(3, [EpochEntry(1, 0), EpochEntry(3, 40)], 0, 60)
    zombie = entry(40, 49, leader_epoch=2)
    gone, deleted, aside = (entry(start, start + 9, leader_epoch=1) for start in (0, 10, 30))
    elsewhere = entry(20, 29, leader_epoch=1, bucket=OTHER_BUCKET)
    world.add(zombie, gone, deleted, elsewhere, aside)
    world.lineage = lineage
    assert world.uncovered(0, 60) == [(40, 60)]
    world.map.drop(gone)
    assert world.uncovered(0, 60) == [(0, 10), (40, 60)]
    world.map.update(deletion(deleted.slice_id, 1, 1))
    assert world.uncovered(0, 60) == [(0, 20), (40, 60)]
    world.closed.add(OTHER_BUCKET)
    assert world.uncovered(0, 60) == [(0, 30), (40, 60)]
    world.map.set_aside(aside, 10)
    assert world.uncovered(0, 60) == [(0, 60)]
    world.map.invalidate(invalidation(2, 0))  # of an old epoch
    world.closed.clear()
    world.now_ms = 10
    assert world.uncovered(0, 60) == [(0, 20), (40, 60)]


def test_h11_slices_that_were_void_are_not_covered_after_they_were_let_go_either() -> None:
    world = World()
    gone, deleted, fine = (entry(start, start + 9, leader_epoch=1) for start in (0, 10, 20))
    world.add(gone, deleted, fine)
    world.map.drop(gone)
    world.map.update(deletion(deleted.slice_id, 1, 1))
    world.map.log_moved(30, 30)
    assert len(world.map) == 0
    world.lineage = Lineage.of_own_log(2, [EpochEntry(1, 0)], 0, 30)
    assert world.uncovered(0, 30) == [(0, 20)]
    world.closed.add(BUCKET)
    assert world.uncovered(0, 30) == [(0, 30)]


def test_a_slice_that_straddles_the_log_start_covers_what_is_left() -> None:
    world = World()
    world.add(entry(0, 19, leader_epoch=1))
    world.lineage = Lineage.of_own_log(2, [EpochEntry(1, 10), EpochEntry(2, 20)], 10, 20)
    assert world.uncovered(10, 20) == []


def test_entries_that_come_below_log_end_and_high_watermark_count_as_covered_at_once() -> None:
    world = World()
    world.map.log_moved(20, 20)
    world.add(entry(0, 9, leader_epoch=1))
    assert (len(world.map), world.map.prune_mark) == (0, 9)
    assert [run[:2] for run in world.map.coverage.runs] == [(0, 10)]


def test_the_map_is_bounded_and_reads_again_when_it_gets_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal_interval_map, "ENTRIES_MAX", 3)
    world = World()
    entries = [entry(start, start, leader_epoch=1) for start in range(6)]
    world.add(entries[5], entries[0], entries[1], entries[2])
    assert len(world.map) == 3
    assert not world.map.add(entries[5])
    world.add(entries[3])  # lets itself go again
    assert len(world.map) == 3
    assert [each.start_offset for each, _ in world.plan()] == [0, 1, 2]
    world.map.log_moved(2, 0)
    assert not world.map.needs_reseek
    world.map.log_moved(3, 0)
    assert world.map.needs_reseek
    world.map.reseek_began()
    world.add(entries[3], entries[4], entries[5])
    assert [each.start_offset for each, _ in world.plan()] == [3, 4, 5]


@pytest.mark.parametrize("by", ["the log", "what is announced"])
def test_a_high_watermark_that_stands_still_keeps_a_few_and_reads_nothing_again(
    monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(wal_interval_map, "ENTRIES_MAX", 5)
    monkeypatch.setattr(wal_interval_map, "PASSED_MAX", 2)
    world = World()
    for start in range(20):
        if by == "the log":
            world.add(entry(start, start, leader_epoch=1))
        world.map.log_moved(start + 1, 0)
        if by == "what is announced":
            world.add(entry(start, start, leader_epoch=1))
        assert not world.map.needs_reseek
    assert len(world.map) == 2
    assert [run[:2] for run in world.map.coverage.runs] == [(0, 18)]
    world.map.log_moved(18, 0)  # a tail is cut: what was kept is there
    assert [each.start_offset for each, _ in world.plan()] == [18, 19]
    world.map.log_moved(17, 0)
    assert world.map.needs_reseek


def test_it_makes_room_by_what_was_passed_and_then_from_the_far_end() -> None:
    world = World()
    world.add(*(entry(start, start, leader_epoch=1) for start in range(8)))
    world.map.log_moved(3, 0)
    world.map.make_room(2)
    assert (len(world.map), world.map.prune_mark) == (6, 1)
    world.map.make_room(3)
    assert [each.start_offset for each, _ in world.plan()] == [3, 4, 5]
    world.map.make_room(5)
    assert [each.start_offset for each, _ in world.plan()] == [3]  # it is needed now, and would be sought at once
    assert not world.map.add(entry(4, 4, leader_epoch=1))
    world.map.log_moved(4, 0)
    assert world.map.needs_reseek


def test_history_that_is_told_after_the_present_comes_to_the_same() -> None:
    """Slices of two leaders, one of them deleted, and what the newer leader voids; told in any order."""
    gone = entry(0, 9, leader_epoch=2, metadata_offset=3)
    slices = [
        entry(0, 9, leader_epoch=1, epochs=[(1, 0)], metadata_offset=1),
        entry(10, 19, leader_epoch=1, epochs=[(1, 10)], metadata_offset=2),
        gone,
        entry(5, 12, leader_epoch=2, metadata_offset=4),
    ]
    told: list[Callable[[WalIntervalMap], object]] = [lambda known, each=each: known.add(each) for each in slices]  # type: ignore[misc]
    told += [
        lambda known: known.update(deletion(gone.slice_id, gone.broker_id, 2)),
        lambda known: known.invalidate(invalidation(2, 5)),
        lambda known: known.invalidate(invalidation(1, 0)),  # by an older leader
    ]
    outcomes = set()
    for order in itertools.permutations(told):
        world = World(leader_epoch=2)
        world.lead(2, _1=(1, 20))
        for tell in order:
            tell(world.map)
        outcomes.add(tuple((each.metadata_offset, valid_until) for each, valid_until in world.plan()))
    assert outcomes == {((1, 5), (4, 13))}


def test_what_could_not_be_had_is_held_back_without_news() -> None:
    world = World(leader_epoch=2)
    assert not world.map.plan(world.lineage, 0).is_held_back
    first, second = entry(0, 9, leader_epoch=2, bucket=OTHER_BUCKET), entry(0, 9, leader_epoch=2)
    world.add(first, second)
    world.closed.add(OTHER_BUCKET)
    plan = world.map.plan(world.lineage, 0)
    assert ([each.entry for each in plan.slices], plan.is_held_back) == ([second], False)
    world.map.set_aside(second, 100)
    assert world.map.plan(world.lineage, 0) == WalFetchPlan((), frozenset(), is_held_back=True)
    world.map.drop(first)
    world.map.drop(second)
    assert not world.map.plan(world.lineage, 0).is_held_back


def test_held_back_is_what_the_leader_may_have() -> None:
    world = World(leader_epoch=3)
    older = entry(0, 9, leader_epoch=1)
    world.add(older)
    assert world.map.plan(world.lineage, 0) == WalFetchPlan((), frozenset({1}), is_held_back=False)  # it is being asked
    world.closed.add(BUCKET)
    assert world.map.plan(world.lineage, 0) == WalFetchPlan((), frozenset(), is_held_back=True)
    world.lead(3, e1=(0, 5))
    assert not world.map.plan(world.lineage, 0).is_held_back
    world.lead(3, e1=(1, 5))
    assert world.map.plan(world.lineage, 0).is_held_back


def test_where_the_leaders_next_slice_begins() -> None:
    world = World(leader_epoch=2)
    void, good = entry(20, 29, leader_epoch=2), entry(30, 39, leader_epoch=2)
    world.add(entry(0, 9, leader_epoch=2), entry(12, 19, leader_epoch=1), void, good)
    world.map.drop(void)
    assert world.map.next_start_of(2, 10) == 30
    assert world.map.next_start_of(1, 10) == 12
    assert world.map.next_start_of(2, 30) is None


def test_the_first_offset_that_was_ever_announced_is_remembered() -> None:
    world = World()
    assert world.map.first_announced_offset is None
    world.add(entry(30, 39), entry(20, 24, bucket=OTHER_BUCKET))
    world.closed.add(OTHER_BUCKET)
    assert world.map.first_announced_offset == 20  # whether it can be fetched or not
    world.map.log_moved(40, 40)
    assert len(world.map) == 0
    assert world.map.first_announced_offset == 20
    world.map.log_start_moved(22)
    assert world.map.first_announced_offset == 22
