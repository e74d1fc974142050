import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.common.identifiers import REMOTE_WAL_LOG_METADATA_TOPIC, TopicPartition
from broker.common.metadata_topic import MetadataRecord
from broker.records.memory_records_builder import records_batch
from broker.replication.fetch_params import EpochEndOffset
from broker.replication.leader_endpoint import (
    FetchedPartition,
    FetchSessionError,
    FollowerFetch,
    LeaderUnavailableError,
)
from broker.replication.replica_fetcher_manager import LeaderAddress
from broker.server.metadata_topic import topic_fetcher
from broker.server.metadata_topic.topic_endpoint import FoundOffset
from broker.server.metadata_topic.topic_fetcher import TopicFetcher
from broker.server.metadata_topic.topic_positions import MetadataPosition
from broker.server.metadata_topic.topic_reading import TopicReading
from broker.server.metadata_topic.topic_routes import Route
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.metadata_topic_support import TOPIC_ID, address, metadata

LEADER = address(1)
OLDEST = 5_000


def place(partition: int) -> TopicPartition:
    return TopicPartition(REMOTE_WAL_LOG_METADATA_TOPIC, partition)


class Owner:
    """What is read, where an earlier run was, and what was told."""

    topic = REMOTE_WAL_LOG_METADATA_TOPIC

    def __init__(self) -> None:
        self.readings: dict[int, TopicReading] = {}
        self.known: dict[int, MetadataPosition] = {}
        self.told: list[tuple[int, list[MetadataRecord]]] = []
        self.epoch = 3
        self.unhurried: set[int] = set()
        self.elsewhere: set[int] = set()  # led by somebody else now
        self.placed: list[tuple[int, int, int]] = []
        self.while_telling: Callable[[int], None] = lambda partition: None

    def begin(self, partition: int, offset: int | None = None) -> TopicReading:
        reading = self.readings[partition] = TopicReading(REMOTE_WAL_LOG_METADATA_TOPIC, partition, may_resume=True)
        if offset is not None:
            reading.begin_at(MetadataPosition(offset, 2))
        return reading

    def readings_of(self, leader: LeaderAddress) -> list[tuple[TopicReading, Route]]:
        assert leader == LEADER
        return [
            (each, Route(place(each.partition), TOPIC_ID, LEADER, self.epoch))
            for each in self.readings.values()
            if each.partition not in self.elsewhere
        ]

    def is_read_from(self, leader: LeaderAddress, reading: TopicReading) -> bool:
        return self.readings.get(reading.partition) is reading and reading.partition not in self.elsewhere

    def is_unhurried(self, reading: TopicReading) -> bool:
        return reading.partition in self.unhurried

    def remembered(self, reading: TopicReading, route: Route) -> MetadataPosition | None:
        return self.known.get(reading.partition) if reading.may_resume else None

    def oldest_timestamp(self) -> int:
        return OLDEST

    def place(self, reading: TopicReading, beginning: MetadataPosition, end_offset: int) -> None:
        self.placed.append((reading.partition, beginning.offset, end_offset))
        reading.begin_at(beginning)

    def finished(self, reading: TopicReading) -> None:
        assert self.readings.pop(reading.partition) is reading

    def tell(self, partition: int, records: Sequence[MetadataRecord]) -> None:
        self.told.append((partition, list(records)))
        self.while_telling(partition)

    def retire(self, leader: LeaderAddress) -> bool:
        return not self.readings_of(leader)


class Leader:
    """Logs by partition; what has nothing to tell waits, and offsets have the timestamp of ten times their own."""

    def __init__(self) -> None:
        self.logs: dict[int, list[bytes]] = {}
        self.first_offset = 0
        self.asked: list[tuple[float, dict[int, FollowerFetch], int]] = []
        self.listed: list[tuple[dict[int, int], int]] = []
        self.answers: list[dict[int, FetchedPartition] | Exception] = []  # before any other
        self.list_errors: dict[int, ErrorCode] = {}
        self.begun_anew = 0
        self.closed = 0
        self.latency_s = 0.001
        self.arrived = asyncio.Event()

    def append(self, partition: int, value: str) -> None:
        log = self.logs.setdefault(partition, [])
        log.append(value.encode())
        self.arrived.set()

    async def fetch(
        self, requests: dict[TopicPartition, FollowerFetch], *, max_wait_ms: int
    ) -> Mapping[TopicPartition, FetchedPartition]:
        loop = asyncio.get_running_loop()
        self.asked.append((loop.time(), {each.partition: request for each, request in requests.items()}, max_wait_ms))
        await asyncio.sleep(self.latency_s)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return {place(partition): each for partition, each in answer.items()}
        deadline = loop.time() + max_wait_ms / 1000
        while True:
            self.arrived.clear()
            found = self._found(requests)
            if found or loop.time() >= deadline:
                return found
            try:
                async with asyncio.timeout_at(deadline):
                    await self.arrived.wait()
            except TimeoutError:
                pass

    def _found(self, requests: Mapping[TopicPartition, FollowerFetch]) -> dict[TopicPartition, FetchedPartition]:
        found = {}
        for topic_partition, request in requests.items():
            log = self.logs.get(topic_partition.partition, [])
            values = log[request.fetch_offset - self.first_offset :]
            if values:
                entries = [(1_000, None, value) for value in values]
                records = records_batch(*entries, base_offset=request.fetch_offset, partition_leader_epoch=3)
                end = self.first_offset + len(log)
                found[topic_partition] = FetchedPartition(ErrorCode.none, end, 0, bytes(records))
        return found

    def begin_anew(self) -> None:
        self.begun_anew += 1

    async def list_offsets(self, epochs: Mapping[int, int], timestamp: int) -> dict[int, FoundOffset]:
        self.listed.append((dict(epochs), timestamp))
        await asyncio.sleep(self.latency_s)
        return {each: self._offset(each, timestamp) for each in epochs}

    def _offset(self, partition: int, timestamp: int) -> FoundOffset:
        error = self.list_errors.get(partition, ErrorCode.none)
        end = self.first_offset + len(self.logs.get(partition, []))
        if timestamp == -1:
            return FoundOffset(error, end)
        offset = max(self.first_offset, -(-timestamp // 1_000))
        return FoundOffset(error, offset if offset < end else -1)

    async def close(self) -> None:
        self.closed += 1


class World:
    def __init__(self) -> None:
        self.owner = Owner()
        self.leader = Leader()
        self.fetcher = TopicFetcher(self.owner, LEADER, self.leader)

    def begin(self, partition: int, offset: int | None = None) -> None:
        """As the owner does it: the fetcher is told."""
        self.owner.begin(partition, offset)
        self.fetcher.wake_for_new()

    def end(self, partition: int) -> None:
        self.owner.readings.pop(partition)
        self.fetcher.wake_for_new()

    @property
    def offsets(self) -> list[dict[int, int]]:
        """By fetch and partition."""
        return [
            {each: request.fetch_offset for each, request in requests.items()} for _, requests, _ in self.leader.asked
        ]


def run(play: Callable[[World, SimLoop], Coroutine[Any, Any, None]]) -> None:
    async def story(loop: SimLoop) -> None:
        await play(World(), loop)

    simulate(story)


def test_a_fetch_says_where_one_is_and_tells_what_comes() -> None:
    async def play(world: World, loop: SimLoop) -> None:
        reading = world.owner.begin(4, 1)
        for value in ("a", "b", "c"):
            world.leader.append(4, value)
        await world.fetcher.work_once()
        ((_, requests, max_wait_ms),) = world.leader.asked
        assert requests == {4: FollowerFetch(TOPIC_ID, 1, -1, 3, 2, 256 * 1024)}
        assert max_wait_ms == 500
        assert world.owner.told == [(4, metadata("b", "c", first_offset=1))]
        assert (reading.position, reading.lag) == (MetadataPosition(3, 3), 0)

    run(play)


def test_an_idle_leader_is_asked_twice_a_second() -> None:
    async def play(world: World, loop: SimLoop) -> None:
        for partition in range(5):
            world.owner.begin(partition, 0)
        while loop.time() < 10:
            await world.fetcher.work_once()
        assert len(world.leader.asked) == 20

    run(play)


def test_what_is_unhurried_is_asked_for_twice_a_second_and_all_of_it_at_once() -> None:
    async def play(world: World, loop: SimLoop) -> None:
        for partition in range(3):
            world.owner.begin(partition, 0)
        world.owner.unhurried = {1, 2}
        while loop.time() < 0.99:
            for partition in range(3):
                world.leader.append(partition, f"{loop.time()}")
            await world.fetcher.work_once()
            await asyncio.sleep(0.02)
        assert len(world.leader.asked) > 20
        with_others = [at for at, requests, _ in world.leader.asked if len(requests) > 1]
        assert with_others == [0.0, pytest.approx(0.5, abs=0.03)]
        assert [len(requests) for _, requests, _ in world.leader.asked if len(requests) > 1] == [3, 3]

    run(play)


def test_what_is_unhurried_is_read_without_a_pause_while_it_is_behind() -> None:
    async def play(world: World, loop: SimLoop) -> None:
        world.owner.unhurried = {4}
        world.owner.begin(4, 0)
        records = [bytes(records_batch((1_000, None, b"v"), base_offset=each)) for each in range(3)]
        world.leader.answers = [{4: FetchedPartition(ErrorCode.none, 3, 0, each)} for each in records]
        for _ in range(3):
            await world.fetcher.work_once()
        assert world.offsets == [{4: 0}, {4: 1}, {4: 2}]

    run(play)


def test_what_is_new_begins_by_timestamp_and_without_one_at_the_end() -> None:
    async def play(world: World, loop: SimLoop) -> None:
        for number in range(8):
            world.leader.append(4, f"{number}")
        world.leader.append(5, "old")
        one, other = world.owner.begin(4), world.owner.begin(5)
        await world.fetcher.work_once()
        assert world.leader.listed == [({4: 3, 5: 3}, -1), ({4: 3, 5: 3}, OLDEST)]
        assert world.offsets == [{4: 5, 5: 1}]
        assert world.owner.told == [(4, metadata("5", "6", "7", first_offset=5))]
        assert (one.position, other.position) == (MetadataPosition(8, 3), MetadataPosition(1, -1))

    run(play)


def test_what_is_appended_between_the_two_questions_is_not_passed_over() -> None:
    async def play(world: World, loop: SimLoop) -> None:
        world.leader.append(4, "old")
        loop.call_later(0.0015, world.leader.append, 4, "new")
        world.owner.begin(4)
        await world.fetcher.work_once()
        assert world.owner.told == [(4, metadata("new", first_offset=1))]

    run(play)


@pytest.mark.parametrize(
    ("history", "remembered", "begins"),
    [(2, 7, 7), (3, 7, 5), (2, 3, 5), (2, None, 5)],
    ids=["too much to read again", "little to read again", "longer ago than what is kept", "never read"],
)
def test_an_earlier_run_is_continued_when_there_is_too_much_to_read(
    history: int, remembered: int | None, begins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_fetcher, "HISTORY_RECORDS_MAX", history)

    async def play(world: World, loop: SimLoop) -> None:
        for number in range(8):
            world.leader.append(4, f"{number}")
        if remembered is not None:
            world.owner.known[4] = MetadataPosition(remembered, 3)
        world.owner.begin(4)
        await world.fetcher.work_once()
        assert world.offsets == [{4: begins}]
        assert world.owner.told == [(4, metadata(*(f"{n}" for n in range(begins, 8)), first_offset=begins))]

    run(play)


def test_who_cannot_be_placed_yet_keeps_nobody_waiting() -> None:
    async def play(world: World, loop: SimLoop) -> None:
        world.leader.list_errors[4] = ErrorCode.leader_not_available
        world.owner.begin(4)
        world.owner.begin(5)
        await world.fetcher.work_once()
        assert world.offsets == [{5: 0}]
        assert [wait for _, _, wait in world.leader.asked] == [100]  # then it is due again
        world.leader.list_errors.clear()
        await world.fetcher.work_once()
        assert world.offsets == [{5: 0}, {4: 0, 5: 0}]

    run(play)


def test_a_new_partition_interrupts_the_fetch_that_waits() -> None:
    async def play(world: World, loop: SimLoop) -> None:
        world.owner.begin(4, 0)
        loop.call_later(0.2, world.begin, 5)
        await world.fetcher.work_once()
        assert loop.time() == pytest.approx(0.2)
        await world.fetcher.work_once()
        assert world.offsets == [{4: 0}, {4: 0, 5: 0}]

    run(play)


def test_a_fetch_that_has_just_begun_has_time_to_be_answered() -> None:
    async def play(world: World, loop: SimLoop) -> None:
        world.leader.append(4, "a")
        world.leader.latency_s = 0.04
        world.owner.begin(4, 0)
        loop.call_later(0.01, world.begin, 5, 0)
        await world.fetcher.work_once()
        assert len(world.owner.told) == 1
        assert loop.time() == pytest.approx(0.04)

    run(play)


def test_partitions_that_go_or_change_otherwise_interrupt_nothing() -> None:
    async def play(world: World, loop: SimLoop) -> None:
        world.owner.begin(4, 0)
        world.owner.begin(5, 0)
        loop.call_later(0.2, world.end, 5)
        await world.fetcher.work_once()
        assert loop.time() == pytest.approx(0.501)

    run(play)


def test_an_answer_for_what_is_read_no_longer_is_dropped() -> None:
    async def play(world: World, loop: SimLoop) -> None:
        world.leader.append(4, "a")
        world.leader.append(5, "b")
        world.owner.begin(4, 0)
        world.owner.begin(5, 0)
        loop.call_later(0.0005, world.owner.begin, 4, 0)  # again from there
        await world.fetcher.work_once()
        assert (world.owner.told, world.leader.begun_anew) == ([(5, metadata("b"))], 1)

    run(play)


def test_it_stops_telling_when_the_partition_is_taken_away_in_the_midst(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_fetcher, "YIELD_BYTES", 1)

    async def play(world: World, loop: SimLoop) -> None:
        world.owner.begin(4, 0)
        records = b"".join(
            bytes(records_batch((1_000, None, b"v"), base_offset=offset, partition_leader_epoch=3))
            for offset in range(3)
        )
        world.leader.answers = [{4: FetchedPartition(ErrorCode.none, 3, 0, records)}]

        def take_away(partition: int) -> None:
            loop.call_soon(world.owner.begin, 4, 0)

        world.owner.while_telling = take_away
        await world.fetcher.work_once()
        assert (len(world.owner.told), world.leader.begun_anew) == (1, 1)

    run(play)


@pytest.mark.parametrize(
    "answer",
    [FetchedPartition(ErrorCode.offset_out_of_range), FetchedPartition(diverging_epoch=EpochEndOffset(2, 5))],
)
def test_a_position_that_is_no_more_is_looked_up_by_timestamp(answer: FetchedPartition) -> None:
    async def play(world: World, loop: SimLoop) -> None:
        for number in range(8):
            world.leader.append(4, f"{number}")
        world.owner.known[4] = MetadataPosition(7, 3)
        world.owner.begin(4, 100)
        world.leader.answers = [{4: answer}]
        await world.fetcher.work_once()
        await world.fetcher.work_once()
        assert world.offsets == [{4: 100}, {4: 5}]
        assert world.owner.told == [(4, metadata("5", "6", "7", first_offset=5))]

    run(play)


@pytest.mark.parametrize(
    ("error", "seconds"), [(ErrorCode.not_leader_or_follower, 0.1), (ErrorCode.unknown_server_error, 1.0)]
)
def test_a_partition_that_is_refused_is_left_out_for_a_while(error: ErrorCode, seconds: float) -> None:
    async def play(world: World, loop: SimLoop) -> None:
        world.leader.answers = [{4: FetchedPartition(error)}]
        world.owner.begin(4, 0)
        world.leader.append(4, "a")
        await world.fetcher.work_once()
        assert world.owner.told == []
        while not world.owner.told:
            await world.fetcher.work_once()
        assert loop.time() == pytest.approx(0.002 + seconds)

    run(play)


@pytest.mark.parametrize(
    "failure", [LeaderUnavailableError("gone"), FetchSessionError(ErrorCode.fetch_session_id_not_found)]
)
def test_a_leader_that_does_not_answer_is_asked_again_soon(failure: Exception) -> None:
    async def play(world: World, loop: SimLoop) -> None:
        world.leader.answers = [failure]
        world.owner.begin(4, 0)
        world.leader.append(4, "a")
        while not world.owner.told:
            await world.fetcher.work_once()
        assert [at for at, _, _ in world.leader.asked] == pytest.approx([0.0, 0.101])

    run(play)


def test_time_that_passes_within_a_round_ends_no_delay_unseen() -> None:
    """uvloop's timers come up to half a millisecond early: a round may begin just before a delay ends."""

    async def play(world: World, loop: SimLoop) -> None:
        world.begin(0, 0)
        world.leader.answers.append({0: FetchedPartition(error=ErrorCode.not_leader_or_follower)})
        await world.fetcher.work_once()
        loop.seconds_per_look = 0.3 * topic_fetcher.RETRY_SECONDS
        world.leader.answers.append({0: FetchedPartition()})
        for _ in range(3):
            await world.fetcher.work_once()
            if len(world.leader.asked) == 2:
                return
        raise AssertionError("it was not asked for again")

    run(play)


def test_unreadable_bytes_are_not_asked_for_in_a_hurry_and_passed_over_in_the_end() -> None:
    async def play(world: World, loop: SimLoop) -> None:
        reading = world.owner.begin(4, 0)
        world.leader.answers = [{4: FetchedPartition(ErrorCode.none, 9, 0, b"\xff" * 99)} for _ in range(3)]
        while reading.position == MetadataPosition(0, 2):
            await world.fetcher.work_once()
        assert reading.position == MetadataPosition(9, -1)
        assert loop.time() == pytest.approx(2.003)

    run(play)


def test_it_ends_when_there_is_nothing_to_read_from_its_leader() -> None:
    async def play(world: World, loop: SimLoop) -> None:
        world.owner.begin(4, 0)
        loop.call_later(0.7, world.owner.readings.clear)
        await world.fetcher.run()
        assert world.leader.closed == 1
        assert loop.time() == pytest.approx(1.002)

    run(play)


def test_history_is_read_in_small_portions_with_rests_and_the_present_is_not_kept_waiting() -> None:
    async def play(world: World, loop: SimLoop) -> None:
        old = bytes(records_batch((1_000, None, b"v" * 10_000), base_offset=0))
        world.leader.append(4, "x")
        world.leader.append(4, "y")
        reading = world.owner.begin(4)
        world.owner.begin(5)
        reading.end_offset = 2
        reading.begin_at(MetadataPosition(0, 3))
        world.leader.answers = [{4: FetchedPartition(ErrorCode.none, 2, 0, old)}]
        await world.fetcher.work_once()
        (_, first, _), *_ = world.leader.asked
        assert first[4].max_bytes == topic_fetcher.HISTORY_BYTES_MAX
        assert reading.is_in_history
        assert reading.due_at == pytest.approx(loop.time() + 10_000 * topic_fetcher.HISTORY_REST_SECONDS)
        await world.fetcher.work_once()
        assert set(world.offsets[-1]) == {5}

    run(play)


def test_history_is_read_up_to_where_it_ends_and_is_over_then() -> None:
    async def play(world: World, loop: SimLoop) -> None:
        for number in range(9):
            world.leader.append(4, f"{number}")
        world.owner.begin(4).ends_at = 7
        await world.fetcher.run()
        assert world.owner.placed == [(4, 5, 9)]
        assert world.owner.told == [(4, metadata("5", "6", first_offset=5))]
        assert loop.time() < 0.01

    run(play)


def test_history_of_which_nothing_is_left_is_over_at_once() -> None:
    async def play(world: World, loop: SimLoop) -> None:
        for number in range(9):
            world.leader.append(4, f"{number}")
        world.owner.begin(4).ends_at = 5
        await world.fetcher.run()
        assert (world.owner.told, world.leader.asked, world.leader.closed) == ([], [], 1)

    run(play)


def test_history_whose_leader_changes_while_its_end_is_told_is_over_at_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_fetcher, "YIELD_BYTES", 1)

    async def play(world: World, loop: SimLoop) -> None:
        for number in range(3):
            world.leader.append(4, f"{number}")
        reading = world.owner.begin(4, 0)
        reading.ends_at = 3
        world.owner.while_telling = world.owner.elsewhere.add
        await world.fetcher.run()
        assert (reading.is_over, list(world.owner.readings)) == (True, [4])
        world.owner.elsewhere.clear()
        await TopicFetcher(world.owner, LEADER, world.leader).run()
        assert (world.owner.readings, len(world.leader.asked)) == ({}, 1)

    run(play)


def test_what_is_begun_anew_while_its_leader_is_asked_where_is_placed_once() -> None:
    async def play(world: World, loop: SimLoop) -> None:
        world.leader.append(4, "old")
        world.owner.begin(4)
        loop.call_later(0.0015, world.begin, 4)
        await world.fetcher.work_once()
        assert world.owner.placed == []
        await world.fetcher.work_once()
        assert world.owner.placed == [(4, 1, 1)]

    run(play)


def test_history_whose_end_cannot_be_read_is_over_all_the_same() -> None:
    async def play(world: World, loop: SimLoop) -> None:
        world.owner.begin(4, 0).ends_at = 7
        world.leader.answers = [{4: FetchedPartition(ErrorCode.none, 9, 0, b"\xff" * 99)} for _ in range(3)]
        await world.fetcher.run()
        assert world.owner.told == []

    run(play)
