import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker.common.errors import ErrorCode, FencedLeaderEpochError, ReplicaNotAvailableError, StorageFailure
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.log.producer_snapshot import encode_snapshot
from broker.replication.fetch_params import EpochEndOffset
from broker.replication.follower_replica import FollowerReplica
from broker.replication.leader_endpoint import FetchedPartition, FollowerFetch, LeaderUnavailableError
from broker.replication.leader_local_start import LeaderLocalStart
from broker.replication.partition_fetch_state import PartitionFetchState
from broker.replication.remote_log import RemoteLog, RemoteLogState
from broker.replication.tier_state import (
    BUILD_SECONDS_MAX,
    BUILDS_AT_ONCE_MAX,
    RemoteStateUnavailableError,
    TierStateMachine,
)
from tests.support.builders import settle
from tests.support.scripted_remote_log import ScriptedRemoteLog
from tests.support.sim_loop import SimLoop, simulate
from tests.support.tiered_topics import TIERED, TIERING
from tests.unit.replication.follower_world import FakeLeader, FollowerWorld, T, records

ANSWER = FetchedPartition(ErrorCode.offset_moved_to_tiered_storage, high_watermark=100, log_start_offset=20)
EPOCHS = (EpochEntry(0, 20), EpochEntry(1, 85))
STATE = RemoteLogState(90, EPOCHS, encode_snapshot(()))


class TierWorld(FollowerWorld):
    """Partitions of a tiered topic; the leader's disk begins at 90."""

    def __init__(self, directory: Path, *, partitions: int = 1, is_tiered: bool = True) -> None:
        super().__init__(directory, dict(TIERING), dict(TIERED) if is_tiered else None)
        if partitions > 1:
            self.create_topic(
                "u", partitions=partitions, replicas=(2, 1), leader=2, configs={"remote.storage.enable": "true"}
            )
        self.leader = FakeLeader()
        self.leader.earliest_local = LeaderLocalStart(3, 90)
        self.leader.epoch_ends = {2: EpochEndOffset(1, 90)}
        self.remote_log = ScriptedRemoteLog()
        self.done: list[tuple[PartitionFetchState, Exception | None]] = []
        self.machine = self.make(self.remote_log)

    def make(self, remote_log: RemoteLog | None) -> TierStateMachine:
        return TierStateMachine(self.leader, remote_log, lambda state, error: self.done.append((state, error)))

    def move(self, state: PartitionFetchState | None = None) -> tuple[PartitionFetchState, FollowerFetch]:
        """The leader's answer comes for t-0, or for another."""
        asked = self.state() if state is None else state
        asked.is_truncating = False
        request = asked.request(100)
        self.machine.moved(asked, request, ANSWER)
        return asked, request

    def error(self) -> Exception:
        """Of the only partition that was done with."""
        ((_, error),) = self.done
        assert error is not None
        return error


Story = Callable[[TierWorld], Awaitable[None]]


def tell(tmp_path: Path, story: Story, *, partitions: int = 1, is_tiered: bool = True) -> None:
    async def run(loop: SimLoop) -> None:
        world = TierWorld(tmp_path, partitions=partitions, is_tiered=is_tiered)
        try:
            await story(world)
        finally:
            await world.machine.stop()
        assert loop.failures == []

    simulate(run)


def test_the_follower_begins_behind_the_segment_with_the_leaders_log_start(tmp_path: Path) -> None:
    async def story(world: TierWorld) -> None:
        world.replica().append(records(0, "a"))
        state, _ = world.move()
        assert not state.is_ready(0.0)
        await world.machine.ask_leader()
        assert world.leader.listed == [("earliest_local", T, 0), ("end of 2", T, 0)]
        await settle()
        (question,) = world.remote_log.state_questions
        assert question[:3] == (T, 1, 89)  # by the epoch that wrote it, although the leader's disk begins with epoch 3
        assert world.done == []
        question.answer.set_result(STATE)
        await settle()
        log = world.partition().log
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (20, 90, 90)
        assert log.leader_epochs.entries == EPOCHS
        assert (state.fetch_offset, state.last_fetched_epoch, state.lag) == (90, 1, 10)
        assert world.done == [(state, None)]

    tell(tmp_path, story)


def test_in_epoch_0_the_leader_is_asked_one_thing_only(tmp_path: Path) -> None:
    async def story(world: TierWorld) -> None:
        world.leader.earliest_local = LeaderLocalStart(0, 90)
        world.move()
        await world.machine.ask_leader()
        await settle()
        assert world.leader.listed == [("earliest_local", T, 0)]
        assert world.remote_log.state_questions[0][:3] == (T, 0, 89)

    tell(tmp_path, story)


def test_what_remote_storage_cannot_tell_is_told_once_until_it_can(tmp_path: Path) -> None:
    async def story(world: TierWorld) -> None:
        state, _ = world.move()
        with capture_logs() as logs:
            for number, failure in enumerate([ReplicaNotAvailableError("not yet"), OSError("unexpected"), None]):
                await world.machine.ask_leader()
                await settle()
                question = world.remote_log.state_questions[number]
                if failure is None:
                    question.answer.set_result(STATE)
                else:
                    question.answer.set_exception(failure)
                await settle()
                if failure is not None:
                    assert isinstance(world.done[-1][1], RemoteStateUnavailableError)
                    world.move(state)
        assert world.done[-1] == (state, None)
        told = [each["log_level"] for each in logs if each["event"] == "remote_log_state_not_built"]
        assert told == ["warning", "debug"]

    tell(tmp_path, story)


def test_a_store_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    async def story(world: TierWorld) -> None:
        world.move()
        await world.machine.ask_leader()
        await asyncio.sleep(BUILD_SECONDS_MAX + 1)
        assert isinstance(world.error(), RemoteStateUnavailableError)
        assert world.remote_log.state_questions[0].answer.cancelled()

    tell(tmp_path, story)


def test_without_remote_storage_here_every_try_fails(tmp_path: Path) -> None:
    async def story(world: TierWorld) -> None:
        world.machine = world.make(None)
        world.move()
        await world.machine.ask_leader()
        assert isinstance(world.error(), RemoteStateUnavailableError)
        assert world.leader.listed == []

    tell(tmp_path, story)


def test_a_topic_that_is_not_tiered_here_yet_waits_for_its_settings(tmp_path: Path) -> None:
    async def story(world: TierWorld) -> None:
        world.move()
        await world.machine.ask_leader()
        assert isinstance(world.error(), RemoteStateUnavailableError)
        assert world.remote_log.state_questions == []

    tell(tmp_path, story, is_tiered=False)


@pytest.mark.parametrize("which", ["earliest_local", "epoch_end"])
@pytest.mark.parametrize("failure", [LeaderUnavailableError("gone"), FencedLeaderEpochError("a newer epoch")])
def test_the_leaders_refusal_is_handed_on(tmp_path: Path, which: str, failure: Exception) -> None:
    async def story(world: TierWorld) -> None:
        if which == "earliest_local":
            world.leader.earliest_local = failure
        else:
            world.leader.epoch_ends[2] = failure
        world.move()
        await world.machine.ask_leader()
        assert world.error() is failure

    tell(tmp_path, story)


def test_a_leader_that_does_not_know_its_own_epochs_is_asked_again(tmp_path: Path) -> None:
    async def story(world: TierWorld) -> None:
        world.leader.earliest_local = LeaderLocalStart(-1, 90)
        world.move()
        await world.machine.ask_leader()
        assert isinstance(world.error(), RemoteStateUnavailableError)

    tell(tmp_path, story)


def test_a_log_that_reaches_the_leaders_disk_is_not_cut(tmp_path: Path) -> None:
    async def story(world: TierWorld) -> None:
        world.replica().append(records(0, "a"))
        state, _ = world.move()
        world.replica().append(records(1, *"b" * 89))  # by another way, while the question was under way
        await world.machine.ask_leader()
        assert (world.done, state.fetch_offset) == ([(state, None)], 90)
        world.leader.earliest_local = LeaderLocalStart(3, 80)  # and where nothing has moved, asking goes on slowly
        world.move(state)
        await world.machine.ask_leader()
        assert isinstance(world.done[1][1], RemoteStateUnavailableError)
        assert world.partition().log.log_end_offset == 90
        assert world.remote_log.state_questions == []

    tell(tmp_path, story)


def test_an_answer_for_an_older_state_changes_nothing(tmp_path: Path) -> None:
    async def story(world: TierWorld) -> None:
        world.replica().append(records(0, "a"))
        state, _ = world.move()
        await world.machine.ask_leader()
        await settle()
        world.place(leader=2, leader_epoch=1)
        world.remote_log.state_questions[0].answer.set_result(STATE)
        await settle()
        assert world.done == [(state, None)]
        assert world.partition().log.log_end_offset == 1

    tell(tmp_path, story)


def test_a_new_epoch_before_its_turn_asks_nothing(tmp_path: Path) -> None:
    async def story(world: TierWorld) -> None:
        world.replica().append(records(0, "a"))
        state, _ = world.move()
        world.place(leader=2, leader_epoch=1)
        await world.machine.ask_leader()
        assert (world.leader.listed, world.done) == ([], [(state, None)])

    tell(tmp_path, story)


def test_what_changes_while_the_leader_is_asked_ends_it(tmp_path: Path) -> None:
    async def story(world: TierWorld) -> None:
        state, _ = world.move()

        async def moved_meanwhile(*_: object) -> LeaderLocalStart:
            state.stop()
            return LeaderLocalStart(3, 90)

        world.leader.earliest_local_offset = moved_meanwhile  # type: ignore[method-assign]
        await world.machine.ask_leader()
        await settle()
        assert (world.leader.listed, world.remote_log.state_questions) == ([], [])

    tell(tmp_path, story)


def test_a_disk_that_refuses_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise StorageFailure("no space")

    monkeypatch.setattr(FollowerReplica, "restore_from_remote", refuse)

    async def story(world: TierWorld) -> None:
        world.remote_log.states = lambda *_: STATE
        world.move()
        await world.machine.ask_leader()
        await settle()
        assert isinstance(world.error(), StorageFailure)

    tell(tmp_path, story)


def test_a_few_at_once_and_the_others_in_their_turn(tmp_path: Path) -> None:
    async def story(world: TierWorld) -> None:
        states = []
        for number in range(BUILDS_AT_ONCE_MAX + 2):
            partition = world.partition("u", number)
            state = PartitionFetchState(FollowerReplica(partition, partition.leader_epoch))
            states.append(state)
            world.move(state)
        world.machine.leave(states[BUILDS_AT_ONCE_MAX])  # before its turn
        await world.machine.ask_leader()
        await settle()
        questions = world.remote_log.state_questions
        assert [each.partition.partition for each in questions] == list(range(BUILDS_AT_ONCE_MAX))
        questions[2].answer.set_result(STATE)
        await settle()
        await world.machine.ask_leader()
        await settle()
        assert world.remote_log.state_questions[-1].partition.partition == BUILDS_AT_ONCE_MAX + 1
        assert [state for state, _ in world.done] == [states[2]]

    tell(tmp_path, story, partitions=BUILDS_AT_ONCE_MAX + 2)


def test_many_that_fail_at_once_do_not_keep_the_leader_to_themselves(tmp_path: Path) -> None:
    async def story(world: TierWorld) -> None:
        world.leader.earliest_local = LeaderUnavailableError("gone")
        for number in range(BUILDS_AT_ONCE_MAX + 2):
            partition = world.partition("u", number)
            world.move(PartitionFetchState(FollowerReplica(partition, partition.leader_epoch)))
        await world.machine.ask_leader()
        assert (len(world.done), world.machine.is_due) == (BUILDS_AT_ONCE_MAX, True)
        await world.machine.ask_leader()
        assert (len(world.done), world.machine.is_due) == (BUILDS_AT_ONCE_MAX + 2, False)

    tell(tmp_path, story, partitions=BUILDS_AT_ONCE_MAX + 2)


def test_who_is_left_is_not_built_for_any_more(tmp_path: Path) -> None:
    async def story(world: TierWorld) -> None:
        state, _ = world.move()
        await world.machine.ask_leader()
        await settle()
        world.machine.leave(state)
        await settle()
        assert world.remote_log.state_questions[0].answer.cancelled()
        assert world.done == []

    tell(tmp_path, story)


def test_stopping_waits_for_what_is_under_way(tmp_path: Path) -> None:
    async def story(world: TierWorld) -> None:
        world.move()
        await world.machine.ask_leader()
        await settle()
        await world.machine.stop()
        assert world.remote_log.state_questions[0].answer.cancelled()
        assert world.done == []

    tell(tmp_path, story)
