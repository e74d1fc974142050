"""RemoteWalMetadataPublisher: tells of objects on the metadata topic, and of what a new leader voids.

An object is announced once it is stored, never before, and then until the announcement is acknowledged: a pointer
must not get lost while its object is there.  Announcing it twice is harmless, for slices have ids.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

import structlog

from broker.common.clock import Clock
from broker.common.identifiers import TopicIdPartition
from broker.common.metadata_topic import MetadataTopic, MetadataTopicError
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.schemas.remote_metadata_partitioner import combined_event_partition_of, metadata_partition_of
from broker.schemas.remote_wal_metadata import (
    RemoteWalCombinedLogSegmentMetadataRecord,
    RemoteWalPartitionInvalidateRecord,
    TopicIdPartitionEntry,
    encode,
    slice_record,
)
from broker.wal.remote_wal_stats import RemoteWalStats, WalHop

log = structlog.get_logger(__name__)

FAILING_SECONDS: Final = 1.0  # without an acknowledgement: records must then reach followers another way
RETRY_SECONDS: Final = 0.1  # the topic itself waits and tries again: only what it refuses at once comes here
RETRY_SECONDS_MAX: Final = 1.0
BREATHE_SECONDS: Final = 0.001
UNTOLD_MAX: Final = 64  # objects; more can be announced only by a broker that has no time for what nobody needs
APPEND_BYTES_MAX: Final = 256 * 1024  # in one append, so that it fits into a batch whatever the object is like


class RemoteWalMetadataPublisher:
    """`is_failing` and `last_error_age` are for those who decide whether followers get records from the leader."""

    def __init__(
        self,
        topic: MetadataTopic,
        config: ConfigHolder[BrokerConfig],
        local_broker_id: int,
        clock: Clock,
        stats: RemoteWalStats,
    ) -> None:
        self._topic = topic
        self._config = config
        self._local_broker_id = local_broker_id
        self._clock = clock
        self._stats = stats
        self._waiting: dict[int, float] = {}  # since when, oldest first
        self._numbers = itertools.count()
        self._untold: deque[RemoteWalCombinedLogSegmentMetadataRecord] = deque()  # announced, and not its slices
        self._is_telling = False
        self._worked_since = 0.0  # since when nobody else could run
        self._last_error_at: float | None = None
        self._has_failed = False  # since the last acknowledgement
        self._missing_since: float | None = None  # the topic, as far as somebody has asked
        self.error_count = 0
        self.slice_error_count = 0  # appends of slice events that were refused or left out, and are not repeated

    async def publish(self, metadata: RemoteWalCombinedLogSegmentMetadataRecord, event: bytes | None = None) -> None:
        """Announce an object until that is acknowledged, or this is cancelled; what was sent may then still arrive.

        `event` is the metadata encoded, where somebody has done that already.
        """
        value = event or encode(metadata)
        async with self._waiting_for_acknowledgement():
            place = combined_event_partition_of(metadata.broker_id, await self._partition_count())
            backoff = RETRY_SECONDS
            while not await self._append(place, value):
                await asyncio.sleep(backoff)
                backoff = min(2 * backoff, RETRY_SECONDS_MAX)

    async def publish_slices(self, metadata: RemoteWalCombinedLogSegmentMetadataRecord) -> None:
        """The events of its slices, behind those of objects that were announced before.  Nobody waits for them to be
        acknowledged: whoever reads the event of the object has no need of them.
        """
        if not self._config.current.remote_wal_metadata_slice_events_enable:
            return
        if len(self._untold) >= UNTOLD_MAX:
            self.slice_error_count += 1
            return
        self._untold.append(metadata)
        if self._is_telling:
            return  # whoever is at it goes on with these
        self._is_telling = True
        self._worked_since = self._now()
        try:
            while self._untold:
                await self._tell_slices(self._untold.popleft())
        finally:
            self._is_telling = False

    def publish_invalidate(self, partition: TopicIdPartition, leader_epoch: int, from_offset: int) -> None:
        """Void what earlier leaders announced from an offset on (key 7).  Nobody waits for it to be acknowledged, and
        nothing fails without it: it spares followers questions to the leader.
        """
        count = self._topic.partition_count
        if count is None:
            return  # nothing was announced either
        record = RemoteWalPartitionInvalidateRecord(
            topic_id_partition=TopicIdPartitionEntry.of(partition),
            broker_id=self._local_broker_id,
            leader_epoch=leader_epoch,
            from_offset=from_offset,
            event_timestamp_ms=self._clock.now_ms(),
        )
        place = metadata_partition_of(partition.topic_id, partition.partition, count)
        self._topic.append(place, (encode(record),)).add_done_callback(_invalidation_ended)

    @property
    def oldest_wait_seconds(self) -> float:
        """How long the oldest event has been waiting for its acknowledgement; 0 without any."""
        return self._now() - next(iter(self._waiting.values())) if self._waiting else 0.0

    @property
    def last_error_age(self) -> float | None:
        """Seconds since an append was last refused; None when none ever was."""
        return None if self._last_error_at is None else self._now() - self._last_error_at

    @property
    def is_ready(self) -> bool:
        """Whether there is a topic: without one nobody can be told of an object, which had better not be made."""
        if self._topic.partition_count is not None:
            self._missing_since = None
            return True
        if self._missing_since is None:
            self._missing_since = self._now()
        return False

    @property
    def is_failing(self) -> bool:
        """Whether the last thing heard was a refusal, or nothing was heard for a second, or there is no topic."""
        if self._has_failed or self.oldest_wait_seconds > FAILING_SECONDS:
            return True
        return not self.is_ready and self._now() - (self._missing_since or 0.0) > FAILING_SECONDS

    async def _tell_slices(self, metadata: RemoteWalCombinedLogSegmentMetadataRecord) -> None:
        """Each where its partition's events are, in order."""
        count = self._topic.partition_count
        if count is None:
            return
        by_partition: dict[int, list[bytes]] = {}
        for entry in metadata.slices:
            about = entry.remote_log_segment_id.topic_id_partition
            place = metadata_partition_of(about.id, about.partition, count)
            by_partition.setdefault(place, []).append(encode(slice_record(metadata, entry)))
            await self._breathe()
        for place, values in by_partition.items():
            for portion in _portions(values):
                self._topic.append(place, portion, may_linger=True).add_done_callback(self._slices_ended)

    async def _breathe(self) -> None:
        if self._now() - self._worked_since > BREATHE_SECONDS:
            await asyncio.sleep(0)
            self._worked_since = self._now()

    def _slices_ended(self, answer: "asyncio.Future[int]") -> None:
        if not answer.cancelled() and (error := answer.exception()) is not None:
            self.slice_error_count += 1
            log.debug("wal_slices_not_published", error=str(error))

    @asynccontextmanager
    async def _waiting_for_acknowledgement(self) -> AsyncIterator[None]:
        number, began = next(self._numbers), self._now()
        self._waiting[number] = began
        try:
            yield
        finally:
            del self._waiting[number]
        self._has_failed = False
        self._stats.hop(WalHop.PUBLISH, self._now() - began)

    async def _partition_count(self) -> int:
        """Of a topic that is being created: it is asked for until it is there."""
        while (count := self._topic.partition_count) is None:  # noqa: ASYNC110  once in the life of a cluster
            await asyncio.sleep(RETRY_SECONDS)
        return count

    async def _append(self, place: int, value: bytes) -> bool:
        """Whether it was acknowledged, and not refused.  Who is cancelled takes it out of the topic's queue."""
        try:
            await self._topic.append(place, (value,))
        except MetadataTopicError as error:
            self._note(error, place)
            return False
        return True

    def _note(self, error: MetadataTopicError, partition: int) -> None:
        say = log.debug if self._has_failed else log.warning
        say("wal_metadata_not_published", partition=partition, error=str(error))
        self._has_failed = True
        self._last_error_at = self._now()
        self.error_count += 1

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _invalidation_ended(answer: "asyncio.Future[int]") -> None:
    if not answer.cancelled() and (error := answer.exception()) is not None:
        log.debug("wal_invalidation_not_published", error=str(error))


def _portions(values: Iterable[bytes]) -> Iterable[tuple[bytes, ...]]:
    """The values in pieces of at most APPEND_BYTES_MAX, in order."""
    portion: list[bytes] = []
    size = 0
    for value in values:
        if portion and size + len(value) > APPEND_BYTES_MAX:
            yield tuple(portion)
            portion, size = [], 0
        portion.append(value)
        size += len(value)
    if portion:
        yield tuple(portion)
