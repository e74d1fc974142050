"""Stories about a leader whose followers take records from a bucket (KIP-1176): what it answers, when, and its ISR."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker.common.errors import ErrorCode
from broker.replication.fetch_params import FetchParams, FetchPartition
from tests.support.builders import batch, settle
from tests.support.replica_cluster import T
from tests.support.sim_loop import SimLoop, simulate
from tests.support.simulated_bucket import BucketFollower, BucketWorld

LAG_MS = 2000
PROPERTIES = {"replica.lag.time.max.ms": str(LAG_MS)}

Story = Callable[[BucketWorld], Awaitable[None]]


def tell(tmp_path: Path, story: Story) -> None:
    async def run(loop: SimLoop) -> None:
        await story(BucketWorld(tmp_path, PROPERTIES))

    simulate(run)


async def load(world: BucketWorld, followers: list[BucketFollower], *, every_s: float, seconds: float) -> None:
    """Appends at a steady pace, and the timer that shrinks ISRs."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    shrink_at = loop.time()
    while loop.time() < end:
        world.append(batch("a"))
        for follower in followers:
            follower.look()
        if loop.time() >= shrink_at:
            world.replicas.maybe_shrink_isrs()
            shrink_at += LAG_MS / 2000
        await asyncio.sleep(every_s)


# What a follower is answered


def test_5_a_follower_gets_offsets_and_no_bytes(tmp_path: Path) -> None:
    async def story(world: BucketWorld) -> None:
        world.lead()
        world.append(batch("a"), batch("b"))
        follower = BucketFollower(world, 2)
        (result,) = await follower.fetch()
        assert (result.error, result.records, result.size_bytes) == (ErrorCode.none, b"", 0)
        assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (0, 0, 0)
        assert world.partition().log.log_end_offset == 2
        assert world.partition().topic_stats.sent_bytes == {}

    tell(tmp_path, story)


def test_6_a_consumer_gets_records(tmp_path: Path) -> None:
    async def story(world: BucketWorld) -> None:
        world.lead(replicas=(1, 2), isr=(1,))
        world.append(batch("a"))
        (result,) = await world.fetch(FetchParams(17), FetchPartition("t", 0, 0, 1000))
        assert bytes(result.records) != b""
        (debugging,) = await world.fetch(FetchParams(17, replica_id=-2), FetchPartition("t", 0, 0, 1000))
        assert debugging.records == result.records
        assert world.wals[0].asked == []

    tell(tmp_path, story)


def test_10_acks_all_waits_for_the_followers_and_through_a_pause_of_the_bucket(tmp_path: Path) -> None:
    async def story(world: BucketWorld) -> None:
        world.lead(replicas=(1, 2))
        follower = BucketFollower(world, 2, pipeline_s=0.03)
        follower.start()
        await asyncio.sleep(0.1)
        loop = asyncio.get_running_loop()
        follower.is_bucket_open = False
        started = loop.time()
        written = loop.create_task(world.produce([(T, batch("a"))], acks=-1))
        await asyncio.sleep(1.5)
        assert not written.done()
        assert world.partition().isr == (1, 2)
        follower.is_bucket_open = True
        follower.look()
        (result,) = await written
        assert result.error is ErrorCode.none
        assert loop.time() - started == pytest.approx(1.5 + 0.03, abs=0.006)  # and what is left of one wait
        await follower.stop()

    tell(tmp_path, story)


def test_37_the_answer_to_a_fetch_of_an_older_end_has_the_high_watermark_of_now(tmp_path: Path) -> None:
    """What is known of the follower is what its fetch said, and no more."""

    async def story(world: BucketWorld) -> None:
        world.lead(isr=(1, 3))
        follower, other = BucketFollower(world, 2), BucketFollower(world, 3)
        world.append(batch("a"), batch("b"))
        other.ends[0] = 1
        await other.fetch()
        await follower.fetch()
        waiting = follower.fetch_later()
        await settle()
        follower.ends[0] = other.ends[0] = 2  # appended meanwhile
        await other.fetch()
        (result,) = await waiting
        assert (result.request.fetch_offset, result.high_watermark, result.size_bytes) == (0, 2, 0)
        assert world.partition().remote_replicas[2].log_end_offset == 0

    tell(tmp_path, story)


def test_41_a_follower_hears_within_two_fetches_of_what_is_committed(tmp_path: Path) -> None:
    async def story(world: BucketWorld) -> None:
        world.lead()
        followers = [BucketFollower(world, 2, pipeline_s=0.02), BucketFollower(world, 3, pipeline_s=0.05)]
        for follower in followers:
            follower.start()
        await load(world, followers, every_s=0.007, seconds=1)
        await asyncio.sleep(0.05 + 0.02)  # the last record, and a fetch that was on its way
        log = world.partition().log
        assert log.high_watermark == log.log_end_offset
        for follower in followers:
            assert follower.high_watermarks[0] == log.log_end_offset
            await follower.stop()

    tell(tmp_path, story)


def test_the_fetch_that_commits_is_answered_at_once_with_what_it_has_committed(tmp_path: Path) -> None:
    async def story(world: BucketWorld) -> None:
        world.lead(replicas=(1, 2))
        follower = BucketFollower(world, 2)
        await follower.fetch()
        world.append(batch("a"))
        follower.ends[0] = 1
        loop = asyncio.get_running_loop()
        before = loop.time()
        (result,) = await follower.fetch()
        assert (result.high_watermark, loop.time()) == (1, before)
        assert await follower.fetch() == []  # and the next waits
        assert loop.time() == before + 0.5

    tell(tmp_path, story)


# How long it waits


def test_39_idle_followers_ask_twice_a_second(tmp_path: Path) -> None:
    async def story(world: BucketWorld) -> None:
        world.lead(partitions=10)
        follower = BucketFollower(world, 2, partitions=range(10))
        follower.start()
        await asyncio.sleep(10.1)
        assert follower.fetches_between(0.1, 10.1) == 20
        assert all(results == [] for _, results in follower.answered[1:])
        await follower.stop()

    tell(tmp_path, story)


def test_39_a_follower_that_gets_nothing_asks_once_in_each_lag_wait(tmp_path: Path) -> None:
    async def story(world: BucketWorld) -> None:
        world.lead(replicas=(1, 2))
        follower = BucketFollower(world, 2)
        follower.start()
        world.append(batch("a"))
        await asyncio.sleep(0.1)
        for _ in range(1000):  # appends wake nobody who is behind
            world.append(batch("b"))
            await asyncio.sleep(0.001)
        assert follower.fetches_between(0.1, 1.1) == pytest.approx(200, abs=1)
        assert follower.records_bytes == 0
        await follower.stop()

    tell(tmp_path, story)


def test_39_without_a_session_a_follower_is_answered_once_in_each_lag_wait(tmp_path: Path) -> None:
    async def story(world: BucketWorld) -> None:
        world.lead()
        caught_up = BucketFollower(world, 2, has_session=False)
        behind = BucketFollower(world, 3, has_session=False)
        world.append(batch("a"))
        caught_up.ends[0] = 1
        for follower in (caught_up, behind):
            follower.start()
        await asyncio.sleep(1)
        assert caught_up.fetches_between(0, 1) == behind.fetches_between(0, 1) == pytest.approx(200, abs=1)
        for follower in (caught_up, behind):
            await follower.stop()

    tell(tmp_path, story)


@pytest.mark.parametrize("has_session", [True, False])
@pytest.mark.parametrize("refusal", ["unknown epoch", "fenced", "no epoch", "out of range"])
def test_a_refusal_is_told_at_once_and_again_fifty_times_a_second(
    tmp_path: Path, refusal: str, has_session: bool
) -> None:
    """Although others append: a follower that goes on asking does not make a loop."""
    epochs = {"unknown epoch": 6, "fenced": 4, "no epoch": -1, "out of range": 5}
    errors = {
        "unknown epoch": ErrorCode.unknown_leader_epoch,
        "fenced": ErrorCode.fenced_leader_epoch,
        "no epoch": ErrorCode.fenced_leader_epoch,
        "out of range": ErrorCode.offset_out_of_range,
    }

    async def story(world: BucketWorld) -> None:
        world.lead(leader_epoch=5, isr=(1,))
        follower = BucketFollower(world, 2, has_session=has_session)
        follower.leader_epoch = 5
        await follower.fetch()
        follower.leader_epoch = epochs[refusal]
        follower.ends[0] = 5000 if refusal == "out of range" else 0
        loop = asyncio.get_running_loop()
        before = loop.time()
        (result,) = await follower.fetch()
        assert result.error is errors[refusal]
        assert loop.time() - before == pytest.approx(0 if has_session else 0.02)
        follower.start()
        start = loop.time()
        for _ in range(1000):
            world.append(batch("a"))
            await asyncio.sleep(0.001)
        assert follower.fetches_between(start, start + 1) == pytest.approx(50, abs=1)
        assert all(each.error is errors[refusal] for _, results in follower.answered[1:] for each in results)
        assert world.partition().remote_replicas[2].log_end_offset == 0
        await follower.stop()

    tell(tmp_path, story)


def test_40_the_next_record_wakes_who_has_everything(tmp_path: Path) -> None:
    async def story(world: BucketWorld) -> None:
        world.lead()
        followers = [BucketFollower(world, broker_id, pipeline_s=0.02) for broker_id in (2, 3)]
        for follower in followers:
            follower.start()
        await asyncio.sleep(60.123)
        loop = asyncio.get_running_loop()
        before = loop.time()
        written = loop.create_task(world.produce([(T, batch("a"))], acks=-1))
        await settle()
        for follower in followers:
            follower.look()
        (result,) = await written
        assert result.error is ErrorCode.none
        assert loop.time() - before == pytest.approx(0.02, abs=0.006)
        for follower in followers:
            await follower.stop()

    tell(tmp_path, story)


def test_what_else_ends_the_wait_of_who_has_everything(tmp_path: Path) -> None:
    async def story(world: BucketWorld) -> None:
        world.lead(isr=(1, 3))
        world.append(batch("a"), batch("b"))
        other = BucketFollower(world, 3)
        follower = BucketFollower(world, 2)
        follower.ends[0] = 2
        await follower.fetch()
        assert await follower.fetch() == []
        loop = asyncio.get_running_loop()
        before = loop.time()

        waiting = follower.fetch_later()
        other.ends[0] = 2
        await other.fetch()  # commits both
        (result,) = await waiting
        assert (result.high_watermark, result.log_start_offset) == (2, 0)

        waiting = follower.fetch_later()
        world.partition().delete_records_on_leader(1)
        (result,) = await waiting
        assert (result.high_watermark, result.log_start_offset) == (2, 1)

        waiting = follower.fetch_later()
        world.place(leader_epoch=1)
        (result,) = await waiting
        assert result.error is ErrorCode.fenced_leader_epoch

        follower.leader_epoch = 1
        await follower.fetch()
        waiting = follower.fetch_later()
        world.place(leader=3, leader_epoch=2)
        (result,) = await waiting
        assert result.error is ErrorCode.fenced_leader_epoch
        assert loop.time() - before < 0.02

    tell(tmp_path, story)


def test_partitions_that_wait_shortly_do_not_keep_others_waiting_and_take_nothing_from_them(tmp_path: Path) -> None:
    """One session with a partition through the bucket that is behind, and an ordinary one."""

    async def story(world: BucketWorld) -> None:
        world.lead(partitions=2, replicas=(1, 2))
        world.partition("t", 1).leader_wal = None
        follower = BucketFollower(world, 2, partitions=(0, 1))
        world.append(batch("a"))
        await follower.fetch()
        loop = asyncio.get_running_loop()
        before = loop.time()
        assert await follower.fetch() == []
        assert loop.time() == pytest.approx(before + 0.005)  # the shorter wait
        waiting = follower.fetch_later()
        world.append(batch("b" * 3000), partition=1)
        (result,) = await waiting
        assert (result.partition, result.size_bytes) == (1, len(batch("b" * 3000)))
        assert loop.time() == pytest.approx(before + 0.005)
        stats = world.partition().topic_stats
        assert stats.sent_bytes == {("fetch", 2): result.size_bytes}

    tell(tmp_path, story)


# Sessions


def test_the_same_high_watermark_is_told_again_in_the_next_epoch(tmp_path: Path) -> None:
    """The same leader leads on: no bytes, no other high watermark, and the follower waits for an answer of the new
    epoch before it appends anything."""

    async def story(world: BucketWorld) -> None:
        world.lead(replicas=(1, 2))
        world.append(batch("a"))
        follower = BucketFollower(world, 2)
        follower.ends[0] = 1
        (result,) = await follower.fetch()
        assert result.high_watermark == 1
        assert await follower.fetch() == []
        world.place(leader_epoch=1)
        follower.leader_epoch = 1
        loop = asyncio.get_running_loop()
        before = loop.time()
        (result,) = await follower.fetch()
        assert (result.error, result.high_watermark, loop.time()) == (ErrorCode.none, 1, before)
        assert await follower.fetch() == []

    tell(tmp_path, story)


# Fallback


def test_records_are_served_when_the_bucket_has_them_not(tmp_path: Path) -> None:
    async def story(world: BucketWorld) -> None:
        world.lead(replicas=(1, 2))
        wal = world.wals[0]
        world.append(batch("a"))
        size = len(batch("a"))
        follower = BucketFollower(world, 2)
        assert [each.size_bytes for each in await follower.fetch()] == [0]
        wal.falls_back.add(2)
        assert [each.size_bytes for each in await follower.fetch()] == [size]
        assert wal.fallback_bytes == {2: size}
        assert world.partition().topic_stats.sent_bytes == {("fallback", 2): size}
        assert follower.ends[0] == 1
        waiting = follower.fetch_later()  # tells that it has it, and waits for more
        world.append(batch("b"))
        await waiting
        wal.falls_back.clear()
        world.append(batch("c"))
        await follower.fetch()
        await follower.fetch()
        assert follower.records_bytes == 2 * size
        assert wal.asked[0] == (2, 0)

    tell(tmp_path, story)


def test_when_the_bucket_is_given_up_the_next_answer_has_records(tmp_path: Path) -> None:
    async def story(world: BucketWorld) -> None:
        world.lead(replicas=(1, 2))
        world.append(batch("a"))
        follower = BucketFollower(world, 2)
        await follower.fetch()
        waiting = follower.fetch_later()
        loop = asyncio.get_running_loop()
        before = loop.time()
        world.partition().leader_wal = None
        (result,) = await waiting
        assert (result.size_bytes, loop.time()) == (len(batch("a")), before)
        assert world.partition().topic_stats.sent_bytes == {("fetch", 2): result.size_bytes}

    tell(tmp_path, story)


# The ISR


@pytest.mark.parametrize("every_ms", [1, 2, 5, 10])
def test_43_a_follower_stays_in_the_isr_under_steady_load(tmp_path: Path, every_ms: int) -> None:
    """Appends closer together than the pipeline is long: the follower never has all there was a fetch ago."""

    async def story(world: BucketWorld) -> None:
        world.lead(replicas=(1, 2))
        follower = BucketFollower(world, 2, pipeline_s=0.06)
        follower.start()
        await load(world, [follower], every_s=every_ms / 1000, seconds=3 * LAG_MS / 1000)
        assert world.proposed == []
        partition = world.partition()
        lag_ms = world.now_ms - partition.remote_replicas[2].last_caught_up_time_ms
        assert lag_ms < 200
        assert partition.log.high_watermark < partition.log.log_end_offset  # it was never caught up
        await follower.stop()

    tell(tmp_path, story)


@pytest.mark.parametrize("every_ms", [1, 2, 5, 10])
def test_43_who_is_out_joins_under_steady_load(tmp_path: Path, every_ms: int) -> None:
    """The leader alone is in sync, so its log end is its high watermark, until it waits for who is about to join."""

    async def story(world: BucketWorld) -> None:
        world.lead(replicas=(1, 2), isr=(1,))
        follower = BucketFollower(world, 2, pipeline_s=0.06)
        await load(world, [follower], every_s=0.01, seconds=0.2)
        assert world.partition().log.high_watermark == world.partition().log.log_end_offset
        follower.start()
        await load(world, [follower], every_s=every_ms / 1000, seconds=0.5)
        assert world.proposed == [(1, 2)]
        assert world.partition().isr == (1, 2)
        await follower.stop()

    tell(tmp_path, story)


def test_43_a_reassignment_can_complete_under_steady_load(tmp_path: Path) -> None:
    """The controller waits for the joining replica to be in sync."""

    async def story(world: BucketWorld) -> None:
        world.lead(replicas=(1, 2))
        followers = [BucketFollower(world, 2), BucketFollower(world, 3, pipeline_s=0.09)]
        followers[0].start()
        await load(world, followers, every_s=0.005, seconds=0.3)
        world.place(replicas=(1, 2, 3), adding_replicas=(3,), removing_replicas=(2,))
        assert world.partition().is_reassigning
        followers[1].start()
        await load(world, followers, every_s=0.005, seconds=0.5)
        assert set(world.partition().isr) == {1, 2, 3}
        for follower in followers:
            await follower.stop()

    tell(tmp_path, story)


def test_43_who_gets_nothing_leaves_after_the_lag_time_and_not_before(tmp_path: Path) -> None:
    """It goes on fetching, every few milliseconds: fetches alone are no progress."""

    async def story(world: BucketWorld) -> None:
        world.lead(replicas=(1, 2))
        follower = BucketFollower(world, 2)
        follower.start()
        await load(world, [follower], every_s=0.01, seconds=1)
        follower.is_bucket_open = False
        await load(world, [follower], every_s=0.01, seconds=LAG_MS / 1000 - 0.2)
        assert world.partition().isr == (1, 2)
        await load(world, [follower], every_s=0.01, seconds=LAG_MS / 1000)
        assert world.proposed == [(1,)]
        follower.is_bucket_open = True
        await load(world, [follower], every_s=0.01, seconds=1)
        assert world.proposed == [(1,), (1, 2)]
        await follower.stop()

    tell(tmp_path, story)


def test_44_too_few_in_sync_replicas_refuse_acks_all(tmp_path: Path) -> None:
    async def story(world: BucketWorld) -> None:
        world.lead(replicas=(1, 2), isr=(1,), configs={"min.insync.replicas": "2"})
        (refused,) = await world.produce([(T, batch("a"))], acks=-1)
        assert refused.error is ErrorCode.not_enough_replicas
        (written,) = await world.produce([(T, batch("a"))], acks=1)
        assert written.error is ErrorCode.none
        assert world.wals[0].appended_bytes == [len(batch("a"))]

    tell(tmp_path, story)
