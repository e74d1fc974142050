"""Where a consumer of a metadata topic begins to read a partition."""

from collections.abc import Callable, Mapping
from typing import Protocol
from uuid import UUID

from broker.common.clock import Clock
from broker.replication.offset_lookup import EARLIEST_TIMESTAMP
from broker.server.metadata_topic.topic_positions import MetadataPosition, TopicPositions


class StartingPolicy(Protocol):
    """A position that is remembered is for a partition with too much to read; others begin at the oldest timestamp.

    `keeps_order`: whether all is told in the order of offsets.  Else what comes is told at once, and what was there
    before beside it.
    """

    keeps_order: bool

    def oldest_timestamp(self) -> int:
        """Wall time in milliseconds, or what a special timestamp of ListOffsets means."""

    async def load(self) -> None:
        """What an earlier run has left."""

    def take(self, topic_id: UUID, partition: int) -> MetadataPosition | None:
        """Where an earlier run was; once."""

    def forget(self, partition: int) -> None: ...

    async def save(self, topic_id: UUID, current: Mapping[int, MetadataPosition], now: float) -> None:
        """Where reading is now, by loop time."""


class WithinRetention:
    """What was told longer than a retention ago is of no use; of the rest most was read by an earlier run.

    `is_wanted_whole`: whether a partition tells what only memory keeps, so that an earlier run's reading is lost.
    """

    keeps_order = False

    def __init__(
        self,
        positions: TopicPositions,
        clock: Clock,
        *,
        retention_ms: int,
        is_wanted_whole: Callable[[int], bool] = lambda partition: False,
    ) -> None:
        self._clock = clock
        self._retention_ms = retention_ms
        self._is_wanted_whole = is_wanted_whole
        self._take = positions.take
        self.load = positions.load
        self.forget = positions.forget
        self.save = positions.save

    def take(self, topic_id: UUID, partition: int) -> MetadataPosition | None:
        position = self._take(topic_id, partition)
        return None if self._is_wanted_whole(partition) else position

    def oldest_timestamp(self) -> int:
        return max(0, self._clock.now_ms() - self._retention_ms)


class FromEarliest:
    """All there is, each time: what was told is kept in memory alone."""

    keeps_order = True

    def oldest_timestamp(self) -> int:
        return EARLIEST_TIMESTAMP

    async def load(self) -> None: ...

    def take(self, topic_id: UUID, partition: int) -> MetadataPosition | None:
        return None

    def forget(self, partition: int) -> None: ...

    async def save(self, topic_id: UUID, current: Mapping[int, MetadataPosition], now: float) -> None: ...
