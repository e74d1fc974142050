"""BucketCoverage: what of a led partition's log followers can find in buckets, as far as its leader knows."""

from typing import Final

from broker.common.clock import Clock
from broker.replication.partition import Partition
from broker.wal.follow.coverage_index import OffsetRange
from broker.wal.follow.lineage import Lineage
from broker.wal.follow.wal_interval_map import WalIntervalMap

FRESH_MS: Final = 1000  # an answer holds so long: followers ask with every fetch


class BucketCoverage:
    """By the leader's own epochs: slices of leaders whose records are not in its log do not count, nor do those in
    buckets that do not answer."""

    def __init__(self, partition: Partition, known: WalIntervalMap, clock: Clock) -> None:
        self._partition = partition
        self._known = known
        self._clock = clock
        self._end_offset = -1
        self._reached_offset = 0
        self._fresh_until_ms = 0

    @property
    def buckets(self) -> frozenset[str]:
        """Those that hold something of what followers need no more, or not now."""
        return frozenset(run.bucket for run in self._known.coverage.runs)

    @property
    def first_announced_offset(self) -> int | None:
        """The lowest offset that was ever announced, as far as it is remembered."""
        return self._known.first_announced_offset

    def uncovered(self, start_offset: int, end_offset: int) -> list[OffsetRange]:
        """What of [start, end) no follower would find.  StorageFailure while the log is offline."""
        log = self._partition.log
        lineage = Lineage.of_own_log(
            self._partition.leader_epoch, log.leader_epochs.entries, log.log_start_offset, log.log_end_offset
        )
        return self._known.uncovered(lineage, start_offset, end_offset, self._clock.now_ms())

    def reaches_back_from(self, end_offset: int) -> int:
        """The lowest offset from which on everything below `end_offset` can be found."""
        now_ms = self._clock.now_ms()
        if end_offset != self._end_offset or not 0 <= self._fresh_until_ms - now_ms <= FRESH_MS:
            start_offset = self._partition.log.local_log_start_offset  # what is below, tiered storage gives followers
            gaps = self.uncovered(start_offset, end_offset)
            self._reached_offset = gaps[-1].end_offset if gaps else min(start_offset, end_offset)
            self._end_offset = end_offset
            self._fresh_until_ms = now_ms + FRESH_MS
        return self._reached_offset
