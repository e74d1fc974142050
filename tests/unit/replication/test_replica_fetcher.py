import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from broker.common.buffers import Buffer
from broker.common.errors import (
    ErrorCode,
    FencedLeaderEpochError,
    ReplicaNotAvailableError,
    StorageFailure,
    UnknownLeaderEpochError,
)
from broker.common.identifiers import TopicPartition
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.log.log_append import LogAppendInfo
from broker.log.producer_snapshot import encode_snapshot
from broker.replication.fetch_params import EpochEndOffset
from broker.replication.follower_replica import FollowerReplica
from broker.replication.leader_endpoint import (
    FetchedPartition,
    FetchSessionError,
    FollowerFetch,
    LeaderUnavailableError,
)
from broker.replication.leader_local_start import LeaderLocalStart
from broker.replication.partition_fetch_state import FIRST_RETRY_SECONDS, PartitionFetchState
from broker.replication.remote_log import RemoteLogState
from broker.replication.tier_state import BUILDS_AT_ONCE_MAX
from tests.support.builders import settle
from tests.support.sim_loop import SimLoop, simulate
from tests.support.tiered_topics import TIERED, TIERING
from tests.unit.replication.follower_world import FetcherWorld, T, records

Story = Callable[[FetcherWorld], Awaitable[None]]


def tell(
    tmp_path: Path,
    story: Story,
    properties: dict[str, str] | None = None,
    configs: dict[str, str] | None = None,
) -> None:
    async def run(loop: SimLoop) -> None:
        await story(FetcherWorld(tmp_path, properties, configs))

    simulate(run)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_records_and_offsets_of_the_leader_are_taken_over(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        state = world.follow()
        sent = records(0, "a", "b", "c")
        await world.round(records=sent, high_watermark=2, log_start_offset=1)
        log = world.partition().log
        assert (log.log_end_offset, log.high_watermark, log.log_start_offset) == (3, 2, 1)
        assert (state.fetch_offset, state.last_fetched_epoch, state.lag) == (3, 0, 0)
        assert (world.stats.requests, world.stats.bytes) == (1, len(sent))
        await world.round(high_watermark=7)
        assert (log.high_watermark, state.lag) == (3, 4)
        asked = world.leader.asked[1][T]
        assert (asked.fetch_offset, asked.last_fetched_epoch, asked.log_start_offset) == (3, 0, 1)
        assert world.leader.waits_ms == [500, 500]

    tell(tmp_path, story)


def test_time_that_passes_within_a_round_ends_no_delay_unseen(tmp_path: Path) -> None:
    """uvloop's timers come up to half a millisecond early: a round may begin just before a delay ends."""

    async def story(world: FetcherWorld) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        world.follow()
        await world.round(error=ErrorCode.unknown_leader_epoch)
        loop.seconds_per_look = 0.75 * FIRST_RETRY_SECONDS
        world.leader.answer_one()
        for _ in range(3):
            await world.fetcher.work_once()
            if len(world.leader.asked) == 2:
                return
        raise AssertionError("it was not asked for again")

    tell(tmp_path, story)


def test_a_log_without_epochs_is_cut_to_what_is_committed(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        replica = world.replica()
        replica.append(records(0, "a", "b") + records(2, "c"))
        replica.update_offsets(2, 0)
        world.partition().log.leader_epochs.clear()
        state = world.follow()
        await world.round(high_watermark=2)
        assert (state.fetch_offset, world.partition().log.log_end_offset) == (2, 2)

    tell(tmp_path, story)


def test_a_diverging_answer_cuts_and_nothing_else(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        world.replica().append(records(0, "a") + records(1, "b") + records(2, "c"))
        state = world.follow()
        await world.round(
            diverging_epoch=EpochEndOffset(0, 1), high_watermark=9, log_start_offset=1, records=records(3, "x")
        )
        log = world.partition().log
        assert (log.log_end_offset, log.high_watermark, log.log_start_offset) == (1, 0, 0)
        assert (state.fetch_offset, state.lag, state.is_ready(now())) == (1, None, True)
        assert world.leader.begun_anew == 1  # the leader takes its high watermark for told
        await world.round(diverging_epoch=EpochEndOffset(0, 1))  # cuts nothing: ask no faster than that
        assert state.delayed_until == now() + 1

    tell(tmp_path, story)


def test_a_log_cut_within_a_batch_is_fetched_from_where_it_ends(tmp_path: Path) -> None:
    """The leader's log begins at 3, within a batch that we have from another leader: it knows of nothing below that."""

    async def story(world: FetcherWorld) -> None:
        world.place(leader=2, leader_epoch=5)
        world.replica().append(records(0, "a") + records(1, "b", "c", "d", "e"))
        state = world.follow()
        await world.round(diverging_epoch=EpochEndOffset(0, 3))
        assert (state.fetch_offset, world.partition().log.log_end_offset) == (1, 1)
        world.leader.earliest, world.leader.latest = 3, 6
        await world.round(error=ErrorCode.offset_out_of_range)
        assert world.leader.asked[-1][T].fetch_offset == 1
        log = world.partition().log
        assert (state.fetch_offset, log.log_start_offset, log.log_end_offset) == (3, 3, 3)
        await world.round(records=records(2, "x", "y", "z", "zz", epoch=5), high_watermark=6, log_start_offset=3)
        assert (state.fetch_offset, log.log_start_offset, log.high_watermark) == (6, 3, 6)

    tell(tmp_path, story)


def test_an_unknown_epoch_of_the_leader_is_cut_to_the_one_before(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        world.place(leader=2, leader_epoch=5)
        world.replica().append(records(0, "a") + records(1, "b", epoch=3) + records(2, "c", epoch=3))
        state = world.follow()
        await world.round(diverging_epoch=EpochEndOffset(2, 2))
        assert (state.fetch_offset, state.last_fetched_epoch) == (1, 0)

    tell(tmp_path, story)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.unknown_leader_epoch,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    ],
)
def test_a_leader_that_lags_is_asked_again_soon_and_then_each_second(tmp_path: Path, error: ErrorCode) -> None:
    async def story(world: FetcherWorld) -> None:
        state = world.follow()
        delays = []
        for _ in range(7):
            await world.round(error=error)
            delays.append(round(state.delayed_until - now(), 3))
            await world.fetcher.work_once()  # nothing is ready: it waits
        assert delays == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
        assert world.failed == []

    tell(tmp_path, story)


@pytest.mark.parametrize("error", [ErrorCode.unknown_server_error, ErrorCode.kafka_storage_error])
def test_other_refusals_wait_for_the_back_off(tmp_path: Path, error: ErrorCode) -> None:
    async def story(world: FetcherWorld) -> None:
        state = world.follow()
        await world.round(error=error)
        assert state.delayed_until == now() + 0.25
        assert world.failed == []

    tell(tmp_path, story, {"replica.fetch.backoff.ms": "250"})


def test_a_fenced_partition_is_given_up(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        world.follow()
        await world.round(error=ErrorCode.fenced_leader_epoch)
        assert [partition for partition, _ in world.failed] == [T]
        assert len(world.fetcher) == 0

    tell(tmp_path, story)


def test_an_answer_for_another_epoch_or_another_state_is_dropped(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        world.follow()
        round_ = asyncio.ensure_future(world.fetcher.work_once())
        await settle()
        world.place(leader=2, leader_epoch=1)
        state = world.follow()
        world.leader.answer_one(records=records(0, "old epoch"), high_watermark=1)
        await round_
        assert (world.partition().log.log_end_offset, world.partition().log.high_watermark) == (0, 0)
        assert world.leader.begun_anew == 1
        round_ = asyncio.ensure_future(world.fetcher.work_once())
        await settle()
        world.fetcher.remove(T)
        world.leader.answer_one(records=records(0, "left", epoch=1), high_watermark=1)
        await round_
        assert world.partition().log.log_end_offset == 0
        assert not state.awaits(world.leader.asked[-1][T])

    tell(tmp_path, story)


def test_adding_again_in_the_same_epoch_keeps_the_state(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        state = world.follow()
        assert world.follow() is not state
        assert list(world.fetcher) == [state]
        world.place(leader=2, leader_epoch=1)
        later = world.follow()
        assert list(world.fetcher) == [later]

    tell(tmp_path, story)


def test_an_unreachable_leader_delays_all_and_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def story(world: FetcherWorld) -> None:
        state = world.follow()
        for _ in range(2):
            world.leader.answer(LeaderUnavailableError("refused"))
            await world.fetcher.work_once()
            assert state.delayed_until == now() + 1
            await world.fetcher.work_once()
        await world.round()
        world.leader.answer(LeaderUnavailableError("refused"))
        await world.fetcher.work_once()

    tell(tmp_path, story)
    said = [line for line in capsys.readouterr().out.splitlines() if "leader_unavailable" in line]
    assert [("warning" in line, "debug" in line) for line in said] == [(True, False), (False, True), (True, False)]


def test_a_lost_session_is_tried_again_at_once_and_then_after_a_pause(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        state = world.follow()
        begun = now()
        for _ in range(3):
            world.leader.answer(FetchSessionError(ErrorCode.fetch_session_id_not_found))
            await world.fetcher.work_once()
        assert now() - begun == 2.0
        assert state.is_ready(now())
        world.leader.answer(FetchSessionError(ErrorCode.fetch_session_topic_id_error))
        await world.fetcher.work_once()
        assert state.delayed_until == now() + 1

    tell(tmp_path, story)


def test_corrupt_records_are_asked_for_again_later(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        state = world.follow()
        damaged = bytearray(records(0, "a"))
        damaged[-1] ^= 1
        await world.round(records=bytes(damaged), high_watermark=1)
        assert (state.fetch_offset, state.delayed_until) == (0, now() + 1)
        await world.fetcher.work_once()
        await world.round(records=records(0, "a"), high_watermark=1)
        assert world.partition().log.log_end_offset == 1

    tell(tmp_path, story)


def test_bytes_that_hold_no_whole_batch_are_not_asked_for_at_once(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        state = world.follow()
        await world.round(records=records(0, "a")[:20], high_watermark=0)
        assert (state.fetch_offset, state.delayed_until) == (0, now() + 1)
        await world.fetcher.work_once()
        await world.round(records=records(0, "of a later epoch", epoch=1))
        assert (state.fetch_offset, state.is_ready(now())) == (0, False)

    tell(tmp_path, story)


def test_a_disk_that_refuses_fails_its_partition_alone(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        class Refusing(FollowerReplica):
            def append(self, records: Buffer, leader_log_start_offset: int = -1) -> LogAppendInfo:
                raise StorageFailure("full")

        world.create_topic("other", replicas=(2, 1), leader=2)
        world.fetcher.add(PartitionFetchState(Refusing(world.partition(), 0)))
        world.fetcher.add(PartitionFetchState(FollowerReplica(world.partition("other"), 0)))
        other = TopicPartition("other", 0)
        world.leader.answer(
            {
                T: FetchedPartition(records=records(0, "a"), high_watermark=1, log_start_offset=0),
                other: FetchedPartition(records=records(0, "b"), high_watermark=1, log_start_offset=0),
            }
        )
        await world.fetcher.work_once()
        assert [(partition, type(error)) for partition, error in world.failed] == [(T, StorageFailure)]
        assert world.partition("other").log.log_end_offset == 1
        assert [state.topic_partition for state in world.fetcher] == [other]

    tell(tmp_path, story)


def test_out_of_range_asks_the_leader_what_it_has(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        state = world.follow()
        world.leader.earliest, world.leader.latest = 5, 9
        await world.round(error=ErrorCode.offset_out_of_range)
        assert (state.fetch_offset, state.lag, world.partition().log.log_start_offset) == (5, 4, 5)
        world.leader.latest = LeaderUnavailableError("gone")
        await world.round(error=ErrorCode.offset_out_of_range)
        assert state.delayed_until == now() + 1

    tell(tmp_path, story)


def test_out_of_range_and_a_refusal_of_the_question(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        state = world.follow()
        world.leader.latest = UnknownLeaderEpochError("not yet")
        await world.round(error=ErrorCode.offset_out_of_range)
        assert state.delayed_until == pytest.approx(now() + 0.05)
        await world.fetcher.work_once()
        world.leader.latest = FencedLeaderEpochError("past")
        await world.round(error=ErrorCode.offset_out_of_range)
        assert [partition for partition, _ in world.failed] == [T]

    tell(tmp_path, story)


U = TopicPartition("u", 0)
MOVED = ErrorCode.offset_moved_to_tiered_storage


TIERED_FROM_90 = LeaderLocalStart(0, 90)  # the leader's disk begins there


def test_the_others_go_on_while_one_begins_behind_remote_storage(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        world.leader.earliest_local = TIERED_FROM_90
        world.create_topic("u", replicas=(2, 1), leader=2)
        partition = world.partition("u")
        state, other = world.follow(), PartitionFetchState(FollowerReplica(partition, partition.leader_epoch))
        world.fetcher.add(other)
        answer = FetchedPartition(MOVED, high_watermark=100, log_start_offset=20)
        world.leader.answer({T: answer, U: FetchedPartition(records=records(0, "a"), high_watermark=1)})
        await world.fetcher.work_once()
        for offset in (1, 2):
            world.leader.answer({U: FetchedPartition(records=records(offset, "a"), high_watermark=1)})
            await world.fetcher.work_once()
            assert list(world.leader.asked[-1]) == [U]
        asking = asyncio.ensure_future(world.fetcher.work_once())  # the leader has nothing, and waits
        await settle()
        world.remote_log.state_questions[0].answer.set_result(
            RemoteLogState(90, (EpochEntry(0, 20),), encode_snapshot(()))
        )
        await asking  # what is new interrupts it
        assert (state.fetch_offset, state.last_fetched_epoch, state.lag, other.fetch_offset) == (90, 0, 10, 3)
        world.leader.answer({T: FetchedPartition(records=records(90, "b"), high_watermark=91, log_start_offset=30)})
        await world.fetcher.work_once()
        assert world.leader.asked[-1].keys() == {T, U}
        log = world.partition().log
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (30, 90, 91)

    tell(tmp_path, story, dict(TIERING), dict(TIERED))


def test_the_leader_does_not_wait_for_records_while_there_is_more_to_ask_it(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        world.create_topic("v", partitions=BUILDS_AT_ONCE_MAX + 1, replicas=(2, 1), leader=2, configs=TIERED)
        world.create_topic("u", replicas=(2, 1), leader=2)
        partitions = [world.partition("v", number) for number in range(BUILDS_AT_ONCE_MAX + 1)]
        for partition in (*partitions, world.partition("u")):
            world.fetcher.add(PartitionFetchState(FollowerReplica(partition, partition.leader_epoch)))
        world.leader.answer({each.topic_partition: FetchedPartition(MOVED) for each in partitions})
        await world.fetcher.work_once()
        world.leader.earliest_local = UnknownLeaderEpochError("not yet")
        for _ in range(2):
            world.leader.answer({})
            await world.fetcher.work_once()
        assert world.leader.waits_ms == [500, 0, 50]  # then the first of those that were refused is due again

    tell(tmp_path, story, dict(TIERING))


def test_remote_storage_that_cannot_tell_is_asked_again_after_the_back_off(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        world.leader.earliest_local = TIERED_FROM_90
        world.remote_log.refusal = ReplicaNotAvailableError("it is still being read")
        state = world.follow()
        await world.round(error=MOVED)
        await world.fetcher.work_once()
        await settle()
        assert (state.delayed_until, state.is_resetting) == (now() + 0.25, False)
        world.remote_log.states = lambda *_: RemoteLogState(90, (EpochEntry(0, 0),), encode_snapshot(()))
        while state.fetch_offset != 90:
            if state.is_ready(now()):
                await world.round(error=MOVED, high_watermark=90)
            else:
                await world.fetcher.work_once()
        assert len(world.leader.asked) == 2
        assert world.failed == []

    tell(tmp_path, story, {**TIERING, "replica.fetch.backoff.ms": "250"}, dict(TIERED))


@pytest.mark.parametrize("failure", [FencedLeaderEpochError("a newer epoch"), StorageFailure("no space")])
def test_what_ends_following_ends_it_here_as_well(tmp_path: Path, failure: Exception) -> None:
    async def story(world: FetcherWorld) -> None:
        world.leader.earliest_local = failure
        world.follow()
        await world.round(error=MOVED)
        asking = asyncio.ensure_future(world.fetcher.work_once())
        await settle()
        assert world.failed == [(T, failure)]
        asking.cancel()

    tell(tmp_path, story, dict(TIERING), dict(TIERED))


@pytest.mark.parametrize("is_left", [True, False])
def test_a_state_that_is_left_or_replaced_is_not_built_for_any_more(tmp_path: Path, is_left: bool) -> None:
    async def story(world: FetcherWorld) -> None:
        world.leader.earliest_local = TIERED_FROM_90
        world.follow()
        await world.round(error=MOVED)
        asking = asyncio.ensure_future(world.fetcher.work_once())
        await settle()
        if is_left:
            world.fetcher.remove(T)
        else:
            world.place(leader=2, leader_epoch=1)
            world.follow()
        await settle()
        assert world.remote_log.state_questions[0].answer.cancelled()
        asking.cancel()

    tell(tmp_path, story, dict(TIERING), dict(TIERED))


def test_the_leader_waits_no_longer_than_until_the_next_partition_is_due(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        world.create_topic("other", replicas=(2, 1), leader=2)
        world.follow()
        world.fetcher.add(PartitionFetchState(FollowerReplica(world.partition("other"), 0)))
        await world.round(error=ErrorCode.unknown_leader_epoch)
        world.leader.answer({})
        await world.fetcher.work_once()
        assert world.leader.waits_ms == [500, 50]

    tell(tmp_path, story)


def test_a_partition_that_is_added_interrupts_a_fetch_that_waits(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        world.create_topic("other", replicas=(2, 1), leader=2)
        world.follow()
        begun = now()
        round_ = asyncio.ensure_future(world.fetcher.work_once())
        await asyncio.sleep(0.02)
        world.fetcher.add(PartitionFetchState(FollowerReplica(world.partition("other"), 0)))
        await round_
        assert (now() - begun, world.leader.cancelled) == (0.05, 1)  # what is under way gets the time to arrive
        world.leader.answer({})
        await world.fetcher.work_once()
        assert set(world.leader.asked[-1]) == {T, ("other", 0)}

    tell(tmp_path, story)


def test_partitions_that_keep_coming_do_not_keep_answers_away(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        world.create_topic("other", replicas=(2, 1), leader=2)
        world.follow()
        asked_at = []

        async def answer_slowly(
            requests: Mapping[TopicPartition, FollowerFetch], *, max_wait_ms: int
        ) -> Mapping[TopicPartition, FetchedPartition]:
            asked_at.append(now())
            await asyncio.sleep(0.3)
            return {T: FetchedPartition(high_watermark=1, log_start_offset=0, records=records(0, "a"))}

        world.leader.fetch = answer_slowly  # type: ignore[method-assign]
        task = asyncio.ensure_future(world.fetcher.run())
        while world.partition().log.log_end_offset == 0 and now() < 10:
            world.fetcher.add(PartitionFetchState(FollowerReplica(world.partition("other"), 0)))
            await asyncio.sleep(0.01)
            world.fetcher.remove(TopicPartition("other", 0))
        # Each fetch that is given up makes the next one wait longer for its answer.
        assert asked_at[:4] == pytest.approx([0.0, 0.05, 0.15, 0.35], abs=0.02)
        assert now() == pytest.approx(0.65, abs=0.02)
        assert world.fetcher.patience_seconds == 0.05
        task.cancel()

    tell(tmp_path, story)


def test_a_partition_that_is_followed_already_interrupts_nothing(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        world.follow()
        round_ = asyncio.ensure_future(world.fetcher.work_once())
        await asyncio.sleep(0.02)
        world.follow()
        await asyncio.sleep(1)
        assert (round_.done(), world.leader.cancelled) == (False, 0)
        round_.cancel()

    tell(tmp_path, story)


def test_an_idle_fetcher_waits_and_a_cancelled_one_gives_its_connection_up(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        task = asyncio.ensure_future(world.fetcher.run())
        await settle()
        assert world.leader.asked == []
        world.follow()
        await settle()
        assert len(world.leader.asked) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert world.leader.closed == 1

    tell(tmp_path, story)


def test_who_was_served_goes_to_the_end_of_the_order(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        world.create_topic("other", replicas=(2, 1), leader=2)
        world.follow()
        world.fetcher.add(PartitionFetchState(FollowerReplica(world.partition("other"), 0)))
        await world.round(records=records(0, "a"))
        await world.round()
        assert [topic_partition.topic for topic_partition in world.leader.asked[1]] == ["other", "t"]

    tell(tmp_path, story)


def test_what_a_follower_asks_for_at_a_time_is_a_setting(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        world.follow()
        await world.round()
        assert (world.leader.asked[0][T].max_bytes, world.leader.waits_ms) == (5000, [70])

    tell(tmp_path, story, {"replica.fetch.max.bytes": "5000", "replica.fetch.wait.max.ms": "70"})


def test_a_follower_that_catches_up_holds_itself_back(tmp_path: Path) -> None:
    async def story(world: FetcherWorld) -> None:
        configs = {"follower.replication.throttled.replicas": "0:1"}
        world.create_topic("slow", replicas=(2, 1), leader=2, configs=configs)
        world.create_topic("free", replicas=(2, 1), leader=2)
        slow, free = TopicPartition("slow", 0), TopicPartition("free", 0)
        for name in ("slow", "free"):
            world.fetcher.add(PartitionFetchState(FollowerReplica(world.partition(name), 0)))
        sent = records(0, *["a" * 100] * 20)
        answer = FetchedPartition(records=sent, high_watermark=500, log_start_offset=0)
        world.leader.answer({slow: answer, free: answer})
        await world.fetcher.work_once()
        assert world.throttle.byte_rate == len(sent)  # of the covered one alone
        world.leader.answer({})
        await world.fetcher.work_once()
        assert list(world.leader.asked[-1]) == [free]
        assert world.leader.waits_ms[-1] == 100
        await asyncio.sleep(len(sent) / 1000)
        world.leader.answer({slow: FetchedPartition(high_watermark=20, log_start_offset=0)})
        await world.fetcher.work_once()
        assert slow in world.leader.asked[-1]
        world.throttle.record(1_000_000)
        world.leader.answer({})
        await world.fetcher.work_once()
        assert slow in world.leader.asked[-1]  # in sync now

    tell(tmp_path, story, {"follower.replication.throttled.rate": "1000"})
