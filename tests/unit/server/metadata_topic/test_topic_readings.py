import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from broker.common.identifiers import TopicPartition
from broker.common.metadata_topic import MetadataRecord
from broker.common.tasks import BackgroundTasks
from broker.replication.leader_endpoint import FetchedPartition, FollowerFetch
from broker.replication.replica_fetcher_manager import LeaderAddress
from broker.server.metadata_topic.topic_endpoint import FoundOffset
from broker.server.metadata_topic.topic_positions import MetadataPosition
from broker.server.metadata_topic.topic_reading import TopicReading
from broker.server.metadata_topic.topic_readings import TopicReadings
from broker.server.metadata_topic.topic_routes import Route
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.metadata_topic_support import World, address


class Leader:
    """Has nothing to tell."""

    def __init__(self) -> None:
        self.is_closed = False

    async def fetch(
        self, requests: dict[TopicPartition, FollowerFetch], *, max_wait_ms: int
    ) -> Mapping[TopicPartition, FetchedPartition]:
        await asyncio.sleep(max_wait_ms / 1000)
        return {}

    def begin_anew(self) -> None: ...

    async def list_offsets(self, epochs: Mapping[int, int], timestamp: int) -> dict[int, FoundOffset]:
        raise AssertionError("all have a position")

    async def close(self) -> None:
        self.is_closed = True


class Readings(TopicReadings):
    def begin(self, partition: int) -> TopicReading:
        reading = TopicReading(self.topic, partition, may_resume=False)
        reading.end_offset = 9
        reading.begin_at(MetadataPosition(5, 3))
        self._begin(reading)
        self._wake_fetchers()
        return reading

    def is_unhurried(self, reading: TopicReading) -> bool:
        return False

    def remembered(self, reading: TopicReading, route: Route) -> MetadataPosition | None:
        return None

    def oldest_timestamp(self) -> int:
        return 0

    def place(self, reading: TopicReading, beginning: MetadataPosition, end_offset: int) -> None: ...
    def finished(self, reading: TopicReading) -> None: ...
    def tell(self, partition: int, records: Sequence[MetadataRecord]) -> None: ...


class Setup(World):
    """Partitions 0 and 1 are led by broker 1, partition 2 by broker 2."""

    def __init__(self, tasks: BackgroundTasks) -> None:
        super().__init__(1, 1, 2)
        self.tasks = tasks
        self.leaders: dict[int, Leader] = {}
        self.readings = Readings(self.routes, self.connect, tasks, "reader")

    def connect(self, leader: LeaderAddress) -> Leader:
        made = self.leaders[leader.broker_id] = Leader()
        return made

    @property
    def task_names(self) -> list[str]:
        return sorted(task.get_name() for task in self.tasks._tasks)


def run(play: Callable[[Setup], Coroutine[Any, Any, None]]) -> None:
    async def story(loop: SimLoop) -> None:
        async with BackgroundTasks("test") as tasks:
            await play(Setup(tasks))

    simulate(story)


def test_each_leader_has_a_fetcher_that_ends_with_what_is_read_from_it() -> None:
    async def play(setup: Setup) -> None:
        for partition in range(3):
            setup.readings.begin(partition)
        assert setup.task_names == ["test:reader-1", "test:reader-2"]
        assert [each.partition for each, _ in setup.readings.readings_of(address(1))] == [0, 1]
        setup.readings._end(2)
        await asyncio.sleep(1)
        assert setup.task_names == ["test:reader-1"]
        assert (setup.leaders[1].is_closed, setup.leaders[2].is_closed) == (False, True)

    run(play)


def test_a_reading_that_is_begun_again_is_another_one() -> None:
    async def play(setup: Setup) -> None:
        first = setup.readings.begin(0)
        second = setup.readings.begin(0)
        assert not setup.readings.is_read_from(address(1), first)
        assert setup.readings.is_read_from(address(1), second)
        assert not setup.readings.is_read_from(address(2), second)

    run(play)


def test_what_lags_and_what_was_skipped_is_that_of_all_and_ends_are_remembered() -> None:
    async def play(setup: Setup) -> None:
        for partition in range(2):
            setup.readings.begin(partition).skipped_batches = 1 + partition
        assert (setup.readings.lag, setup.readings.skipped_batches) == (8, 3)
        setup.readings._end(0)
        setup.readings._end(0)
        assert (setup.readings.lag, setup.readings.skipped_batches) == (4, 3)

    run(play)
