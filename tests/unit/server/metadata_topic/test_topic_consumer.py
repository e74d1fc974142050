import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from broker.common.disk import InlineDiskExecutor
from broker.common.errors import ErrorCode
from broker.common.file_system import OsFileSystem
from broker.common.identifiers import TopicPartition
from broker.common.metadata_topic import MetadataRecord
from broker.records.memory_records_builder import records_batch
from broker.replication.leader_endpoint import FetchedPartition, FollowerFetch
from broker.replication.replica_fetcher_manager import LeaderAddress
from broker.server.metadata_topic import topic_fetcher, topic_reading
from broker.server.metadata_topic.starting_policy import FromEarliest, StartingPolicy, WithinRetention
from broker.server.metadata_topic.topic_consumer import TopicConsumer
from broker.server.metadata_topic.topic_endpoint import FoundOffset
from broker.server.metadata_topic.topic_positions import MetadataPosition, TopicPositions
from tests.support.builders import NOW_MS, SettableClock
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.link_support import image_with
from tests.unit.server.metadata_topic_support import TOPIC_ID, World, metadata

RETENTION_MS = 60_000


class Log:
    """One partition, wherever it is led: a record per offset, all of them old."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self.first_in_retention: int | None = None
        self.records_max: int | None = None  # of an answer


class Setup(World):
    """Leaders share the logs, as replicas do."""

    def __init__(self, directory: Path, *leaders: int) -> None:
        super().__init__(*leaders)
        self.logs = [Log() for _ in leaders]
        self.told: list[tuple[int, list[MetadataRecord]]] = []
        self.connected: list[int] = []
        self.listed: list[tuple[int, list[int], int]] = []
        self.latency_s = 0.001
        self.positions = TopicPositions(
            OsFileSystem(), InlineDiskExecutor(), directory / "positions", read_again_seconds=15
        )
        self.consumer = TopicConsumer(
            self.routes,
            self.connect,
            self.policy(),
            self.on_metadata,
            lambda: self.told.append((-1, [])),
        )
        self.cache.add_listener(lambda image: self.consumer.reroute())

    def policy(self) -> StartingPolicy:
        return WithinRetention(self.positions, SettableClock(), retention_ms=RETENTION_MS)

    def on_metadata(self, partition: int, records: Sequence[MetadataRecord]) -> None:
        self.told.append((partition, list(records)))

    def connect(self, leader: LeaderAddress) -> "_Leader":
        self.connected.append(leader.broker_id)
        return _Leader(self, leader)

    def values(self, partition: int) -> list[str]:
        return [record.value.decode() for number, records in self.told if number == partition for record in records]


class _Leader:
    def __init__(self, setup: Setup, address: LeaderAddress) -> None:
        self._setup = setup
        self._address = address

    async def fetch(
        self, requests: dict[TopicPartition, FollowerFetch], *, max_wait_ms: int
    ) -> Mapping[TopicPartition, FetchedPartition]:
        await asyncio.sleep(self._setup.latency_s)
        found = {each: self._answer(each.partition, request) for each, request in requests.items()}
        answers = {each: answer for each, answer in found.items() if answer is not None}
        if not answers:
            await asyncio.sleep(max_wait_ms / 1000)
        return answers

    def _answer(self, partition: int, request: FollowerFetch) -> FetchedPartition | None:
        route = self._setup.routes.route(partition)
        if route is None or route.leader != self._address:
            return FetchedPartition(ErrorCode.not_leader_or_follower)
        values = self._setup.logs[partition].values
        if request.fetch_offset >= len(values):
            return None
        records_max = self._setup.logs[partition].records_max
        entries = [(1_000, None, value.encode()) for value in values[request.fetch_offset :][:records_max]]
        records = records_batch(*entries, base_offset=request.fetch_offset, partition_leader_epoch=3)
        return FetchedPartition(ErrorCode.none, len(values), 0, bytes(records))

    def begin_anew(self) -> None: ...

    async def list_offsets(self, epochs: Mapping[int, int], timestamp: int) -> dict[int, FoundOffset]:
        self._setup.listed.append((self._address.broker_id, sorted(epochs), timestamp))
        found = {}
        for partition in epochs:
            log = self._setup.logs[partition]
            first = -1 if log.first_in_retention is None else log.first_in_retention
            found[partition] = FoundOffset(ErrorCode.none, len(log.values) if timestamp == -1 else first)
        return found

    async def close(self) -> None: ...


def run(setup: Setup, play: Callable[[SimLoop], Coroutine[Any, Any, None]]) -> None:
    async def story(loop: SimLoop) -> None:
        async with setup.consumer.running():
            await play(loop)

    simulate(story)


def test_what_is_assigned_is_read_from_its_leader(tmp_path: Path) -> None:
    setup = Setup(tmp_path, 1, 2, 1)

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign([0, 1])
        await asyncio.sleep(0.1)
        setup.logs[0].values += ["a", "b"]
        setup.logs[1].values += ["c"]
        setup.logs[2].values += ["nobody's"]
        assert (setup.consumer.position(0), setup.consumer.lag) == (0, 0)
        await asyncio.sleep(1)
        assert sorted(setup.told) == [(0, metadata("a", "b")), (1, metadata("c"))]
        assert [setup.consumer.position(number) for number in (0, 1, 2)] == [2, 1, None]
        assert sorted(setup.connected) == [1, 2]

    run(setup, play)


def test_reading_begins_one_retention_ago(tmp_path: Path) -> None:
    setup = Setup(tmp_path, 1)
    setup.logs[0].values, setup.logs[0].first_in_retention = ["old", "a", "b"], 1

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign([0])
        assert setup.consumer.position(0) is None
        await asyncio.sleep(0.1)
        assert setup.values(0) == ["a", "b"]
        assert setup.listed == [(1, [0], -1), (1, [0], NOW_MS - RETENTION_MS)]

    run(setup, play)


class WholeSetup(Setup):
    def policy(self) -> StartingPolicy:
        return FromEarliest()


def test_a_topic_that_is_read_whole_begins_at_its_beginning_each_time(tmp_path: Path) -> None:
    setup = WholeSetup(tmp_path, 1)
    setup.logs[0].values, setup.logs[0].first_in_retention = ["a", "b"], 0

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign([0])
        assert not setup.consumer.has_caught_up(0)
        await asyncio.sleep(0.1)
        assert setup.listed == [(1, [0], -1), (1, [0], -2)]
        setup.consumer.read_again(0)
        assert not setup.consumer.has_caught_up(0)
        await asyncio.sleep(0.1)
        assert setup.values(0) == ["a", "b", "a", "b"]
        assert setup.consumer.has_caught_up(0)

    run(setup, play)


def test_it_has_caught_up_when_all_is_told_that_was_there_when_reading_began(tmp_path: Path) -> None:
    setup = WholeSetup(tmp_path, 1, 1)
    setup.logs[0].values, setup.logs[0].first_in_retention = ["a", "b", "c"], 0
    caught_up: list[tuple[int | None, bool]] = []

    def on_metadata(partition: int, records: Sequence[MetadataRecord]) -> None:
        caught_up.append((setup.consumer.position(partition), setup.consumer.has_caught_up(partition)))

    setup.consumer._on_metadata = on_metadata

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign([0, 1])
        assert not setup.consumer.has_caught_up(1)
        await asyncio.sleep(0.1)
        setup.logs[0].values.append("later")
        await asyncio.sleep(1)
        assert caught_up == [(1, False), (2, False), (3, True), (4, True)]
        assert setup.consumer.has_caught_up(1)  # nothing was there
        assert not setup.consumer.has_caught_up(2)  # nobody reads it

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_reading, "PORTION_BYTES", 1)
        run(setup, play)


def test_it_is_read_on_from_a_new_leader(tmp_path: Path) -> None:
    setup = Setup(tmp_path, 1, 2)

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign([0])
        await asyncio.sleep(0.1)
        setup.logs[0].values += ["a"]
        await asyncio.sleep(0.6)
        setup.lead(3, 2, epoch=4)
        setup.logs[0].values += ["b"]
        await asyncio.sleep(0.01)  # whatever the old leader is waiting for
        assert setup.values(0) == ["a", "b"]
        await asyncio.sleep(2)
        assert setup.values(0) == ["a", "b"]
        assert setup.connected == [1, 3]

    run(setup, play)


def test_who_has_no_leader_is_read_when_there_is_one(tmp_path: Path) -> None:
    setup = Setup(tmp_path, -1)
    setup.logs[0].values = ["a"]
    setup.logs[0].first_in_retention = 0

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign([0])
        await asyncio.sleep(1)
        setup.lead(2)
        await asyncio.sleep(0.1)
        assert setup.values(0) == ["a"]

    run(setup, play)


def test_what_is_no_longer_assigned_is_forgotten(tmp_path: Path) -> None:
    setup = Setup(tmp_path, 1, 1)
    setup.logs[0].values, setup.logs[0].first_in_retention = ["a"], 0

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign([0])
        await asyncio.sleep(0.1)
        setup.consumer.assign([1])
        assert (setup.consumer.position(0), setup.consumer.position(1)) == (None, None)
        setup.logs[0].values += ["b"]
        await asyncio.sleep(1)
        assert setup.values(0) == ["a"]
        setup.consumer.assign([0, 1])
        await asyncio.sleep(0.2)
        assert setup.values(0) == ["a", "a", "b"]

    run(setup, play)


def test_a_partition_can_be_read_again(tmp_path: Path) -> None:
    setup = Setup(tmp_path, 1)
    setup.logs[0].values, setup.logs[0].first_in_retention = ["a", "b"], 1

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign([0])
        await asyncio.sleep(0.2)
        setup.consumer.read_again(0)
        setup.consumer.read_again(7)  # not assigned
        assert setup.consumer.position(0) is None
        await asyncio.sleep(0.2)
        assert setup.values(0) == ["b", "b"]

    run(setup, play)


def restarted(directory: Path) -> list[str]:
    """What the next run reads of a log of 40 records that are all within the retention."""
    setup = Setup(directory, 1)
    setup.logs[0].values, setup.logs[0].first_in_retention = [f"{number}" for number in range(40)], 0

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign([0])
        await asyncio.sleep(1)

    run(setup, play)
    return setup.values(0)


def test_a_restart_begins_where_the_last_run_was_some_seconds_before_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_fetcher, "HISTORY_RECORDS_MAX", 10)
    setup = Setup(tmp_path, 1)

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign([0])
        for number in range(40):
            setup.logs[0].values.append(f"{number}")
            await asyncio.sleep(1)

    run(setup, play)
    assert restarted(tmp_path)[0] in ("20", "21")


def test_a_position_of_a_partition_that_was_dropped_meanwhile_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_fetcher, "HISTORY_RECORDS_MAX", 0)
    setup = Setup(tmp_path, 1)
    setup.logs[0].values, setup.logs[0].first_in_retention = ["a", "b"], 0

    async def story(loop: SimLoop) -> None:
        await setup.positions.save(TOPIC_ID, {0: MetadataPosition(1, 3)}, 0.0)
        await setup.positions.save(TOPIC_ID, {0: MetadataPosition(1, 3)}, 20.0)
        setup.lead(-1)
        async with setup.consumer.running():
            setup.consumer.assign([0])
            setup.consumer.assign([])
            setup.consumer.assign([0])
            setup.lead(1)
            await asyncio.sleep(0.1)
        assert setup.values(0) == ["a", "b"]

    simulate(story)


def test_what_is_to_be_read_again_before_it_has_begun_does_not_begin_where_an_earlier_run_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_fetcher, "HISTORY_RECORDS_MAX", 0)
    setup = Setup(tmp_path, 1, 1)
    for log in setup.logs:
        log.values, log.first_in_retention = ["a", "b", "c"], 0

    async def story(loop: SimLoop) -> None:
        read = {0: MetadataPosition(1, 3), 1: MetadataPosition(2, 3)}
        await setup.positions.save(TOPIC_ID, read, 0.0)
        await setup.positions.save(TOPIC_ID, read, 20.0)
        async with setup.consumer.running():
            setup.consumer.assign([0])
            await asyncio.sleep(60)
            setup.consumer.assign([0, 1])
            setup.consumer.read_again(1)
            await asyncio.sleep(0.2)
        assert (setup.values(0), setup.values(1)) == (["b", "c"], ["a", "b", "c"])

    simulate(story)


def test_another_topic_of_that_name_is_read_from_its_past_on(tmp_path: Path) -> None:
    setup = Setup(tmp_path, 1)
    setup.logs[0].values, setup.logs[0].first_in_retention = ["a", "b", "c"], 0

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign([0])
        await asyncio.sleep(0.2)
        setup.logs[0].values = ["x"]
        setup.lead(1, topic_id=UUID(int=0xC0C1))
        assert setup.told[-1] == (-1, [])  # before anything of it is told
        assert setup.consumer.position(0) is None
        await asyncio.sleep(0.2)
        assert setup.values(0) == ["a", "b", "c", "x"]
        assert setup.consumer.position(0) == 1

    run(setup, play)


def test_a_topic_that_is_not_there_for_a_while_is_not_another_one(tmp_path: Path) -> None:
    setup = Setup(tmp_path, 1)

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign([0])
        await asyncio.sleep(0.2)
        before = setup.cache.image
        setup.cache.set_image(image_with())
        setup.cache.set_image(before)
        await asyncio.sleep(0.2)
        assert setup.told == []

    run(setup, play)


def test_what_is_assigned_before_it_runs_is_read_when_it_does(tmp_path: Path) -> None:
    setup = Setup(tmp_path, 1)
    setup.logs[0].values, setup.logs[0].first_in_retention = ["a"], 0
    setup.consumer.assign([0])
    assert setup.connected == []

    async def play(loop: SimLoop) -> None:
        await asyncio.sleep(0.1)
        assert setup.values(0) == ["a"]

    run(setup, play)


@pytest.mark.parametrize("assigned", [[0], [0, 1]])
def test_the_lag_is_that_of_all_partitions(tmp_path: Path, assigned: list[int]) -> None:
    setup = Setup(tmp_path, 1, 1)
    for log in setup.logs:
        log.values, log.first_in_retention = ["a", "b", "c"], 0
    lags = []

    def on_metadata(partition: int, records: Sequence[MetadataRecord]) -> None:
        lags.append(setup.consumer.lag)

    setup.consumer._on_metadata = on_metadata

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign(assigned)
        await asyncio.sleep(0.1)
        assert lags == ([0] if assigned == [0] else [3, 0])

    run(setup, play)


PAST = [f"{number}" for number in range(300)]
LATENCY_S = 0.01  # so that history takes three seconds, a record at a time


def with_a_past(directory: Path, *leaders: int) -> Setup:
    """All of it within the retention, and told a record at a time."""
    setup = Setup(directory, *leaders)
    setup.latency_s = LATENCY_S
    for log in setup.logs:
        log.values, log.first_in_retention, log.records_max = list(PAST), 0, 1
    return setup


def test_history_is_read_beside_the_present(tmp_path: Path) -> None:
    setup = Setup(tmp_path, 1)
    setup.latency_s, log = LATENCY_S, setup.logs[0]
    log.values, log.first_in_retention, log.records_max = list(PAST), 100, 1

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign([0])
        await asyncio.sleep(0.1)
        assert not setup.consumer.has_caught_up(0)
        log.values.append("new")
        await asyncio.sleep(0.6)
        values = setup.values(0)
        assert "new" in values and "299" not in values
        position = setup.consumer.position(0)
        assert position is not None and position < 200
        assert setup.consumer.lag == 300 - position
        await asyncio.sleep(8)
        assert [each for each in setup.values(0) if each != "new"] == PAST[100:]
        assert setup.values(0).count("new") == 1
        assert (setup.consumer.position(0), setup.consumer.lag) == (301, 0)
        assert setup.consumer.has_caught_up(0)
        assert setup.connected == [1, 1]
        assert len(setup.consumer._tasks) == 2  # the reader of the past has ended

    run(setup, play)


def test_reading_again_leaves_the_present_alone(tmp_path: Path) -> None:
    setup = Setup(tmp_path, 1)
    setup.latency_s, log = LATENCY_S, setup.logs[0]

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign([0])
        await asyncio.sleep(0.1)
        log.values += PAST
        await asyncio.sleep(0.6)
        log.first_in_retention, log.records_max = 100, 1
        setup.told.clear()
        setup.consumer.read_again(0)
        assert (setup.consumer.position(0), setup.consumer.has_caught_up(0)) == (None, False)
        await asyncio.sleep(0.1)
        log.values.append("new")
        await asyncio.sleep(0.6)
        assert "new" in setup.values(0) and "299" not in setup.values(0)
        await asyncio.sleep(8)
        assert [each for each in setup.values(0) if each != "new"] == PAST[100:]

    run(setup, play)


def test_who_comes_while_history_is_read_is_told_all_of_it_without_beginning_anew(tmp_path: Path) -> None:
    setup = with_a_past(tmp_path, 1)
    log = setup.logs[0]

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign([0])
        await asyncio.sleep(0.1)
        log.values.append("new")
        await asyncio.sleep(0.6)
        position = setup.consumer.position(0)
        assert position is not None and 0 < position < 200
        setup.consumer.read_again(0)
        setup.consumer.read_again(0)
        assert setup.consumer.position(0) is None
        setup.told.clear()
        await asyncio.sleep(8)
        values = setup.values(0)
        assert values == [*PAST[position:], "new", *PAST[: int(values[-1]) + 1]]
        assert position - 1 <= int(values[-1]) <= position + 1
        assert (setup.consumer.position(0), setup.consumer.has_caught_up(0)) == (301, True)

    run(setup, play)


def test_history_is_read_on_from_a_new_leader_and_ends_with_its_assignment(tmp_path: Path) -> None:
    setup = with_a_past(tmp_path, 1, 2)

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign([0, 1])
        await asyncio.sleep(0.1)
        setup.lead(3, 2, epoch=4)
        await asyncio.sleep(0.1)
        setup.consumer.assign([0])
        await asyncio.sleep(8)
        assert list(dict.fromkeys(setup.values(0))) == PAST
        assert 0 < len(setup.values(1)) < 300

    run(setup, play)


def test_another_topic_of_that_name_ends_the_history_of_the_old_one(tmp_path: Path) -> None:
    setup = with_a_past(tmp_path, 1)
    log = setup.logs[0]

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign([0])
        await asyncio.sleep(0.1)
        log.values = ["x"]
        setup.lead(1, topic_id=UUID(int=0xC0C1))
        setup.told.clear()
        await asyncio.sleep(2)
        assert setup.values(0) == ["x"]
        assert setup.consumer.has_caught_up(0)

    run(setup, play)


def test_a_topic_whose_order_matters_is_read_again_from_its_beginning_on(tmp_path: Path) -> None:
    setup = WholeSetup(tmp_path, 1)
    log = setup.logs[0]
    log.values, log.first_in_retention = list(PAST), 0

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign([0])
        await asyncio.sleep(0.2)
        setup.consumer.read_again(0)
        log.values.append("new")
        await asyncio.sleep(0.2)
        assert setup.values(0) == [*PAST, *PAST, "new"]
        assert setup.connected == [1]

    run(setup, play)


def test_a_restart_in_the_midst_of_history_reads_it_on(tmp_path: Path) -> None:
    """What is remembered is how far all was told, not how far the present is."""
    setup = Setup(tmp_path, 1)
    setup.latency_s, log = LATENCY_S, setup.logs[0]
    log.values, log.first_in_retention, log.records_max = [str(each) for each in range(1_000)], 0, 1
    setup.latency_s = 0.05
    told_until = 0

    async def play(loop: SimLoop) -> None:
        nonlocal told_until
        setup.consumer.assign([0])
        await asyncio.sleep(35)
        log.values += ["new"] * 3
        await asyncio.sleep(1)
        told_until = setup.consumer.position(0) or 0

    run(setup, play)
    assert "new" in setup.values(0) and 600 < told_until < 1_000
    restarted = Setup(tmp_path, 1)
    restarted.logs = setup.logs
    log.records_max = None

    async def play_again(loop: SimLoop) -> None:
        restarted.consumer.assign([0])
        await asyncio.sleep(5)

    run(restarted, play_again)
    first = int(restarted.values(0)[0])
    assert 0 < first <= told_until
    assert restarted.values(0) == [*(str(each) for each in range(first, 1_000)), *["new"] * 3]
