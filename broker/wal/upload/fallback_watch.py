"""FallbackWatch: the followers that this broker serves in the place of its bucket, as one says it and counts it.

What makes a bucket fail makes it fail for every partition: so a line in the log is about a follower and a reason,
however many partitions it is true of, and single partitions are told of at debug level.
"""

import asyncio
from typing import Final, Protocol

import structlog

from broker.common.identifiers import TopicIdPartition
from broker.wal.upload.fallback import FallbackEnd, FallbackReason

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 1.0  # an episode that ends and begins again within it goes on
BREATHE_PARTITIONS: Final = 100
_SPREAD_FACTOR: Final = 10  # how many times as many partitions are worth another line


class FallingBack(Protocol):
    """A led partition (`WalLeaderPartition`), of which a follower is served."""

    @property
    def topic_id_partition(self) -> TopicIdPartition: ...
    def settle_fallback(self) -> None:
        """End what is over: a follower that has everything does not ask."""


class _Episode:
    """One follower and reason, from its first partition until there has been none for a while."""

    __slots__ = ("next_line_at", "partitions", "seen", "sent_bytes")

    def __init__(self) -> None:
        self.partitions: dict[TopicIdPartition, FallingBack] = {}
        self.seen: set[TopicIdPartition] = set()
        self.sent_bytes = 0
        self.next_line_at = _SPREAD_FACTOR


class FallbackWatch:
    """While a follower is served by the leader each second somebody looks whether that is over."""

    def __init__(self) -> None:
        self._episodes: dict[tuple[int, FallbackReason], _Episode] = {}
        self._begun = asyncio.Event()

    async def run(self) -> None:
        """For ever; nothing happens while no follower is served."""
        while True:
            await self._begun.wait()
            self._begun.clear()
            while self._episodes:
                await asyncio.sleep(LOOK_SECONDS)
                await self._look()

    def began(self, partition: FallingBack, replica_id: int, reason: FallbackReason, offset: int) -> None:
        """The follower, at that offset, gets records from here."""
        place = partition.topic_id_partition
        about = {"follower": replica_id, "reason": reason, "partition": str(place.topic_partition), "offset": offset}
        # Being behind is nobody's fault, and ends by itself.
        say = log.info if reason is FallbackReason.NOT_IN_BUCKET else log.warning
        episode = self._episodes.get((replica_id, reason))
        if episode is None:
            episode = self._episodes[replica_id, reason] = _Episode()
            self._begun.set()
            say("wal_fallback_began", **about)
        else:
            log.debug("wal_partition_fallback_began", **about)
        episode.partitions[place] = partition
        episode.seen.add(place)
        if len(episode.seen) >= episode.next_line_at:
            episode.next_line_at *= _SPREAD_FACTOR
            say("wal_fallback_spread", follower=replica_id, reason=reason, partitions=len(episode.seen))

    def ended(self, partition: FallingBack, end: FallbackEnd) -> None:
        """The follower gets that partition from the bucket, or not from here at all."""
        episode = self._episodes.get((end.replica_id, end.reason))
        place = partition.topic_id_partition
        if episode is None or episode.partitions.pop(place, None) is None:
            return
        episode.sent_bytes += end.sent_bytes
        log.debug(
            "wal_partition_fallback_ended",
            follower=end.replica_id,
            reason=end.reason,
            partition=str(place.topic_partition),
            sent_bytes=end.sent_bytes,
        )

    def close(self) -> None:
        """What is over is told of at once."""
        self._tell_ended()

    async def _look(self) -> None:
        self._tell_ended()
        watched = {place: each for episode in self._episodes.values() for place, each in episode.partitions.items()}
        for count, partition in enumerate(watched.values()):
            partition.settle_fallback()
            if count % BREATHE_PARTITIONS == BREATHE_PARTITIONS - 1:
                await asyncio.sleep(0)

    def _tell_ended(self) -> None:
        for (replica_id, reason), episode in list(self._episodes.items()):
            if episode.partitions:
                continue
            del self._episodes[replica_id, reason]
            log.info(
                "wal_fallback_ended",
                follower=replica_id,
                reason=reason,
                partitions=len(episode.seen),
                sent_bytes=episode.sent_bytes,
            )
