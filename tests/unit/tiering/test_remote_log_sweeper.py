"""The sweep of what deleted topics left: who looks, how long it waits, what it leaves alone, and failures."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from broker.common.chance import Chance
from broker.metadata.broker_registration import BrokerRegistration
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.topics_image import TopicImage, TopicsImage
from broker.tiering.errors import RemoteStorageError
from broker.tiering.remote_log_stats import RemoteLogStats
from broker.tiering.remote_log_sweeper import DIRECTORIES_AT_ONCE, KnownCluster, RemoteLogSweeper
from broker.tiering.remote_storage_manager import PartitionDirectory
from tests.support.sim_loop import EPOCH_MS, SimClock, SimLoop, simulate

HOUR = 3600
KNOWN = UUID(int=1)


class Storage:
    """Directories by name; `error` is raised by the next request."""

    def __init__(self) -> None:
        self.directories: dict[str, PartitionDirectory] = {}
        self.newest: dict[str, int | None] = {}
        self.asked: list[str] = []
        self.listed = 0
        self.error: Exception | None = None
        self.on_deleted: Callable[[], None] = lambda: None

    def add(self, topic: int, partition: int = 0, *, newest_ms: int | None = EPOCH_MS - 24 * HOUR * 1000) -> None:
        name = f"{topic}-{partition}"
        self.directories[name] = PartitionDirectory(name, UUID(int=topic), partition)
        self.newest[name] = newest_ms

    def _fail(self) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error

    async def partition_directories(self) -> Sequence[PartitionDirectory]:
        self.listed += 1
        self._fail()
        return list(self.directories.values())

    async def newest_ms(self, directory: PartitionDirectory) -> int | None:
        self.asked.append(directory.name)
        return self.newest[directory.name]

    async def delete_partition_directory(self, directory: PartitionDirectory) -> int:
        self._fail()
        del self.directories[directory.name]
        self.on_deleted()
        return 6


class World:
    """Broker 1 of 1, 2 and 3, in a cluster with one topic."""

    def __init__(self, loop: SimLoop, broker_id: int = 1) -> None:
        self.loop = loop
        self.storage = Storage()
        self.stats = RemoteLogStats()
        topics = TopicsImage({KNOWN: TopicImage("known", KNOWN)}, {"known": TopicImage("known", KNOWN)})
        brokers = {each: BrokerRegistration(id=each, epoch=each, fenced=False) for each in (1, 2, 3)}
        self.cluster = KnownCluster(MetadataImage(offset=1, brokers=brokers, topics=topics), is_caught_up=True)
        self.sweeper = RemoteLogSweeper(
            broker_id, self.storage, lambda: self.cluster, self.stats, SimClock(loop), Chance(1)
        )

    def fence(self, broker_id: int, *, fenced: bool) -> None:
        brokers = dict(self.cluster.image.brokers)
        brokers[broker_id] = replace(brokers[broker_id], fenced=fenced)
        self.cluster = self.cluster._replace(image=replace(self.cluster.image, brokers=brokers))

    def create(self, *topics: int) -> None:
        by_id = dict(self.cluster.image.topics.by_id)
        by_id.update({UUID(int=topic): TopicImage(f"t{topic}", UUID(int=topic)) for topic in topics})
        self.cluster = self.cluster._replace(image=replace(self.cluster.image, topics=TopicsImage(by_id, {})))

    async def sweep_after(self, seconds: float) -> list[str]:
        self.loop.advance(seconds)
        await self.sweeper.sweep()
        return sorted(self.storage.directories)


def test_what_is_of_no_topic_for_an_hour_is_deleted() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        for topic, partition in ((1, 0), (1, 99), (2, 0), (2, 1)):
            world.storage.add(topic, partition)
        assert len(await world.sweep_after(5)) == 4
        assert world.stats.leaked_topics == 1
        assert len(await world.sweep_after(HOUR - 1)) == 4
        with capture_logs() as logs:
            assert await world.sweep_after(1) == ["1-0", "1-99"]  # partitions of topics that are there stay
        assert [entry["directory"] for entry in logs if entry["event"] == "remote_log_leak_deleted"] == ["2-0", "2-1"]
        assert world.stats.leaked_partitions_deleted == 2
        await world.sweep_after(0)
        assert (world.stats.leaked_topics, world.stats.sweep_errors) == (0, 0)

    simulate(story)


def test_what_was_stored_of_late_stays() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        world.storage.add(2)
        await world.sweep_after(0)
        world.storage.add(2, 1, newest_ms=EPOCH_MS + 600_000)
        assert await world.sweep_after(HOUR) == ["2-1"]
        assert await world.sweep_after(599) == ["2-1"]
        assert await world.sweep_after(1) == []
        assert set(world.storage.asked) == {"2-0", "2-1"}

    simulate(story)


def test_a_topic_that_turns_up_is_left_alone() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        world.storage.add(2)
        await world.sweep_after(0)
        world.create(2)
        assert await world.sweep_after(HOUR) == ["2-0"]
        assert world.stats.leaked_topics == 0

    simulate(story)


@pytest.mark.parametrize("change", [lambda world: world.create(2), lambda world: world.fence(1, fenced=True)])
def test_what_changes_while_something_is_deleted_counts(change: Callable[["World"], None]) -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        world.storage.add(2)
        world.storage.add(2, 1)
        await world.sweep_after(0)
        world.storage.on_deleted = lambda: change(world)
        assert await world.sweep_after(HOUR) == ["2-1"]

    simulate(story)


def test_one_broker_looks_the_lowest_that_is_up() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop, broker_id=2)
        world.storage.add(2)
        await world.sweep_after(0)
        assert world.storage.listed == 0
        world.fence(1, fenced=True)
        await world.sweep_after(0)
        assert world.storage.listed == 1
        world.fence(1, fenced=False)
        await world.sweep_after(HOUR)
        world.fence(1, fenced=True)
        assert await world.sweep_after(0) == ["2-0"]  # what it knew before is not taken for granted
        assert await world.sweep_after(HOUR) == []

    simulate(story)


def test_a_broker_that_may_not_know_everything_does_nothing() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        world.storage.add(2)
        await world.sweep_after(0)
        world.cluster = world.cluster._replace(is_caught_up=False)
        assert world.stats.leaked_topics == 1
        assert await world.sweep_after(2 * HOUR) == ["2-0"]
        assert (world.storage.listed, world.stats.leaked_topics) == (1, 0)
        world.cluster = world.cluster._replace(is_caught_up=True)
        assert await world.sweep_after(0) == ["2-0"]

    simulate(story)


def test_when_most_topics_are_unknown_the_metadata_is_wrong() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        for topic in range(1, 13):
            world.storage.add(topic)
        await world.sweep_after(0)
        with capture_logs() as logs:
            assert len(await world.sweep_after(2 * HOUR)) == 12
        assert [(entry["event"], entry["unknown_topics_at_least"]) for entry in logs] == [
            ("remote_log_sweep_refused", 11)
        ]
        assert world.stats.leaked_topics == 11
        world.create(2, 3, 4, 5, 6)
        assert len(await world.sweep_after(2 * HOUR)) == 12
        assert len(await world.sweep_after(HOUR)) == 6

    simulate(story)


def test_folders_of_deleted_topics_that_are_empty_count_for_nothing() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        for topic in range(2, 30):
            world.storage.add(topic, newest_ms=None)
        world.storage.add(30)
        await world.sweep_after(0)
        assert world.stats.leaked_topics == 1
        assert "30-0" not in await world.sweep_after(HOUR)
        assert world.stats.leaked_partitions_deleted == 1

    simulate(story)


def test_few_at_once() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        for partition in range(200):
            world.storage.add(2, partition, newest_ms=None)  # what is not due stands in nobody's way
            world.storage.add(2, 200 + partition, newest_ms=EPOCH_MS + 24 * HOUR * 1000)
        for partition in range(400, 401 + DIRECTORIES_AT_ONCE):
            world.storage.add(2, partition)
        await world.sweep_after(0)
        assert len(await world.sweep_after(HOUR)) == 401
        assert len(await world.sweep_after(0)) == 400
        assert world.stats.leaked_partitions_deleted == DIRECTORIES_AT_ONCE + 1

    simulate(story)


@pytest.mark.parametrize("error", [RemoteStorageError("no answer"), OSError("a storage manager of one's own")])
def test_a_failure_is_told_once_and_tried_again(error: Exception) -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        world.storage.add(2)
        await world.sweep_after(0)
        with capture_logs() as logs:
            for _ in range(2):
                world.storage.error = error
                assert await world.sweep_after(HOUR) == ["2-0"]
        assert [(entry["event"], entry["log_level"]) for entry in logs] == [
            ("remote_log_sweep_failed", "warning"),
            ("remote_log_sweep_failed", "debug"),
        ]
        assert world.stats.sweep_errors == 2
        assert await world.sweep_after(0) == []

    simulate(story)


def test_the_first_look_waits_and_looks_are_not_all_at_once() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        async with world.sweeper.running():
            await asyncio.sleep(0.74 * HOUR)
            assert world.storage.listed == 0
            await asyncio.sleep(0.52 * HOUR)
            assert world.storage.listed == 1
            await asyncio.sleep(20 * HOUR)
            assert 17 <= world.storage.listed <= 25

    simulate(story)


@pytest.mark.parametrize(("fenced", "lowest"), [((), 1), ((1,), 2), ((1, 2, 3), None)])
def test_who_is_the_lowest(fenced: tuple[int, ...], lowest: int | None) -> None:
    brokers = {each: BrokerRegistration(id=each, epoch=each, fenced=each in fenced) for each in (3, 1, 2)}
    cluster = KnownCluster(MetadataImage(brokers=brokers), is_caught_up=True)
    assert [each for each in (1, 2, 3) if cluster.is_lowest(each)] == ([] if lowest is None else [lowest])
