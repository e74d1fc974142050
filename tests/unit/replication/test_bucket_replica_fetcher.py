import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker.common.errors import ErrorCode, NotLeaderOrFollowerError, UnknownLeaderEpochError
from broker.common.identifiers import TopicPartition
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.log.producer_snapshot import encode_snapshot
from broker.replication.bucket_replica_fetcher import REST_SECONDS, SETTLED_REST_SECONDS
from broker.replication.fetch_params import EpochEndOffset
from broker.replication.leader_endpoint import FetchedPartition, FollowerFetch, LeaderUnavailableError
from broker.replication.leader_local_start import LeaderLocalStart
from broker.replication.remote_log import RemoteLogState
from broker.replication.topic_stats import ReplicationPath
from tests.support.builders import settle
from tests.support.sim_loop import SimLoop, simulate
from tests.support.tiered_topics import TIERED, TIERING
from tests.unit.replication.bucket_world import BucketFetcherWorld, some, told
from tests.unit.replication.follower_world import T, records

Story = Callable[[BucketFetcherWorld], Awaitable[None]]


def tell(
    tmp_path: Path,
    story: Story,
    properties: dict[str, str] | None = None,
    configs: dict[str, str] | None = None,
) -> None:
    async def run(loop: SimLoop) -> None:
        await story(BucketFetcherWorld(tmp_path, properties, configs))

    simulate(run)


def now() -> float:
    return asyncio.get_running_loop().time()


async def asked(world: BucketFetcherWorld) -> "asyncio.Future[None]":
    """A round whose fetch is under way."""
    round_ = asyncio.ensure_future(world.fetcher.work_once())
    await settle()
    return round_


def fallback_bytes(world: BucketFetcherWorld) -> int:
    return world.partition().topic_stats.received_bytes.get((ReplicationPath.FALLBACK, 2), 0)


def test_an_empty_answer_brings_offsets_and_the_handshake_and_leads_to_the_next_fetch(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()
        await world.round(high_watermark=1, log_start_offset=0)
        assert (state.is_agreed, told(state)) == (True, [(1, 0)])
        assert (world.partition().log.high_watermark, state.lag, state.leader_high_watermark) == (1, 0, 1)
        before = now()
        await world.round(high_watermark=4)  # the leader holds it back as long as it sees fit
        assert (now(), state.is_ready(now()), state.lag) == (before, True, 3)
        assert world.leader.waits_ms == [500, 500]
        assert fallback_bytes(world) == 0

    tell(tmp_path, story)


def test_an_answer_that_appends_have_overtaken_still_counts(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()
        await world.round(high_watermark=1)
        round_ = await asked(world)
        state.append(some(1, "b", "c"))
        state.append(some(3, "d"))
        world.leader.answer_one(high_watermark=9, log_start_offset=1)
        await round_
        log = world.partition().log
        assert (log.log_end_offset, log.high_watermark, log.log_start_offset) == (4, 4, 1)
        assert (state.lag, state.is_agreed, world.leader.begun_anew) == (5, True, 0)
        assert told(state) == [(1, 0), (1, 1)]
        await world.round(high_watermark=9, log_start_offset=1)
        assert world.leader.asked[-1][T].fetch_offset == 4
        state.append(some(4, "e"))
        assert log.high_watermark == 5  # the leader has told of it already

    tell(tmp_path, story)


def test_the_leader_is_told_of_an_append_when_the_fetch_under_way_returns(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()
        task = asyncio.ensure_future(world.fetcher.run())
        await settle()
        state.append(some(1, "b"))
        await asyncio.sleep(1)
        assert [each[T].fetch_offset for each in world.leader.asked] == [1]
        before = now()
        world.leader.answer_one(high_watermark=1)
        await settle()
        assert [each[T].fetch_offset for each in world.leader.asked] == [1, 2]
        assert now() == before
        task.cancel()

    tell(tmp_path, story)


def test_an_append_does_not_end_a_delay_early(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()
        task = asyncio.ensure_future(world.fetcher.run())
        world.leader.answer_one(error=ErrorCode.unknown_leader_epoch)
        await settle()
        state.append(some(1, "b"))
        await asyncio.sleep(0.049)
        assert len(world.leader.asked) == 1
        await asyncio.sleep(0.002)
        assert world.leader.asked[1][T].fetch_offset == 2
        task.cancel()

    tell(tmp_path, story)


def test_records_of_the_leader_are_taken_and_counted_as_fallback(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()
        sent = records(1, "b", "c")
        await world.round(records=sent, high_watermark=2)
        assert (world.partition().log.log_end_offset, state.lag) == (3, 0)
        # They are the leader's own: the handshake holds behind them.
        assert (state.is_agreed, told(state), state.is_served_by_leader) == (True, [(3, 0)], True)
        assert (fallback_bytes(world), world.stats.bytes) == (len(sent), len(sent))
        await world.round(high_watermark=3)
        assert not state.is_served_by_leader

    tell(tmp_path, story)


def test_records_that_appends_have_overtaken_are_taken_from_the_log_end_on(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()
        await world.round(high_watermark=1)
        round_ = await asked(world)
        state.append(some(1, "b", "c"))
        sent = records(1, "b", "c") + records(3, "d") + records(4, "e") + records(5, "cut off")[:30]
        world.leader.answer_one(records=sent, high_watermark=5)
        await round_
        log = world.partition().log
        assert (log.log_end_offset, log.high_watermark, state.fetch_offset) == (5, 5, 5)
        assert told(state) == [(1, 0), (5, 0)]
        assert fallback_bytes(world) == len(sent) - 30
        assert state.is_ready(now())

    tell(tmp_path, story)


def test_records_that_are_all_known_are_dropped_and_the_rest_asked_for_at_once(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()
        await world.round(high_watermark=1)
        for sent in (records(1, "b"), records(1, "b")[:30], records(1, "b") + records(9, "behind a hole")):
            round_ = await asked(world)
            state.append(some(state.fetch_offset, "x"))
            world.leader.answer_one(records=sent, high_watermark=3)
            await round_
            assert (state.is_ready(now()), world.failed) == (True, [])
        assert world.partition().log.log_end_offset == 4
        assert world.partition().log.high_watermark == 3

    tell(tmp_path, story)


def test_a_batch_around_the_log_end_is_corrupt(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()
        await world.round(high_watermark=1)
        round_ = await asked(world)
        state.append(some(1, "b"))
        world.leader.answer_one(records=records(1, "x", "y"), high_watermark=3)
        await round_
        assert (world.partition().log.log_end_offset, world.partition().log.high_watermark) == (2, 1)
        assert (state.delayed_until, world.failed) == (now() + 1, [])

    tell(tmp_path, story)


def test_a_diverging_answer_cuts_and_nothing_else(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        world.replica().append(records(1, "b") + records(2, "c"))
        state = world.follow()
        await world.round(
            diverging_epoch=EpochEndOffset(0, 1), high_watermark=3, log_start_offset=1, records=records(3, "x")
        )
        log = world.partition().log
        assert (log.log_end_offset, log.high_watermark, log.log_start_offset) == (1, 0, 0)
        assert (told(state), state.is_agreed, state.leader_high_watermark) == (["truncated"], False, -1)
        assert world.leader.begun_anew == 1
        await world.round(high_watermark=1)
        assert (told(state), state.is_agreed) == ([(1, 0)], True)

    tell(tmp_path, story)


def test_a_divergence_that_cuts_nothing_is_told_and_not_repeated_at_once(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()
        await world.round(diverging_epoch=EpochEndOffset(0, 1))
        assert told(state) == ["truncated"]
        assert state.delayed_until - now() == pytest.approx(0.02)

    tell(tmp_path, story, {"replica.fetch.backoff.ms": "0"})


@pytest.mark.parametrize(
    "error", [ErrorCode.not_leader_or_follower, ErrorCode.unknown_leader_epoch, ErrorCode.unknown_server_error]
)
def test_refusals_are_never_repeated_at_once(tmp_path: Path, error: ErrorCode) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()
        for _ in range(3):
            await world.round(error=error, high_watermark=1)
            assert state.delayed_until - now() >= 0.0199
            await world.fetcher.work_once()
        assert (told(state), world.partition().log.high_watermark) == ([], 0)

    tell(tmp_path, story, {"replica.fetch.backoff.ms": "0"})


def test_an_answer_of_another_epoch_is_dropped_whole(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()
        round_ = await asked(world)
        world.place(leader=2, leader_epoch=1)
        later = world.follow()
        world.leader.answer_one(high_watermark=1, log_start_offset=1)
        await round_
        log = world.partition().log
        assert (log.high_watermark, log.log_start_offset, world.leader.begun_anew) == (0, 0, 1)
        assert (told(state), told(later), later.is_agreed) == (["stop"], [], False)

    tell(tmp_path, story)


def test_an_answer_to_what_was_asked_before_a_truncation_is_dropped_whole(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        world.replica().append(records(1, "b"))
        state = world.follow()
        round_ = await asked(world)
        state.append(some(2, "c"))
        state.truncate_to(2)
        world.leader.answer_one(high_watermark=2, records=records(2, "x"))
        await round_
        log = world.partition().log
        assert (log.log_end_offset, log.high_watermark) == (2, 0)
        assert (told(state), world.leader.begun_anew) == (["truncated"], 1)

    tell(tmp_path, story)


def test_what_an_answer_leaves_out_counts_until_the_handshake(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()
        world.partition().log.update_high_watermark(1)
        world.partition().log.maybe_increment_log_start_offset(1, "test")
        for expected in ([(1, 1)], [], []):
            world.leader.answer({})
            await world.fetcher.work_once()
            assert told(state) == expected
        assert state.is_agreed
        await world.round(diverging_epoch=EpochEndOffset(0, 1))
        world.leader.answer({})
        await world.fetcher.work_once()
        assert told(state) == ["truncated", (1, 1)]

    tell(tmp_path, story)


def test_what_an_answer_leaves_out_is_no_handshake_for_another_offset_or_epoch(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        world.create_topic("other", replicas=(2, 1), leader=2)
        state, gone = world.follow(), world.follow("other")
        round_ = await asked(world)
        state.append(some(1, "b"))  # a bug of somebody: before the handshake
        world.fetcher.remove(TopicPartition("other", 0))
        world.leader.answer({})
        await round_
        assert (told(state), state.is_agreed) == ([(1, 0)], False)
        assert told(gone) == ["truncated", "stop"]
        round_ = await asked(world)
        world.place(leader=2, leader_epoch=1)
        world.leader.answer({})
        await round_
        assert told(state) == []

    tell(tmp_path, story)


def test_out_of_range_excludes_appends_until_the_place_is_found(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()
        refused = []

        async def latest_offset(topic_partition: TopicPartition, leader_epoch: int) -> int:
            assert told(state) == ["begin_reset"]
            with pytest.raises(NotLeaderOrFollowerError) as caught:
                state.append(some(1, "b"))
            refused.append(caught.value)
            return 9

        world.leader.latest_offset = latest_offset  # type: ignore[method-assign]
        world.leader.earliest = 5
        await world.round(error=ErrorCode.offset_out_of_range)
        log = world.partition().log
        assert (len(refused), log.log_start_offset, log.log_end_offset) == (1, 5, 5)
        assert (told(state), state.is_resetting, state.is_agreed) == (["truncated", "end_reset"], False, False)
        world.leader.answer({})
        await world.fetcher.work_once()
        assert (told(state), state.append(some(5, "f"))) == ([(5, 5)], 6)

    tell(tmp_path, story)


def test_out_of_range_that_appends_have_overtaken_cuts_nothing(tmp_path: Path) -> None:
    """It was asked at 1, the leader begins at 2, and meanwhile the bucket has brought us to 3, which may count for
    the leader's high watermark."""

    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()
        await world.round(high_watermark=1)
        round_ = await asked(world)
        state.append(some(1, "b", "c"))
        world.leader.earliest, world.leader.latest = 2, 5
        world.leader.answer_one(error=ErrorCode.offset_out_of_range)
        await round_
        assert (world.partition().log.log_end_offset, state.fetch_offset, state.lag) == (3, 3, 2)
        assert told(state) == [(1, 0), "begin_reset", "end_reset"]
        assert not state.is_agreed
        assert state.delayed_until - now() == pytest.approx(0.05)

    tell(tmp_path, story)


MOVED = ErrorCode.offset_moved_to_tiered_storage


def test_nothing_is_appended_while_the_log_is_to_begin_behind_remote_storage(tmp_path: Path) -> None:
    """Then the handshake is due again, and the bucket brings what follows."""

    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()
        await world.round(high_watermark=1)
        assert told(state) == [(1, 0)]
        world.leader.earliest_local = LeaderLocalStart(0, 90)
        await world.round(error=MOVED, high_watermark=100, log_start_offset=20)
        round_ = asyncio.ensure_future(world.fetcher.work_once())
        await settle()
        assert (told(state), state.is_ready(now())) == (["begin_reset"], False)
        with pytest.raises(NotLeaderOrFollowerError):
            state.append(some(1, "b"))
        found = RemoteLogState(90, (EpochEntry(0, 20),), encode_snapshot(()))
        world.remote_log.state_questions[0].answer.set_result(found)
        await round_
        assert (told(state), state.is_agreed) == (["truncated", "end_reset"], False)
        await world.round(high_watermark=100, log_start_offset=20)
        asked = world.leader.asked[-1][T]
        assert (asked.fetch_offset, asked.last_fetched_epoch, asked.log_start_offset) == (90, 0, 20)
        assert (told(state), state.append(some(90, "b"))) == ([(90, 20)], 91)

    tell(tmp_path, story, dict(TIERING), dict(TIERED))


def test_a_follower_that_has_come_to_the_leaders_disk_by_the_bucket_is_not_cut(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()
        await world.round(high_watermark=1)
        round_ = await asked(world)
        state.append(some(1, "b", "c"))
        world.leader.earliest_local = LeaderLocalStart(0, 2)
        world.leader.answer_one(error=MOVED, high_watermark=5)
        await round_
        world.leader.answer({})
        await world.fetcher.work_once()
        assert told(state) == [(1, 0), "begin_reset", "end_reset", (3, 0)]
        assert world.partition().log.log_end_offset == 3
        assert world.remote_log.state_questions == []

    tell(tmp_path, story, dict(TIERING), dict(TIERED))


def test_waiting_for_remote_storage_is_no_reason_to_ask_without_a_rest(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        world.follow()
        world.create_topic("u", replicas=(2, 1), leader=2)
        world.follow("u")
        world.leader.earliest_local = LeaderLocalStart(0, 90)
        world.leader.answer({T: FetchedPartition(MOVED, high_watermark=100, log_start_offset=20)})
        await world.fetcher.work_once()
        world.leader.answer({})  # u is agreed on by it
        await world.fetcher.work_once()
        before = now()
        world.leader.answer({})
        await world.fetcher.work_once()
        assert now() - before == pytest.approx(REST_SECONDS)

    tell(tmp_path, story, dict(TIERING), dict(TIERED))


@pytest.mark.parametrize("failure", [LeaderUnavailableError("gone"), UnknownLeaderEpochError("not yet")])
def test_a_reset_ends_also_when_the_place_is_not_found(tmp_path: Path, failure: Exception) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()
        world.leader.latest = failure
        await world.round(error=ErrorCode.offset_out_of_range)
        assert told(state) == ["begin_reset", "end_reset"]
        assert (state.is_resetting, state.is_ready(now())) == (False, False)

    tell(tmp_path, story)


def test_a_partition_that_is_left_during_its_reset_hears_nothing_more(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()

        async def latest_offset(topic_partition: TopicPartition, leader_epoch: int) -> int:
            world.fetcher.remove(T)
            return 0

        world.leader.latest_offset = latest_offset  # type: ignore[method-assign]
        await world.round(error=ErrorCode.offset_out_of_range)
        assert told(state) == ["begin_reset", "stop"]
        assert world.partition().log.log_end_offset == 1

    tell(tmp_path, story)


def test_the_throttle_holds_back_only_whom_the_leader_serves(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        configs = {"follower.replication.throttled.replicas": "0:1"}
        world.create_topic("slow", replicas=(2, 1), leader=2, configs=configs)
        slow = TopicPartition("slow", 0)
        world.follow("slow")
        world.throttle.record(1_000_000)
        sent = records(0, "a")
        world.leader.answer({slow: FetchedPartition(high_watermark=9, log_start_offset=0)})
        await world.fetcher.work_once()
        world.leader.answer({slow: FetchedPartition(records=sent, high_watermark=9, log_start_offset=0)})
        await world.fetcher.work_once()
        begun = now()
        await world.fetcher.work_once()  # nothing to ask for
        assert now() - begun == pytest.approx(0.1)
        assert len(world.leader.asked) == 2

    tell(tmp_path, story, {"follower.replication.throttled.rate": "1000"})


def test_a_state_that_is_followed_already_is_stopped_and_the_first_one_stays(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        first = world.follow()
        second = world.follow()
        assert (list(world.fetcher), told(first), told(second)) == ([first], [], ["stop"])
        world.leader.answer({})
        await world.fetcher.work_once()
        assert (told(first), told(second)) == ([(1, 0)], [])

    tell(tmp_path, story)


def test_the_handshake_is_told_to_a_follower_that_appends_at_once(tmp_path: Path) -> None:
    """What it has waiting goes into the log within the call; the offset of the next fetch is behind it."""

    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()
        follower = state.follower

        def answered(request: FollowerFetch, leader_log_start_offset: int) -> None:
            state.append(some(state.fetch_offset, "b"))

        follower.answered = answered  # type: ignore[method-assign]
        await world.round(high_watermark=3, records=records(1, "from the leader"))
        assert world.partition().log.log_end_offset == 3
        world.leader.answer({})
        await world.fetcher.work_once()
        assert world.leader.asked[-1][T].fetch_offset == 3
        assert world.partition().log.high_watermark == 3

    tell(tmp_path, story)


def test_without_news_it_rests_until_something_is_appended(tmp_path: Path) -> None:
    """The leader answers after milliseconds while we are behind, and would say nothing again and again."""

    async def story(world: BucketFetcherWorld) -> None:
        state = world.follow()
        await world.round(high_watermark=0)
        round_ = await asked(world)
        before = now()
        world.leader.answer({})
        await round_
        assert now() == pytest.approx(before + REST_SECONDS)
        round_ = await asked(world)
        before = now()
        world.leader.answer({})
        await settle()
        assert not round_.done()
        state.append(some(1, "b"))
        await round_
        assert now() == before
        round_ = await asked(world)
        assert world.leader.asked[-1][T].fetch_offset == 2
        world.leader.answer_one(high_watermark=1)
        await round_
        assert now() == before  # news: the next fetch waits at the leader for more

    tell(tmp_path, story)


def test_it_rests_for_longer_once_the_leader_has_committed_all_that_is_here(tmp_path: Path) -> None:
    """With or without news: its high watermark is held by us, or above what we have."""

    async def story(world: BucketFetcherWorld) -> None:
        world.create_topic("u", replicas=(2, 1), leader=2)
        state, empty = world.follow(), world.follow("u")
        first = FetchedPartition(high_watermark=0)
        world.leader.answer({T: first, empty.topic_partition: first})
        before = now()
        await world.fetcher.work_once()
        assert now() == before
        for answer in ({T: FetchedPartition(high_watermark=1)}, {}):
            world.leader.answer(answer)
            await world.fetcher.work_once()
            assert now() == pytest.approx(before + SETTLED_REST_SECONDS)
            before = now()
        round_ = await asked(world)
        world.leader.answer({})
        await settle()
        state.append(some(1, "b"))
        await round_
        assert now() == before
        await world.round(high_watermark=3)
        await world.round(high_watermark=3)  # it has more for us, and who is not in sync hears of still more
        assert now() == before

    tell(tmp_path, story)


def test_a_partition_that_is_due_again_ends_the_longer_rest(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        world.create_topic("u", replicas=(2, 1), leader=2)
        state, empty = world.follow(), world.follow("u")
        world.leader.answer(
            {T: FetchedPartition(high_watermark=1), empty.topic_partition: FetchedPartition(high_watermark=0)}
        )
        await world.fetcher.work_once()
        before = now()
        world.leader.answer({T: FetchedPartition(ErrorCode.unknown_leader_epoch)})
        await world.fetcher.work_once()
        assert now() == pytest.approx(state.delayed_until)
        assert now() - before < SETTLED_REST_SECONDS

    tell(tmp_path, story)


def test_who_is_served_by_the_leader_asks_on(tmp_path: Path) -> None:
    async def story(world: BucketFetcherWorld) -> None:
        world.follow()
        await world.round(high_watermark=1)
        before = now()
        await world.round(records=records(1, "b"), high_watermark=2)
        assert now() == before

    tell(tmp_path, story)
