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
from broker.records.memory_records_builder import records_batch
from broker.replication.leader_endpoint import FetchedPartition, FollowerFetch
from broker.replication.replica_fetcher_manager import LeaderAddress
from broker.server.wal import wal_metadata_fetcher
from broker.server.wal.wal_metadata_consumer import WalMetadataConsumer
from broker.server.wal.wal_metadata_endpoint import FoundOffset
from broker.server.wal.wal_metadata_positions import MetadataPosition, WalMetadataPositions
from broker.wal.announce.metadata_topic import MetadataRecord
from tests.support.builders import NOW_MS, SettableClock
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.wal_metadata_support import TOPIC_ID, World, metadata

RETENTION_MS = 60_000


class Log:
    """One partition, wherever it is led: a record per offset, all of them old."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self.first_in_retention: int | None = None


class Setup(World):
    """Leaders share the logs, as replicas do."""

    def __init__(self, directory: Path, *leaders: int) -> None:
        super().__init__(*leaders)
        self.logs = [Log() for _ in leaders]
        self.told: list[tuple[int, list[MetadataRecord]]] = []
        self.connected: list[int] = []
        self.listed: list[tuple[int, list[int], int]] = []
        self.positions = WalMetadataPositions(OsFileSystem(), InlineDiskExecutor(), directory, read_again_seconds=15)
        self.consumer = WalMetadataConsumer(
            self.routes,
            self.connect,
            self.positions,
            SettableClock(),
            self.on_metadata,
            retention_ms=RETENTION_MS,
        )
        self.cache.add_listener(lambda image: self.consumer.reroute())

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
        await asyncio.sleep(0.001)
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
        entries = [(1_000, None, value.encode()) for value in values[request.fetch_offset :]]
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
    monkeypatch.setattr(wal_metadata_fetcher, "HISTORY_RECORDS_MAX", 10)
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
    monkeypatch.setattr(wal_metadata_fetcher, "HISTORY_RECORDS_MAX", 0)
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


def test_another_topic_of_that_name_is_read_from_its_past_on(tmp_path: Path) -> None:
    setup = Setup(tmp_path, 1)
    setup.logs[0].values, setup.logs[0].first_in_retention = ["a", "b", "c"], 0

    async def play(loop: SimLoop) -> None:
        setup.consumer.assign([0])
        await asyncio.sleep(0.2)
        setup.logs[0].values = ["x"]
        setup.lead(1, topic_id=UUID(int=0xC0C1))
        await asyncio.sleep(0.2)
        assert setup.values(0) == ["a", "b", "c", "x"]
        assert setup.consumer.position(0) == 1

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
