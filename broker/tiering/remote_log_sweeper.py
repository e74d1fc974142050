"""RemoteLogSweeper: finds what remote storage has of topics that are deleted, and deletes it.

The leader of a partition deletes what is remote when its topic is deleted; what it could not delete before it died, or
was down for, nobody would ever look for again (KIP-405 plans a remover in the controller, which Kafka never got).

Of topics that are there nothing is touched: a segment that no metadata tells of may be one whose metadata is late.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple
from uuid import UUID

import structlog

from broker.common.chance import Chance
from broker.common.clock import Clock
from broker.common.errors import KafkaError
from broker.common.tasks import BackgroundTasks
from broker.metadata.metadata_image import MetadataImage
from broker.tiering.remote_log_stats import RemoteLogStats
from broker.tiering.remote_storage_manager import PartitionDirectory, StoresDirectories

log = structlog.get_logger(__name__)

INTERVAL_SECONDS: Final = 3600.0
UNKNOWN_SECONDS: Final = 3600.0  # how long a topic must have been unknown, and nothing been stored of it
DIRECTORIES_AT_ONCE: Final = 100  # deleted in one look; the next one finds the others
SUSPICIOUS_TOPICS: Final = 10


class KnownCluster(NamedTuple):
    """What this broker knows of its cluster.

    `is_caught_up`: it is registered and not fenced, and has applied all metadata the controllers have committed.
    """

    image: MetadataImage
    is_caught_up: bool

    def is_known(self, topic_id: UUID) -> bool:
        return self.image.topics.topic_by_id(topic_id) is not None

    def is_lowest(self, broker_id: int) -> bool:
        """Whether no broker that is up has a lower id."""
        up = (each for each, registration in self.image.brokers.items() if not registration.fenced)
        return broker_id == min(up, default=None)


class _Leak(NamedTuple):
    directory: PartitionDirectory
    newest_ms: int


class RemoteLogSweeper:
    """One broker looks, the lowest id that is up.

    A topic counts as deleted when it has been unknown to this process for an hour and nothing was stored of it for as
    long: a topic just created, metadata just lost, or a start, delete nothing.  When most topics are unknown, and they
    are many, it is the metadata that is wrong, and nothing is deleted.
    """

    def __init__(
        self,
        local_broker_id: int,
        storage: StoresDirectories,
        cluster: Callable[[], KnownCluster],
        stats: RemoteLogStats,
        clock: Clock,
        chance: Chance,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self._local_broker_id = local_broker_id
        self._storage = storage
        self._cluster = cluster
        self._stats = stats
        self._clock = clock
        self._chance = chance
        self._interval_seconds = interval_seconds
        self._unknown_since: dict[UUID, float] = {}  # in seconds of the event loop
        self._is_failing = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The first look is an interval after the start, more or less."""
        async with BackgroundTasks("remote-log-sweeper") as tasks:
            tasks.start("sweep", self._run())
            yield

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_seconds * (0.75 + 0.5 * self._chance.random()))
            await self.sweep()

    async def sweep(self) -> None:
        """One look; a failure is told once, and the next look is another try.

        A storage manager of one's own may raise anything.
        """
        if not self._may_sweep():
            self._unknown_since.clear()
            self._stats.leaked_topics = 0
            return
        try:
            for directory in self._due(await self._leaks()):
                await self._delete(directory)
        except Exception as error:
            self._stats.sweep_errors += 1
            say = log.debug if self._is_failing else log.warning
            say("remote_log_sweep_failed", error=str(error), exc_info=not isinstance(error, KafkaError))
            self._is_failing = True
        else:
            self._is_failing = False

    def _may_sweep(self) -> bool:
        cluster = self._cluster()
        return cluster.is_caught_up and cluster.is_lowest(self._local_broker_id)

    async def _leaks(self) -> Mapping[UUID, Sequence[_Leak]]:
        """What is stored of topics that are unknown now, by topic; nothing when it cannot be believed."""
        directories = await self._storage.partition_directories()
        topics = {directory.topic_id for directory in directories}
        known = {topic_id for topic_id in topics if self._cluster().is_known(topic_id)}
        leaks: dict[UUID, list[_Leak]] = {}
        for directory in directories:
            newest_ms = None if directory.topic_id in known else await self._storage.newest_ms(directory)
            if newest_ms is not None:  # some stores show a folder for a while when it is empty
                leaks.setdefault(directory.topic_id, []).append(_Leak(directory, newest_ms))
            self._stats.leaked_topics = len(leaks)
            if len(leaks) > max(SUSPICIOUS_TOPICS, len(known)):
                log.warning("remote_log_sweep_refused", known_topics=len(known), unknown_topics_at_least=len(leaks))
                return {}
        return leaks

    def _due(self, leaks: Mapping[UUID, Sequence[_Leak]]) -> list[PartitionDirectory]:
        """Those to delete now; it is known from now on since when their topics are unknown."""
        now, now_ms = asyncio.get_running_loop().time(), self._clock.now_ms()
        self._unknown_since = {topic_id: self._unknown_since.get(topic_id, now) for topic_id in leaks}
        due = [
            leak.directory
            for topic_id, of_topic in leaks.items()
            for leak in of_topic
            if now - self._unknown_since[topic_id] >= UNKNOWN_SECONDS
            and now_ms - leak.newest_ms >= UNKNOWN_SECONDS * 1000
        ]
        return due[:DIRECTORIES_AT_ONCE]

    async def _delete(self, directory: PartitionDirectory) -> None:
        """Unless something has changed meanwhile."""
        if not self._may_sweep() or self._cluster().is_known(directory.topic_id):
            return
        objects = await self._storage.delete_partition_directory(directory)
        self._stats.leaked_partitions_deleted += 1
        log.info("remote_log_leak_deleted", directory=directory.name, objects=objects)
