"""WalMetadataConsumer: reads the metadata partitions assigned to this broker, each from its leader.

Kafka's ConsumerManager of KIP-405, without consumer groups.  One difference: what is new begins by timestamp and not at
the beginning; or, if that would be too much, where an earlier run was.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

from broker.common.clock import Clock
from broker.common.tasks import BackgroundTasks
from broker.replication.replica_fetcher_manager import LeaderAddress
from broker.server.wal.wal_metadata_fetcher import MetadataLeader, WalMetadataFetcher
from broker.server.wal.wal_metadata_positions import MetadataPosition, WalMetadataPositions
from broker.server.wal.wal_metadata_reading import WalMetadataReading
from broker.server.wal.wal_metadata_routes import Route, WalMetadataRoutes
from broker.wal.announce.metadata_topic import MetadataRecord, OnMetadata

SAVE_SECONDS: Final = 10.0


class WalMetadataConsumer:
    """What is assigned and what is read; the fetchers do the reading."""

    def __init__(
        self,
        routes: WalMetadataRoutes,
        connect: Callable[[LeaderAddress], MetadataLeader],
        positions: WalMetadataPositions,
        clock: Clock,
        on_metadata: OnMetadata,
        *,
        retention_ms: int,
    ) -> None:
        self._routes = routes
        self._connect = connect
        self._positions = positions
        self._clock = clock
        self._on_metadata = on_metadata
        self._retention_ms = retention_ms
        self._readings: dict[int, WalMetadataReading] = {}
        self._fetchers: dict[LeaderAddress, WalMetadataFetcher] = {}
        self._tasks = BackgroundTasks("wal-metadata-consumer")
        self._is_running = False
        self._unhurried: frozenset[int] = frozenset()
        self._skipped_before = 0
        self._topic_id: UUID | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator["WalMetadataConsumer"]:
        await self._positions.load()
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
            self._positions.forget(partition)
        for partition in sorted(partitions):
            if partition not in self._readings:
                self._readings[partition] = WalMetadataReading(partition, may_resume=True)
        self._unhurried = frozenset(unhurried)
        self.reroute()

    def read_again(self, partition: int) -> None:
        """See `MetadataTopic.read_again`."""
        if partition in self._readings:
            self._end(partition)
            self._readings[partition] = WalMetadataReading(partition, may_resume=False)
            self.reroute()

    def position(self, partition: int) -> int | None:
        reading = self._readings.get(partition)
        return None if reading is None or reading.position is None else reading.position.offset

    @property
    def lag(self) -> int:
        return sum(reading.lag for reading in self._readings.values())

    @property
    def skipped_batches(self) -> int:
        """Batches that could not be read."""
        return self._skipped_before + sum(reading.skipped_batches for reading in self._readings.values())

    def reroute(self) -> None:
        """Leaders, or what is assigned, may have changed: fetchers that are concerned are woken."""
        if not self._is_running:
            return
        topic_id = self._routes.topic_id
        if None not in (topic_id, self._topic_id) and topic_id != self._topic_id:  # another topic of that name
            self._begin_all_again()
        self._topic_id = topic_id or self._topic_id
        for reading in self._readings.values():
            route = self._routes.route(reading.partition)
            if route is not None and route.leader not in self._fetchers:
                self._start_fetcher(route.leader)
        for fetcher in self._fetchers.values():
            fetcher.wake_for_new()

    def _begin_all_again(self) -> None:
        for partition in list(self._readings):
            self._end(partition)
            self._readings[partition] = WalMetadataReading(partition, may_resume=False)

    def _start_fetcher(self, leader: LeaderAddress) -> None:
        fetcher = self._fetchers[leader] = WalMetadataFetcher(self, leader, self._connect(leader))
        self._tasks.start(f"leader-{leader.broker_id}", fetcher.run())

    def _end(self, partition: int) -> None:
        self._skipped_before += self._readings.pop(partition).skipped_batches

    # For fetchers

    def readings_of(self, leader: LeaderAddress) -> list[tuple[WalMetadataReading, Route]]:
        return [
            (reading, route)
            for reading in self._readings.values()
            if (route := self._routes.route(reading.partition)) is not None and route.leader == leader
        ]

    def is_read_from(self, leader: LeaderAddress, reading: WalMetadataReading) -> bool:
        route = self._routes.route(reading.partition)
        return self._readings.get(reading.partition) is reading and route is not None and route.leader == leader

    def is_unhurried(self, reading: WalMetadataReading) -> bool:
        return reading.partition in self._unhurried

    def remembered(self, reading: WalMetadataReading, route: Route) -> MetadataPosition | None:
        position = self._positions.take(route.topic_id, reading.partition)
        return position if reading.may_resume else None

    def oldest_timestamp(self) -> int:
        return max(0, self._clock.now_ms() - self._retention_ms)

    def tell(self, partition: int, records: Sequence[MetadataRecord]) -> None:
        self._on_metadata(partition, records)

    def retire(self, leader: LeaderAddress) -> bool:
        if self.readings_of(leader):
            return False
        self._fetchers.pop(leader, None)
        return True

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
            reading.partition: reading.position for reading in self._readings.values() if reading.position is not None
        }
        await self._positions.save(topic_id, current, asyncio.get_running_loop().time())
