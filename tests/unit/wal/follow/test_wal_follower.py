"""One follower by itself: the test is its host, and hands it bytes when it likes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker.common.errors import NotLeaderOrFollowerError, StorageFailure
from broker.log.leader_epoch_file_cache import EpochEndOffset
from broker.records.record_batch import RecordBatch, batches
from broker.replication.bucket_fetch_state import BucketFetchState
from broker.replication.topic_stats import ReplicationPath
from broker.schemas.remote_wal_metadata import RemoteWalPartitionInvalidateRecord, TopicIdPartitionEntry
from broker.wal.follow import wal_follower
from broker.wal.follow.slice_gets import WantedSlice
from broker.wal.follow.wal_fetcher import WalFetcher
from broker.wal.follow.wal_follower import WalFollower, Wishes
from broker.wal.follow.wal_interval_map import OBJECTS_AHEAD_MAX
from broker.wal.objects.wal_entry import WalEntry, entries_of
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.wal.fetcher_world import WalFetcherWorld, records
from tests.unit.wal.wal_world import BUCKET, OTHER_BUCKET, batch, make_object, make_slice


class Follower:
    """What the fetcher would do, one step at a time."""

    def __init__(self, directory: Path, *, leader_epoch: int = 1) -> None:
        self.world = WalFetcherWorld(directory, leader_epoch=leader_epoch)
        self.state: BucketFetchState = self.world.states[0]
        self.it: WalFollower = self.world.follower()
        self.fetcher: WalFetcher = self.world.fetcher
        self.told = 0

    async def announce(
        self, start: int, count: int, *, epoch: int = 1, publisher: int | None = None, bucket: str = BUCKET
    ) -> WalEntry:
        """A slice of one-record batches, stored and known."""
        self.told += 1
        (entry,) = await self.world.upload(
            (0, start, count), key=f"wal/{self.told}", epoch=epoch, publisher=publisher, bucket=bucket
        )
        self.world.map().add(entry)
        return entry

    def plan(self) -> tuple[WantedSlice, ...]:
        return self.it.plan(self.world.clock.now_ms()).slices

    def bring(self, wanted: WantedSlice) -> None:
        entry = wanted.entry
        data = self.world.storage.objects[entry.bucket, entry.object_key]
        self.it.arrived(wanted, memoryview(data)[entry.position : entry.object_end])

    @property
    def end(self) -> int:
        return self.world.end()


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Callable[..., Follower]]:
    yield lambda **options: Follower(tmp_path, **options)


Make = Callable[..., Follower]


async def test_before_the_handshake_nothing_is_wanted(make: Make) -> None:
    follower = make()
    await follower.announce(0, 2)
    assert follower.plan() == () and not follower.it.may_append
    follower.world.answer()
    assert [wanted.entry.start_offset for wanted in follower.plan()] == [0]


async def test_an_answer_for_another_offset_is_no_handshake(make: Make) -> None:
    follower = make()
    request = follower.state.request(1000)
    follower.state.append(_batches(0, 2))  # real records of the leader, in a way
    follower.it.answered(request, 0)
    assert not follower.it.may_append
    follower.world.answer()
    assert follower.it.may_append


async def test_some_objects_ahead_are_wanted_and_none_twice(make: Make) -> None:
    follower = make()
    for start in range(OBJECTS_AHEAD_MAX + 2):
        await follower.announce(start, 1)
    follower.world.answer()
    wanted = follower.plan()
    assert [each.entry.start_offset for each in wanted] == list(range(OBJECTS_AHEAD_MAX))
    assert follower.plan() == ()
    follower.bring(wanted[0])
    assert [each.entry.start_offset for each in follower.plan()] == [OBJECTS_AHEAD_MAX]


async def test_what_comes_early_waits_and_is_counted(make: Make) -> None:
    follower = make()
    for start in range(0, 8, 2):
        await follower.announce(start, 2)
    follower.world.answer()
    first, second, third, fourth = follower.plan()
    for each in (fourth, second, third):
        follower.bring(each)
    assert (follower.end, follower.it.early_count) == (0, 3)
    assert follower.fetcher.early_bytes.used_bytes == sum(each.entry.size for each in (second, third, fourth))
    follower.bring(first)
    assert (follower.end, follower.it.early_count, follower.fetcher.early_bytes.used_bytes) == (8, 0, 0)
    assert follower.world.log_bytes() == records(0, 8)


async def test_early_slices_are_let_go_when_nothing_comes_that_would_bring_their_turn(make: Make) -> None:
    follower = make()
    await follower.announce(0, 2)
    await follower.announce(2, 2)
    follower.world.answer()
    first, second = follower.plan()
    follower.bring(second)
    follower.it.gone(first)
    assert follower.it.early_count == 1
    assert follower.plan() == ()
    assert (follower.it.early_count, follower.fetcher.early_bytes.used_bytes) == (0, 0)
    follower.state.append(_batches(0, 2))  # the leader fell back
    (again,) = follower.plan()
    follower.bring(again)
    assert follower.end == 4


async def test_early_slices_stay_when_their_bucket_goes_away_meanwhile(make: Make) -> None:
    follower = make()
    await follower.announce(0, 2)
    await follower.announce(2, 2, bucket=OTHER_BUCKET)
    follower.world.answer()
    first, second = follower.plan()
    follower.bring(second)
    follower.world.storage.closed.add(OTHER_BUCKET)
    assert follower.plan() == ()
    follower.bring(first)
    assert follower.end == 4


async def test_25_overlapping_slices_are_trimmed(make: Make) -> None:
    follower = make()
    await follower.announce(0, 4)
    await follower.announce(2, 4)
    await follower.announce(3, 1)
    follower.world.answer()
    for _ in range(3):
        for wanted in follower.plan():
            follower.bring(wanted)
    assert follower.world.log_bytes() == records(0, 6)


async def test_38_a_slice_that_the_log_has_by_other_ways_is_dropped(make: Make) -> None:
    follower = make()
    await follower.announce(0, 2)
    follower.world.answer()
    (wanted,) = follower.plan()
    follower.state.append(_batches(0, 3))
    follower.bring(wanted)
    assert follower.world.log_bytes() == records(0, 3)
    assert follower.plan() == ()


async def test_33_after_a_truncation_old_bytes_are_void_and_the_handshake_is_due(make: Make) -> None:
    follower = make()
    await follower.announce(0, 2)
    await follower.announce(2, 2)
    follower.world.answer()
    first, second = follower.plan()
    follower.bring(first)
    follower.state.truncate_to(1)
    assert not follower.it.may_append
    follower.bring(second)
    assert (follower.end, follower.plan(), follower.it.early_count) == (1, (), 0)
    follower.world.answer()
    for wanted in follower.plan():
        follower.bring(wanted)
    assert follower.world.log_bytes() == records(0, 4)


async def test_h5_while_the_log_is_reset_nothing_is_appended(make: Make) -> None:
    follower = make()
    await follower.announce(0, 2)
    follower.world.answer()
    (wanted,) = follower.plan()
    follower.state.begin_reset()
    follower.bring(wanted)
    assert (follower.end, follower.plan()) == (0, ())
    follower.state.end_reset()
    follower.bring(wanted)
    assert (follower.end, follower.plan()) == (0, ())
    follower.world.answer()
    assert len(follower.plan()) == 1


async def test_a_new_leader_epoch_makes_everything_void(make: Make) -> None:
    follower = make()
    await follower.announce(0, 2)
    follower.world.answer()
    (wanted,) = follower.plan()
    follower.world.place(leader_epoch=2)
    follower.bring(wanted)
    assert follower.end == 0


async def test_a_follower_that_ended_wants_nothing(make: Make) -> None:
    follower = make()
    await follower.announce(0, 2)
    await follower.announce(2, 2)
    follower.world.answer()
    first, second = follower.plan()
    follower.bring(second)
    follower.it.stop()
    assert follower.fetcher.early_bytes.used_bytes == 0
    follower.bring(first)
    assert (follower.end, follower.plan(), follower.it.wants(first)) == (0, (), False)


async def test_31_a_slice_of_a_leader_to_come_is_held(make: Make) -> None:
    follower = make(leader_epoch=1)
    await follower.announce(0, 2, epoch=2)
    follower.world.answer()
    assert follower.plan() == ()
    follower.world.place(leader_epoch=2)
    follower.world.states[0] = follower.world.follow()
    follower.it = follower.world.follower()
    follower.world.answer()
    (wanted,) = follower.plan()
    follower.bring(wanted)
    assert follower.world.log_bytes() == records(0, 2, epoch=2)


async def test_32_an_older_slice_is_cut_where_its_epoch_ends(make: Make) -> None:
    follower = make(leader_epoch=3)
    await follower.announce(0, 6, epoch=1, publisher=2)
    follower.world.answer()
    wishes = follower.it.plan(0)
    assert wishes == Wishes(epochs=frozenset({1}))
    follower.it.epoch_answered(follower.it.ticket, 1, EpochEndOffset(1, 4))
    (wanted,) = follower.plan()
    follower.bring(wanted)
    assert follower.world.log_bytes() == records(0, 4)
    assert follower.plan() == ()


async def test_30_a_zombies_slice_is_not_fetched_and_counted(make: Make) -> None:
    follower = make(leader_epoch=3)
    await follower.announce(0, 2, epoch=2)
    follower.world.answer()
    assert follower.it.plan(0).epochs == {2}
    follower.it.epoch_answered(follower.it.ticket, 2, EpochEndOffset(1, 100))
    for _ in range(2):
        assert follower.it.plan(0) == Wishes()
    assert follower.world.stats.of("t").fenced_metadata == 1


async def test_while_the_leader_is_asked_it_is_not_asked_again(make: Make) -> None:
    follower = make(leader_epoch=3)
    await follower.announce(0, 2, epoch=2)
    follower.world.answer()
    follower.it.asking = follower.it.ticket
    assert follower.it.plan(0).epochs == frozenset()


async def test_h4_no_answer_makes_valid_what_is_below_the_leaders_log_start(make: Make) -> None:
    """A zombie's batch at 0; the leader answers for epoch 0 with the floor, or did before its start moved."""
    follower = make(leader_epoch=1)
    await follower.announce(0, 1, epoch=0)
    follower.world.answer()
    follower.it.epoch_answered(follower.it.ticket, 0, EpochEndOffset(0, 1))
    (wanted,) = follower.plan()
    follower.it.answered(follower.state.request(1000), 1)  # DeleteRecords to 1
    follower.bring(wanted)
    assert (follower.end, follower.plan()) == (0, ())


async def test_h8_an_answer_of_another_generation_is_forgotten(make: Make) -> None:
    follower = make(leader_epoch=2)
    await follower.announce(0, 2, epoch=1)
    follower.world.answer()
    old = follower.it.ticket
    follower.state.truncate_to(0)
    follower.world.answer()
    follower.it.epoch_answered(old, 1, EpochEndOffset(1, 2))
    assert follower.it.plan(0) == Wishes(epochs=frozenset({1}))


async def test_void_after_the_get_began_is_not_appended(make: Make) -> None:
    follower = make()
    entry = await follower.announce(0, 2)
    follower.world.answer()
    (wanted,) = follower.plan()
    follower.world.map().drop(entry)
    follower.bring(wanted)
    assert follower.end == 0


async def test_better_candidates_are_fetched_although_others_are_under_way(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal_follower, "UNDER_WAY_MAX", 8)
    follower = make()
    for start in range(0, 8, 2):
        await follower.announce(start, 2, bucket=OTHER_BUCKET)
    follower.world.answer()
    stuck = follower.plan()
    assert len(stuck) == 4
    for start in range(0, 8, 2):
        await follower.announce(start, 2)  # in the bucket of our own zone
    better = follower.plan()
    assert [each.entry.bucket != OTHER_BUCKET for each in better] == [True] * 4
    await follower.announce(0, 8)
    assert follower.plan() == ()  # there is an end to it
    for each in better:
        follower.bring(each)
    assert follower.end == 8
    for each in stuck:
        follower.bring(each)
    assert follower.world.log_bytes() == records(0, 8)


async def test_the_log_may_begin_within_the_first_batch(make: Make) -> None:
    """DeleteRecords moved the leader's start into a batch; an empty follower takes the whole batch and hides it."""
    follower = make()
    world = follower.world
    follower.state.truncate_fully_and_start_at(2)
    await _store(follower, _one_batch(0, 4))
    world.answer(log_start=2)
    (wanted,) = follower.plan()
    follower.bring(wanted)
    log = world.partition().log
    assert (log.log_start_offset, log.log_end_offset) == (2, 4)


async def test_a_batch_that_straddles_the_log_end_is_corruption(make: Make) -> None:
    follower = make()
    world = follower.world
    follower.state.append(_batches(0, 2))

    await _store(follower, _one_batch(0, 4))
    world.answer()
    (wanted,) = follower.plan()
    follower.bring(wanted)
    assert (follower.end, world.stats.of("t").corrupt, follower.plan()) == (2, 1, ())


@pytest.mark.parametrize("error", [StorageFailure("the disk is full"), NotLeaderOrFollowerError("no more")])
def test_a_log_that_refuses_fails_no_slice_and_is_tried_about_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def story(loop: SimLoop) -> None:
        follower = Follower(tmp_path)
        async with follower.fetcher.running():
            follower.world.answer()
            with monkeypatch.context() as patch:
                patch.setattr(BucketFetchState, "append", _refusal(error))
                for start in range(0, 60, 2):
                    follower.world.tell(await follower.announce(start, 2))
                    await asyncio.sleep(0.1)
                gets = [key for key, _, _ in follower.world.storage.gets]
                assert [gets.count(f"wal/{number}") for number in (1, 2, 20)] == [4, 1, 1]
            await asyncio.sleep(1.1)
            assert follower.end == 60
            assert follower.world.stats.of("t").corrupt == 0

    simulate(story)


def test_a_log_that_refused_is_tried_again_although_a_timer_rings_before_it_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(loop: SimLoop) -> None:
        follower = Follower(tmp_path)
        async with follower.fetcher.running():
            follower.world.answer()
            follower.world.tell(await follower.announce(2, 2))  # what is before it may come within a second
            await asyncio.sleep(0.5)
            with monkeypatch.context() as patch:
                patch.setattr(BucketFetchState, "append", _refusal(StorageFailure("the disk is full")))
                follower.world.tell(await follower.announce(0, 2))
                await asyncio.sleep(0.1)
            assert follower.end == 0
            await asyncio.sleep(2)
            assert follower.end == 4

    simulate(story)


def test_a_slice_that_comes_too_late_makes_room_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal_follower, "UNDER_WAY_MAX", 1)

    async def story(loop: SimLoop) -> None:
        follower = Follower(tmp_path)
        may_come = asyncio.Event()
        follower.world.storage.before = lambda bucket, key: may_come.wait()
        async with follower.fetcher.running():
            follower.world.answer()
            follower.world.tell(await follower.announce(0, 2), await follower.announce(2, 2))
            await asyncio.sleep(0.1)
            follower.state.append(_batches(0, 2))
            may_come.set()
            await asyncio.sleep(0.1)
            assert follower.end == 4

    simulate(story)


async def test_h10_an_entry_below_a_foreign_tail_is_found_after_the_truncation(make: Make) -> None:
    follower = make(leader_epoch=3)
    follower.state.append(_batches(0, 4, epoch=1))
    await follower.announce(2, 2, epoch=3)
    assert follower.plan() == ()
    follower.state.truncate_to(2)
    follower.world.answer()
    (wanted,) = follower.plan()
    follower.bring(wanted)
    assert follower.world.log_bytes() == records(0, 2) + records(2, 4, epoch=3)


async def test_the_map_follows_log_end_and_high_watermark(make: Make) -> None:
    follower = make()
    await follower.announce(0, 2)
    follower.world.answer()
    (wanted,) = follower.plan()
    follower.bring(wanted)
    assert len(follower.world.map()) == 1  # the high watermark is behind: it may be needed again
    follower.world.answer(high_watermark=2)
    assert (len(follower.world.map()), follower.world.map().prune_mark) == (0, 1)


async def test_without_a_map_the_handshake_counts_and_slices_come_when_there_is_one(make: Make) -> None:
    follower = make()
    entry = await follower.announce(0, 2)
    known = follower.world.known.pop(follower.world.place_of())
    follower.world.answer()
    assert follower.plan() == () and follower.it.may_append
    follower.world.known[follower.world.place_of()] = known
    assert [wanted.entry for wanted in follower.plan()] == [entry]


def _refusal(error: Exception) -> Callable[..., int]:
    """Of every append."""

    def refuse(*_: object, **__: object) -> int:
        raise error

    return refuse


def _batches(start: int, end: int, *, epoch: int = 1) -> list[RecordBatch]:
    return list(batches(records(start, end, epoch=epoch)))


def _one_batch(start: int, count: int) -> bytes:
    return batch(start, count, epoch=1)


async def test_a_slice_with_a_hole_at_the_log_end_is_given_up(make: Make) -> None:
    follower = make()
    follower.state.append(_batches(0, 2))
    await _store(follower, records(0, 2) + records(5, 7))
    follower.world.answer()
    (wanted,) = follower.plan()
    follower.bring(wanted)
    assert (follower.end, follower.world.stats.of("t").corrupt) == (2, 0)
    assert follower.plan() == ()


async def test_what_is_void_in_this_epoch_alone_is_not_given_up(make: Make) -> None:
    """Key 7 comes while the bytes do; in the next leader's lineage the slice may be good."""
    follower = make(leader_epoch=2)
    world = follower.world
    entry = await follower.announce(0, 2, epoch=1)
    world.answer()
    follower.it.epoch_answered(follower.it.ticket, 1, EpochEndOffset(1, 2))
    (wanted,) = follower.plan()
    partition = TopicIdPartitionEntry.of(world.place_of())
    world.map().invalidate(
        RemoteWalPartitionInvalidateRecord(
            topic_id_partition=partition, broker_id=2, leader_epoch=2, from_offset=0, event_timestamp_ms=0
        )
    )
    follower.bring(wanted)
    assert follower.end == 0
    world.place(leader_epoch=3)
    world.states[0] = world.follow()
    follower.it = world.follower()
    world.answer()
    follower.it.epoch_answered(follower.it.ticket, 1, EpochEndOffset(1, 2))
    assert [each.entry for each in follower.plan()] == [entry]


async def test_bytes_are_counted_for_who_uploaded_them(make: Make) -> None:
    follower = make()
    entry = await follower.announce(0, 2)
    follower.world.map().drop(entry)
    elsewhere = replace(entry, broker_id=3, slice_id=entry.combined_segment_id)
    follower.world.map().add(elsewhere)
    follower.world.answer()
    (wanted,) = follower.plan()
    follower.bring(wanted)
    assert follower.world.partition().topic_stats.received_bytes == {(ReplicationPath.WAL, 3): entry.size}


async def test_trouble_is_told_once_until_something_is_appended(make: Make) -> None:
    follower = make()
    for start in range(0, 6, 2):
        await follower.announce(start, 2)
    follower.world.answer()
    first, second, third = follower.plan()
    with capture_logs() as logs:
        follower.it.gone(second)
        follower.it.gone(third)
        follower.bring(first)
        await follower.announce(2, 2)
        (again,) = follower.plan()
        follower.it.gone(again)
    told = [(each["event"], each["log_level"]) for each in logs]
    assert told == [("wal_object_gone", level) for level in ("warning", "debug", "warning")]


def test_24_a_missing_slice_is_told_once_after_a_second(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        follower = Follower(tmp_path)
        async with follower.fetcher.running():
            follower.world.answer()
            follower.world.tell(await follower.announce(2, 2))
            with capture_logs() as logs:
                await asyncio.sleep(0.9)
                assert logs == []
                await asyncio.sleep(0.3)
                assert [(each["event"], each["offset"], each["following"]) for each in logs] == [
                    ("wal_slice_missing", 0, 2)
                ]
                await asyncio.sleep(60)
                assert len(logs) == 1
            follower.world.tell(await follower.announce(0, 2))
            await asyncio.sleep(1)
            assert follower.end == 4

    simulate(story)


def test_a_slice_that_cannot_be_had_now_is_not_missing(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        follower = Follower(tmp_path)
        follower.world.storage.closed.add(OTHER_BUCKET)
        async with follower.fetcher.running():
            follower.world.answer()
            follower.world.tell(await follower.announce(0, 2, bucket=OTHER_BUCKET), await follower.announce(2, 2))
            with capture_logs() as logs:
                await asyncio.sleep(5)
            assert logs == []

    simulate(story)


async def _store(follower: Follower, data: bytes) -> None:
    """An object of one slice with these bytes, known."""
    combined = make_object([make_slice(data, partition=follower.world.place_of(), leader_epoch=1)], key="wal/stored")
    await follower.world.storage.copy_wal_combined_segment(combined)
    follower.world.map().add(*entries_of(combined.metadata, 1000))
