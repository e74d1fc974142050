"""Incremental fetch sessions (KIP-227, Kafka's FetchSession): the broker remembers what a client fetches.

Kafka reads every partition of a session in every fetch.  Here a partition of a session is looked at again only after
something could have changed its answer: it is then marked dirty.  What is not dirty would answer nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from uuid import UUID

from broker.common.errors import NO_ERROR
from broker.common.identifiers import NO_BROKER, NO_OFFSET, ZERO_UUID
from broker.replication.fetch_params import FetchPartition, FetchPartitionResult

if TYPE_CHECKING:
    from broker.replication.delayed_fetch import DelayedFetch

INVALID_SESSION_ID: Final = 0  # also: no session
INITIAL_EPOCH: Final = 0  # opens a session
FINAL_EPOCH: Final = -1  # closes it, or asks for none
SESSION_EPOCH_MAX: Final = 0x7FFFFFFF

PartitionKey: TypeAlias = tuple[UUID | str, int]


def next_epoch(epoch: int) -> int:
    """The epoch a client must send after it was answered at `epoch`."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == SESSION_EPOCH_MAX else epoch + 1


def partition_key(topic: str | None, topic_id: UUID, partition: int) -> PartitionKey:
    """How a session tells partitions apart: by topic id where the request has ids, else by name."""
    return (topic_id, partition) if topic is None or topic_id != ZERO_UUID else (topic, partition)


class CachedPartition(FetchPartition):
    """A partition of a session: what was asked for last, and what was told last."""

    __slots__ = ("is_changed", "is_watched", "last_high_watermark", "last_log_start_offset", "was_refused")

    def __init__(self, asked: FetchPartition) -> None:
        super().__init__(
            asked.topic,
            asked.partition,
            asked.fetch_offset,
            asked.max_bytes,
            topic_id=asked.topic_id,
            current_leader_epoch=asked.current_leader_epoch,
            last_fetched_epoch=asked.last_fetched_epoch,
            log_start_offset=asked.log_start_offset,
        )
        self.last_high_watermark = NO_OFFSET
        self.last_log_start_offset = NO_OFFSET
        self.was_refused = False  # for what it asks for now
        self.is_changed = False  # since it was read for the fetch under way
        self.is_watched = False  # an event between the first read and the watch would be lost: it is read once more

    @property
    def key(self) -> PartitionKey:
        return partition_key(self.topic, self.topic_id, self.partition)

    def update_request(self, asked: FetchPartition) -> None:
        """New parameters; what was told before still counts as told.

        But to a follower that gets its records elsewhere (KIP-1176) the answer to a question with other epochs is told
        even if it is the same, and Kafka's maybeUpdateResponseData would leave it out: it waits for it.
        """
        is_other_epoch = (self.current_leader_epoch, self.last_fetched_epoch) != (
            asked.current_leader_epoch,
            asked.last_fetched_epoch,
        )
        if is_other_epoch and self.hosted is not None and self.hosted.leader_wal is not None:
            self.last_high_watermark = NO_OFFSET
        if is_other_epoch or asked.fetch_offset != self.fetch_offset:
            self.was_refused = False
        self.current_leader_epoch = asked.current_leader_epoch
        self.fetch_offset = asked.fetch_offset
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.log_start_offset = asked.log_start_offset
        self.max_bytes = asked.max_bytes

    @property
    def is_remembered(self) -> bool:
        return True

    @property
    def is_refused_again(self) -> bool:
        return self.was_refused

    def has_news(self, high_watermark: int, log_start_offset: int) -> bool:
        return high_watermark > self.last_high_watermark or log_start_offset != self.last_log_start_offset

    def is_worth_telling(self, result: FetchPartitionResult) -> bool:
        """Whether an answer tells the client anything."""
        return (
            result.error is not NO_ERROR
            or result.size_bytes > 0
            or result.high_watermark != self.last_high_watermark
            or result.log_start_offset != self.last_log_start_offset
            or result.preferred_read_replica != NO_BROKER
            or result.diverging_epoch is not None
        )

    def update_told(self, result: FetchPartitionResult) -> bool:
        """Remember an answer; returns whether it tells the client anything (Kafka's maybeUpdateResponseData)."""
        must_respond = self.is_worth_telling(result)
        self.last_high_watermark = result.high_watermark
        self.last_log_start_offset = result.log_start_offset
        self.was_refused = result.error is not NO_ERROR or result.diverging_epoch is not None
        if result.error is not NO_ERROR:
            self.last_high_watermark = NO_OFFSET  # so that the end of the error is told as well
        return must_respond


class SessionKey(NamedTuple):
    """How valuable a session is: followers before consumers, big before small."""

    is_privileged: bool
    size: int
    session_id: int


class FetchSession:
    """One client's partitions, in the order in which they are served.

    `epoch` is what the client must send next.  A partition is dirty from an event on until a read of it found nothing
    to tell and nothing to wait for; it then stays watched, and costs nothing.
    """

    def __init__(
        self, session_id: int, *, replica_id: int, uses_topic_ids: bool, created_ms: int, epoch: int = 1
    ) -> None:
        self.id = session_id
        self.replica_id = replica_id
        self.is_privileged = replica_id >= 0
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = created_ms
        self.last_used_ms = created_ms
        self.epoch = epoch
        self.cached_size = 0  # as of the last use, which is what eviction compares
        self._partitions: dict[PartitionKey, CachedPartition] = {}
        self._dirty: dict[CachedPartition, None] = {}
        self._parked: DelayedFetch | None = None

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[CachedPartition]:
        return iter(self._partitions.values())

    @property
    def dirty_count(self) -> int:
        return len(self._dirty)

    @property
    def session_key(self) -> SessionKey:
        return SessionKey(self.is_privileged, self.cached_size, self.id)

    def add(self, asked: FetchPartition) -> CachedPartition:
        """Add a partition, or take over its new parameters; it is read at the next fetch."""
        key = partition_key(asked.topic, asked.topic_id, asked.partition)
        cached = self._partitions.get(key)
        if cached is None:
            cached = self._partitions[key] = CachedPartition(asked)
        else:
            cached.update_request(asked)
        self._mark_dirty(cached)
        return cached

    def forget(self, keys: Iterable[PartitionKey]) -> None:
        for key in keys:
            cached = self._partitions.pop(key, None)
            if cached is not None:
                self._dirty.pop(cached, None)
                _unwatch(cached)

    def close(self) -> None:
        """Stop watching: the session has left the cache."""
        for cached in self._partitions.values():
            _unwatch(cached)

    # As the source of a fetch

    def partitions_to_read(self) -> Sequence[FetchPartition]:
        dirty = tuple(self._dirty)
        for cached in dirty:
            cached.is_changed = False
        return dirty

    def unresolved(self) -> Iterator[CachedPartition]:
        """Dirty partitions whose topic id had no name when it was last looked at."""
        return (cached for cached in self._dirty if cached.topic is None)

    def park(self, operation: "DelayedFetch") -> None:
        self._parked = operation
        for cached in self._dirty:
            self._watch(cached)

    def unpark(self, operation: "DelayedFetch") -> None:
        if self._parked is operation:
            self._parked = None

    def on_partition_changed(self, request: FetchPartition) -> None:
        """A watched partition may have something to tell."""
        assert isinstance(request, CachedPartition)
        if request.hosted is None:
            request.is_watched = False  # no longer hosted here
        elif self.is_privileged and request not in self._dirty:
            # Not read in the fetches since, because there was nothing new: it was caught up at the last of them.
            request.hosted.followers.note_idle(self.replica_id, self.last_used_ms)
        self._mark_dirty(request)
        if self._parked is not None:
            self._parked.on_partition_changed(request)

    def _mark_dirty(self, cached: CachedPartition) -> None:
        cached.is_changed = True
        self._dirty[cached] = None

    def _watch(self, cached: CachedPartition) -> None:
        if cached.hosted is not None and not cached.is_watched:
            cached.hosted.watch_fetch(cached, self, is_from_follower=self.is_privileged)
            cached.is_watched = True

    # As the memory of what was answered

    def select_told(self, results: Sequence[FetchPartitionResult]) -> list[FetchPartitionResult]:
        """The results that tell the client something; partitions that were served move to the end of the order."""
        selected = []
        for result in results:
            cached = result.request
            assert isinstance(cached, CachedPartition)
            if self._partitions.get(cached.key) is not cached:
                continue  # forgotten meanwhile
            if cached.update_told(result):
                selected.append(result)
            self._settle(cached, result)
        return selected

    def worth_telling(self, results: Sequence[FetchPartitionResult]) -> list[FetchPartitionResult]:
        """What `select_told` would select; nothing is remembered."""
        return [
            result
            for result in results
            if isinstance(cached := result.request, CachedPartition)
            and self._partitions.get(cached.key) is cached
            and cached.is_worth_telling(result)
        ]

    def remember_told(self, results: Sequence[FetchPartitionResult]) -> None:
        """The results of the full fetch that opened the session: all of them are told."""
        for result in results:
            cached = self.add(result.request)
            cached.hosted = result.request.hosted
            cached.update_told(result)
            self._watch(cached)

    def _settle(self, cached: CachedPartition, result: FetchPartitionResult) -> None:
        must_read_again = (
            result.error is not NO_ERROR
            or result.has_more
            or result.diverging_epoch is not None
            or result.preferred_read_replica != NO_BROKER
        )
        if result.size_bytes > 0:
            self._dirty.pop(cached, None)
            self._dirty[cached] = None
        elif cached.is_watched and not must_read_again and not cached.is_changed:
            self._dirty.pop(cached, None)
        cached.available_bytes = 0
        self._watch(cached)


def _unwatch(cached: CachedPartition) -> None:
    if cached.hosted is not None:
        cached.hosted.unwatch_fetch(cached)
        cached.hosted = None
