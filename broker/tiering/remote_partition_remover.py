"""RemotePartitionRemover: deletes all that remote storage has of a partition (Kafka: deleteRemoteLogPartition).

For a topic that is deleted, or not tiered any more; of each partition the leader does it.  Kafka waits for it where it
follows the cluster's metadata; here it goes on in the background, for as long as this process lives.  What is left then
of a deleted topic is found by `RemoteLogSweeper`, of another by the partition's next leader.

A topic that was tiered no more may be tiered again before all of that has happened, and a broker that led it until
then, and was paused, may still tell of any segment that it is deleted.  Nobody may go by such a copy, and delete the
records from its disk: so who leads now tells of all of them, and whoever follows waits for that (`RemovalPurpose`).

As in Kafka nobody is told of the partition itself (RemotePartitionDeleteMetadata): its segments tell all.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from enum import Enum, auto
from itertools import islice
from typing import Final, Protocol
from uuid import UUID

import structlog

from broker.common.chance import Chance
from broker.common.clock import Clock
from broker.common.errors import KafkaError, ReplicaNotAvailableError
from broker.common.identifiers import TopicIdPartition
from broker.common.tasks import BackgroundTasks
from broker.schemas.remote_log_metadata import RemoteLogSegmentState
from broker.tiering.remote_log_metadata_manager import RemoteLogMetadataManager
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate
from broker.tiering.remote_log_stats import RemoteLogStats
from broker.tiering.remote_storage_manager import RemoteStorageManager

log = structlog.get_logger(__name__)

PARTITIONS_AT_ONCE: Final = 4
SEGMENTS_AT_ONCE: Final = 16  # of one partition: events that are waited for, or deletions under way
RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 60.0

_DELETING: Final = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_DELETED: Final = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED

Segments = Sequence[RemoteLogSegmentMetadata]


class CachedIndexes(Protocol):
    """What it needs of the index cache."""

    def remove(self, segment_ids: Iterable[UUID]) -> None: ...


class RemovalPurpose(Enum):
    """What is done with segments, and with which."""

    TOPIC_DELETED = auto()  # all that are listed, at any time, are deleted
    TIERED_NO_MORE = auto()  # so are those known when it began, and those that this broker itself has begun to copy
    TIERED_AGAIN = auto()  # those are told of; their data is left to the leader's next look at what has expired
    FOLLOWED_NO_MORE = auto()  # another broker leads the partition, and deletes those known when it began
    FOLLOWED_AGAIN = auto()  # it tells of those that were known before the topic was tiered again

    @property
    def leads(self) -> bool:
        return self not in (RemovalPurpose.FOLLOWED_NO_MORE, RemovalPurpose.FOLLOWED_AGAIN)

    @property
    def deletes(self) -> bool:
        return self in (RemovalPurpose.TOPIC_DELETED, RemovalPurpose.TIERED_NO_MORE)


class _Removal:
    """`known` are the segments it is about; None until they are listed."""

    task: "asyncio.Task[None]"

    def __init__(
        self, partition: TopicIdPartition, purpose: RemovalPurpose, from_offset: int, known: frozenset[UUID] | None
    ) -> None:
        self.partition = partition
        self.purpose = purpose
        self.from_offset = from_offset
        self.known = known
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_failing = False

    @property
    def name(self) -> str:
        return str(self.partition.topic_partition)


class RemotePartitionRemover:
    """Few partitions at once.  What fails is tried again, ever more slowly, until nothing is listed any more.

    So the metadata manager must answer for a partition until its removal is done.

    A topic that is there may be tiered again, and have another leader that copies, before this broker hears of it.  So
    of such a one that is deleted which was known when it began, and what this broker itself has begun to copy.
    """

    def __init__(
        self,
        local_broker_id: int,
        metadata: RemoteLogMetadataManager,
        storage: RemoteStorageManager,
        indexes: CachedIndexes,
        stats: RemoteLogStats,
        clock: Clock,
        chance: Chance,
    ) -> None:
        self._local_broker_id = local_broker_id
        self._metadata = metadata
        self._storage = storage
        self._indexes = indexes
        self._stats = stats
        self._clock = clock
        self._chance = chance
        self._tasks = BackgroundTasks("remote-partition-remover")
        self._turns = asyncio.Semaphore(PARTITIONS_AT_ONCE)
        self._removals: dict[TopicIdPartition, _Removal] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What is not removed at the end stays; whoever waits for it is cancelled."""
        async with self._tasks:
            yield

    def __len__(self) -> int:
        """Partitions that are to be removed, and are not yet."""
        return len(self._removals)

    def __contains__(self, partition: TopicIdPartition) -> bool:
        return partition in self._removals

    def remove(
        self, partition: TopicIdPartition, purpose: RemovalPurpose, *, from_offset: int = 0
    ) -> "asyncio.Future[None]":
        """Begin; the future is done when nothing is left.  Again while it goes on is the same; for another purpose it
        begins anew, and whoever waits is cancelled.

        What is to be told of, or waited for, is what was known to the removal that goes on; and only segments that
        begin at `from_offset` or above it.
        """
        going_on = self._removals.get(partition)
        if going_on is not None and going_on.purpose is purpose and not going_on.task.done():
            return going_on.done
        self.stop(partition)
        known = None if going_on is None or purpose.deletes else going_on.known
        if known is None and purpose is RemovalPurpose.FOLLOWED_AGAIN:
            known = frozenset()  # what is listed later may be new copies, and nobody would ever tell of them
        removal = self._removals[partition] = _Removal(partition, purpose, from_offset, known)
        removal.task = self._tasks.start(removal.name, self._remove(removal))

        def finished(task: asyncio.Task[None]) -> None:
            if self._removals.get(partition) is removal:
                del self._removals[partition]
            if task.cancelled() or task.exception() is not None:
                removal.done.cancel()
            elif not removal.done.done():
                removal.done.set_result(None)

        removal.task.add_done_callback(finished)
        return removal.done

    def stop(self, partition: TopicIdPartition) -> None:
        """Leave what is not deleted yet, at once; whoever waits is cancelled.

        A segment whose deletion was begun stays in DELETE_SEGMENT_STARTED, and the leader's next look at what has
        expired, or the next removal, deletes it.
        """
        removal = self._removals.pop(partition, None)
        if removal is not None:
            removal.task.cancel()
            removal.done.cancel()

    async def _remove(self, removal: _Removal) -> None:
        wait_seconds = RETRY_SECONDS
        while not await self._try(removal):
            await asyncio.sleep(wait_seconds * (0.5 + self._chance.random()))
            wait_seconds = min(2 * wait_seconds, RETRY_SECONDS_MAX)
            if removal.purpose is RemovalPurpose.FOLLOWED_AGAIN and wait_seconds == RETRY_SECONDS_MAX:
                self._say_that_it_waits(removal)
        if removal.purpose.deletes:
            log.info("remote_partition_removed", partition=removal.name)

    def _say_that_it_waits(self, removal: _Removal) -> None:
        if not removal.is_failing:
            log.warning("remote_partition_removal_awaited", partition=removal.name)
        removal.is_failing = True

    async def _try(self, removal: _Removal) -> bool:
        """Whether nothing is left.  A failure is told once, for a bucket may be away for hours.

        Managers of one's own may raise anything.
        """
        try:
            async with self._turns:
                segments = await self._list(removal)
                await self._remove_segments(removal, segments)
                return not segments or not await self._list(removal)
        except ReplicaNotAvailableError as error:  # what is known of the partition is being read
            log.debug("remote_partition_removal_put_off", partition=removal.name, error=str(error))
        except Exception as error:
            say = log.debug if removal.is_failing else log.warning
            removal.is_failing = True
            is_expected = isinstance(error, KafkaError)
            say("remote_partition_removal_failed", partition=removal.name, error=str(error), exc_info=not is_expected)
        return False

    async def _list(self, removal: _Removal) -> Segments:
        """What is still to be removed."""
        segments = await self._metadata.list_remote_log_segments(removal.partition)
        if removal.purpose is RemovalPurpose.TOPIC_DELETED:
            return segments
        if removal.known is None:
            removal.known = frozenset(segment.segment_id for segment in segments)
        if removal.purpose is RemovalPurpose.TIERED_NO_MORE:
            own = (segment.segment_id for segment in segments if segment.broker_id == self._local_broker_id)
            removal.known = removal.known.union(own)
            return [segment for segment in segments if segment.segment_id in removal.known]
        return [
            segment
            for segment in segments
            if segment.segment_id in removal.known
            and segment.state is not _DELETING
            and segment.start_offset >= removal.from_offset
        ]

    async def _remove_segments(self, removal: _Removal, segments: Segments) -> None:
        """First nobody is to read any of them, then they are deleted.  The first error when some are left."""
        if not removal.purpose.leads:
            return
        self._indexes.remove(segment.segment_id for segment in segments)
        readable = [segment for segment in segments if segment.state is not _DELETING]
        await self._each(readable, lambda segment: self._tell(segment, _DELETING))
        if removal.purpose.deletes:
            await self._each(segments, self._delete)

    async def _each(
        self, segments: Segments, do: Callable[[RemoteLogSegmentMetadata], Awaitable[Exception | None]]
    ) -> None:
        """Some at once, and the others even if one fails, but not after so many that nothing seems to work."""
        waiting, failed = iter(segments), list[Exception]()
        while some := list(islice(waiting, SEGMENTS_AT_ONCE)):
            errors = [error for error in await asyncio.gather(*map(do, some)) if error is not None]
            failed += errors
            if len(errors) == len(some):
                break
        if failed:
            raise failed[0]

    async def _delete(self, segment: RemoteLogSegmentMetadata) -> Exception | None:
        counts = self._stats.topics.get(segment.partition.topic, self._stats.unknown)
        counts.delete_requests += 1
        try:
            await self._storage.delete_log_segment_data(segment)
        except Exception as error:
            counts.delete_errors += 1
            return error
        return await self._tell(segment, _DELETED)

    async def _tell(self, segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState) -> Exception | None:
        try:
            await self._metadata.update_remote_log_segment_metadata(
                RemoteLogSegmentMetadataUpdate(
                    partition=segment.partition,
                    segment_id=segment.segment_id,
                    broker_id=self._local_broker_id,
                    event_timestamp_ms=self._clock.now_ms(),
                    state=state,
                )
            )
        except Exception as error:
            return error
        return None
