"""TopicConsumer: reads the metadata partitions assigned to this broker, each from its leader.

Kafka's ConsumerManager of KIP-405, without consumer groups.  Where a partition begins is a `StartingPolicy`'s to say,
and whether what was there before is read first or beside what comes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

from broker.common.identifiers import NO_EPOCH
from broker.common.metadata_topic import MetadataRecord, OnMetadata, OnReplaced
from broker.common.tasks import BackgroundTasks
from broker.replication.replica_fetcher_manager import LeaderAddress
from broker.server.metadata_topic.starting_policy import StartingPolicy
from broker.server.metadata_topic.topic_fetcher import MetadataLeader
from broker.server.metadata_topic.topic_histories import TopicHistories
from broker.server.metadata_topic.topic_positions import MetadataPosition
from broker.server.metadata_topic.topic_reading import TopicReading
from broker.server.metadata_topic.topic_readings import TopicReadings
from broker.server.metadata_topic.topic_routes import Route, TopicRoutes

SAVE_SECONDS: Final = 10.0
ASIDE_RECORDS_MIN: Final = 100  # what is less has come before another connection is made


class TopicConsumer(TopicReadings):
    """What is assigned and what is read; the fetchers do the reading."""

    def __init__(
        self,
        routes: TopicRoutes,
        connect: Callable[[LeaderAddress], MetadataLeader],
        start: StartingPolicy,
        on_metadata: OnMetadata,
        on_replaced: OnReplaced,
    ) -> None:
        tasks = BackgroundTasks("metadata-topic-consumer")
        super().__init__(routes, connect, tasks, "leader")
        self._start = start
        self._on_metadata = on_metadata
        self._on_replaced = on_replaced
        self._histories = TopicHistories(routes, connect, tasks, start.oldest_timestamp, self.tell)
        self._is_running = False
        self._unhurried: frozenset[int] = frozenset()
        self._topic_id: UUID | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator["TopicConsumer"]:
        await self._start.load()
        self._is_running = True
        try:
            async with self._tasks:
                self._tasks.start("save-positions", self._save_regularly())
                self.reroute()
                yield self
        finally:
            self._is_running = False
        await self._save()

    # What to read

    def assign(self, partitions: Collection[int], *, unhurried: Collection[int] = ()) -> None:
        """See `MetadataTopic.assign`."""
        for partition in [each for each in self._readings if each not in partitions]:
            self._end(partition)
            self._histories.drop(partition)
            self._start.forget(partition)
        for partition in sorted(partitions):
            if partition not in self._readings:
                self._begin(self._new_reading(partition, may_resume=True))
        self._unhurried = frozenset(unhurried)
        self.reroute()

    def read_again(self, partition: int) -> None:
        """See `MetadataTopic.read_again`."""
        reading = self._readings.get(partition)
        if reading is None:
            return
        if self._start.keeps_order:
            self._begin(self._new_reading(partition, may_resume=False))
        elif reading.position is None:
            reading.may_resume = False
        else:
            self._histories.read(partition, reading.position.offset)
        self.reroute()

    def position(self, partition: int) -> int | None:
        """See `MetadataTopic.position`."""
        reading = self._readings.get(partition)
        position = None if reading is None else self._told(reading)
        return None if position is None else position.offset

    def _told(self, reading: TopicReading) -> MetadataPosition | None:
        """Behind what is told without a gap."""
        is_aside = reading.position is not None and reading.partition in self._histories
        return self._histories.position(reading.partition) if is_aside else reading.position

    def has_caught_up(self, partition: int) -> bool:
        """See `MetadataTopic.has_caught_up`."""
        reading = self._readings.get(partition)
        if reading is None or reading.position is None or partition in self._histories:
            return False
        return not reading.is_in_history

    @property
    def lag(self) -> int:
        return super().lag + self._histories.lag

    @property
    def skipped_batches(self) -> int:
        """Batches that could not be read."""
        return super().skipped_batches + self._histories.skipped_batches

    def reroute(self) -> None:
        """Leaders, or what is assigned, may have changed: fetchers that are concerned are woken."""
        if not self._is_running:
            return
        topic_id = self._routes.topic_id
        if None not in (topic_id, self._topic_id) and topic_id != self._topic_id:  # another topic of that name
            self._begin_all_again()
        self._topic_id = topic_id or self._topic_id
        self._wake_fetchers()
        self._histories.reroute()

    def _begin_all_again(self) -> None:
        for partition in list(self._readings):
            self._histories.drop(partition)
            self._begin(self._new_reading(partition, may_resume=False))
        self._on_replaced()

    def _new_reading(self, partition: int, *, may_resume: bool) -> TopicReading:
        return TopicReading(self.topic, partition, may_resume=may_resume)

    # For fetchers

    def is_unhurried(self, reading: TopicReading) -> bool:
        return reading.partition in self._unhurried

    def remembered(self, reading: TopicReading, route: Route) -> MetadataPosition | None:
        position = self._start.take(route.topic_id, reading.partition)
        return position if reading.may_resume else None

    def oldest_timestamp(self) -> int:
        return self._start.oldest_timestamp()

    def place(self, reading: TopicReading, beginning: MetadataPosition, end_offset: int) -> None:
        if self._start.keeps_order or end_offset - beginning.offset <= ASIDE_RECORDS_MIN:
            self._histories.drop(reading.partition)
            reading.begin_at(beginning)
        else:
            reading.begin_at(MetadataPosition(end_offset, NO_EPOCH))
            self._histories.begin(reading.partition, beginning, end_offset)

    def finished(self, reading: TopicReading) -> None:
        raise AssertionError(f"{reading.partition} is read on and on")

    def tell(self, partition: int, records: Sequence[MetadataRecord]) -> None:
        self._on_metadata(partition, records)

    # Positions

    async def _save_regularly(self) -> None:
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            await self._save()

    async def _save(self) -> None:
        topic_id = self._routes.topic_id
        if topic_id is None:
            return
        current = {
            reading.partition: position
            for reading in self._readings.values()
            if (position := self._told(reading)) is not None
        }
        await self._start.save(topic_id, current, asyncio.get_running_loop().time())
