"""TopicReadings: metadata partitions that are read, and a fetcher for each of their leaders."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from broker.common.metadata_topic import MetadataRecord
from broker.common.tasks import BackgroundTasks
from broker.replication.replica_fetcher_manager import LeaderAddress
from broker.server.metadata_topic.topic_fetcher import MetadataLeader, TopicFetcher
from broker.server.metadata_topic.topic_positions import MetadataPosition
from broker.server.metadata_topic.topic_reading import TopicReading
from broker.server.metadata_topic.topic_routes import Route, TopicRoutes


class TopicReadings(ABC):
    """The `FetcherOwner`; what is read, and from where on, is said by who derives from it.

    `tasks` are those of the fetchers, each `<fetcher_name>-<leader>`.
    """

    def __init__(
        self,
        routes: TopicRoutes,
        connect: Callable[[LeaderAddress], MetadataLeader],
        tasks: BackgroundTasks,
        fetcher_name: str,
    ) -> None:
        self._routes = routes
        self._connect = connect
        self._tasks = tasks
        self._fetcher_name = fetcher_name
        self._readings: dict[int, TopicReading] = {}
        self._fetchers: dict[LeaderAddress, TopicFetcher] = {}
        self._skipped_before = 0

    @property
    def lag(self) -> int:
        return sum(reading.lag for reading in self._readings.values())

    @property
    def skipped_batches(self) -> int:
        """Batches that could not be read."""
        return self._skipped_before + sum(reading.skipped_batches for reading in self._readings.values())

    def _begin(self, reading: TopicReading) -> None:
        """Instead of what was read of its partition."""
        self._end(reading.partition)
        self._readings[reading.partition] = reading

    def _end(self, partition: int) -> None:
        ended = self._readings.pop(partition, None)
        if ended is not None:
            self._skipped_before += ended.skipped_batches

    def _wake_fetchers(self) -> None:
        """Leaders, or what is read, may have changed."""
        for reading in self._readings.values():
            route = self._routes.route(reading.partition)
            if route is not None and route.leader not in self._fetchers:
                self._start_fetcher(route.leader)
        for fetcher in self._fetchers.values():
            fetcher.wake_for_new()

    def _start_fetcher(self, leader: LeaderAddress) -> None:
        fetcher = self._fetchers[leader] = TopicFetcher(self, leader, self._connect(leader))
        self._tasks.start(f"{self._fetcher_name}-{leader.broker_id}", fetcher.run())

    # For fetchers

    @property
    def topic(self) -> str:
        return self._routes.topic

    def readings_of(self, leader: LeaderAddress) -> list[tuple[TopicReading, Route]]:
        return [
            (reading, route)
            for reading in self._readings.values()
            if (route := self._routes.route(reading.partition)) is not None and route.leader == leader
        ]

    def is_read_from(self, leader: LeaderAddress, reading: TopicReading) -> bool:
        route = self._routes.route(reading.partition)
        return self._readings.get(reading.partition) is reading and route is not None and route.leader == leader

    def retire(self, leader: LeaderAddress) -> bool:
        if self.readings_of(leader):
            return False
        self._fetchers.pop(leader, None)
        return True

    @abstractmethod
    def is_unhurried(self, reading: TopicReading) -> bool: ...

    @abstractmethod
    def remembered(self, reading: TopicReading, route: Route) -> MetadataPosition | None: ...

    @abstractmethod
    def oldest_timestamp(self) -> int: ...

    @abstractmethod
    def place(self, reading: TopicReading, beginning: MetadataPosition, end_offset: int) -> None: ...

    @abstractmethod
    def finished(self, reading: TopicReading) -> None: ...

    @abstractmethod
    def tell(self, partition: int, records: Sequence[MetadataRecord]) -> None: ...
