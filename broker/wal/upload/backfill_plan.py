"""BackfillPlan: what of one led partition goes into the bucket once more, and how far that has got.  No I/O but the
log's own segments."""

from collections import deque
from typing import Final

from broker.common.identifiers import TopicIdPartition
from broker.replication.partition import Partition
from broker.wal.follow.coverage_index import OffsetRange
from broker.wal.upload.bucket_coverage import BucketCoverage
from broker.wal.upload.partition_uploads import LeaderTerm
from broker.wal.upload.republish_plan import RepublishMode, needed_range, next_backfill

_AGAIN_MAX: Final = 16  # ranges that followers could not read; they are asked for again while they cannot


class BackfillPlan:
    """One partition in one leader epoch.  `upload_start_offset` is where its live uploads began.

    Ranges go out in offset order.  What a follower could not read although the bucket should have it comes first: it
    stands still.
    """

    def __init__(
        self, place: TopicIdPartition, partition: Partition, coverage: BucketCoverage, upload_start_offset: int
    ) -> None:
        self.place = place
        self.partition = partition
        self.coverage = coverage
        self.term = LeaderTerm(partition.leader_epoch, partition.log.truncation_count)
        self.is_due = True  # to be looked at: what the buckets hold may be less than it was
        self._upload_start_offset = upload_start_offset
        self._ranges: deque[OffsetRange] = deque()
        self._again: deque[OffsetRange] = deque()
        self._source = self._ranges  # of what `next_range` gave last

    @property
    def holds(self) -> bool:
        """Whether what is read of the log now is still of the term this was planned for."""
        local = self.partition.local_log
        return (
            self.partition.is_leader
            and local is not None
            and self.term == LeaderTerm(self.partition.leader_epoch, local.truncation_count)
        )

    @property
    def has_work(self) -> bool:
        return bool(self.is_due or self._ranges or self._again)

    def look(self, mode: RepublishMode, highest_tiered_offset: int, now_ms: int) -> None:
        """Plan by what the buckets hold now."""
        self.is_due = False
        local = self.partition.log
        needed = needed_range(
            mode,
            log_start_offset=local.log_start_offset,
            highest_tiered_offset=highest_tiered_offset,
            retained_from_offset=self._retained_from(now_ms) if mode is RepublishMode.LOCAL_RETENTION else 0,
            first_announced_offset=self.coverage.first_announced_offset,
            upload_start_offset=self._upload_start_offset,
        )
        self._ranges.clear()
        if needed.start_offset >= needed.end_offset:
            return
        uncovered = self.coverage.uncovered(needed.start_offset, needed.end_offset)
        resume_offset = needed.start_offset
        while (found := next_backfill(uncovered, resume_offset)) is not None:
            self._ranges.append(found)
            resume_offset = found.end_offset

    def again(self, unread: OffsetRange) -> None:
        """A follower stands still before this range, which was announced."""
        if unread.start_offset < unread.end_offset and unread not in self._again and len(self._again) < _AGAIN_MAX:
            self._again.append(unread)

    def next_range(self) -> OffsetRange | None:
        """The range to read from now, without what was deleted meanwhile; None when nothing is left."""
        start_offset = self.partition.log.log_start_offset
        for ranges in (self._again, self._ranges):
            while ranges:
                first = ranges[0]
                if first.end_offset > start_offset:
                    self._source = ranges
                    return first._replace(start_offset=max(first.start_offset, start_offset))
                ranges.popleft()
        return None

    def uploaded(self, end_offset: int) -> None:
        """What `next_range` gave is read up to here, exclusive."""
        first = self._source.popleft()
        if end_offset < first.end_offset:
            self._source.appendleft(first._replace(start_offset=max(end_offset, first.start_offset)))

    def put_back(self, unread: OffsetRange) -> None:
        """It was read and not stored: it is next again."""
        self._again.appendleft(unread)

    def _retained_from(self, now_ms: int) -> int:
        """The first offset of the first segment with a record younger than local.retention.ms."""
        local = self.partition.log
        retention_ms = local.config.local_retention_ms_effective
        if retention_ms >= 0:
            for segment in local.segments:
                if segment.largest_timestamp >= now_ms - retention_ms:
                    return segment.base_offset
            return local.log_end_offset
        return local.log_start_offset
