"""BackfillPlan: what of one led partition goes into the bucket once more, and how far that has got.  No I/O but the
log's own segments."""

from collections import deque
from collections.abc import Iterator

from broker.common.identifiers import TopicIdPartition
from broker.replication.partition import Partition
from broker.wal.follow.coverage_index import OffsetRange
from broker.wal.tiered_offset import highest_tiered_offset
from broker.wal.upload.bucket_coverage import BucketCoverage
from broker.wal.upload.partition_uploads import LeaderTerm
from broker.wal.upload.republish_plan import RepublishMode, needed_range, next_backfill


class BackfillPlan:
    """One partition in one leader epoch.  `upload_start_offset` is where its live uploads began.

    Ranges go out in offset order.  What a follower could not read although the bucket should have it comes first: it
    stands still.  Whoever asks for it meanwhile, and however often, it goes out once; what the follower has got by
    then does not.
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
        self._unread: dict[int, OffsetRange] = {}  # by follower
        self._unstored: deque[OffsetRange] = deque()  # read, and to be read again

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
        return bool(self.is_due or self._ranges or self.is_urgent)

    @property
    def is_urgent(self) -> bool:
        """Whether a follower stands still, or something failed."""
        return bool(self._unread or self._unstored)

    def look(self, mode: RepublishMode, now_ms: int) -> None:
        """Plan by what the buckets hold now."""
        self.is_due = False
        local = self.partition.log
        needed = needed_range(
            mode,
            local_log_start_offset=local.local_log_start_offset,
            highest_tiered_offset=highest_tiered_offset(local),
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

    def again(self, replica_id: int, unread: OffsetRange) -> bool:
        """A follower stands still before this range, which was announced; False while what it lacks is on its way."""
        if replica_id in self._unread:
            return False
        self._unread[replica_id] = unread
        return True

    def next_range(self) -> OffsetRange | None:
        """The range to read from now, without what has left this disk meanwhile; None when nothing is left."""
        start_offset = self.partition.log.local_log_start_offset
        self._unread = dict(self._still_unread(start_offset))
        return (
            _first(self._unstored, start_offset)
            or min(self._unread.values(), default=None)
            or _first(self._ranges, start_offset)
        )

    def uploaded(self, done: OffsetRange) -> None:
        """This was read, from where `next_range` began: whoever else waits for it does not any more."""
        for ranges in (self._unstored, self._ranges):
            _take(ranges, done)
        self._unread = {
            replica_id: _from(each, done.end_offset) if each.start_offset >= done.start_offset else each
            for replica_id, each in self._unread.items()
        }

    def put_back(self, unstored: OffsetRange) -> None:
        """It was read and not stored: it is next again."""
        self._unstored.appendleft(unstored)

    def _still_unread(self, log_start_offset: int) -> Iterator[tuple[int, OffsetRange]]:
        """What followers lack of what they asked for."""
        for replica_id, asked in self._unread.items():
            replica = self.partition.remote_replicas.get(replica_id)
            if replica is None:
                continue
            lacking = _from(asked, max(log_start_offset, replica.log_end_offset))
            if lacking.start_offset < lacking.end_offset:
                yield replica_id, lacking

    def _retained_from(self, now_ms: int) -> int:
        """The first offset of the first segment with a record younger than local.retention.ms."""
        local = self.partition.log
        retention_ms = local.config.local_retention_ms_effective
        if retention_ms >= 0:
            for segment in local.segments:
                if segment.largest_timestamp >= now_ms - retention_ms:
                    return segment.base_offset
            return local.log_end_offset
        return local.local_log_start_offset


def _from(each: OffsetRange, offset: int) -> OffsetRange:
    """What of a range is at or above an offset; it may be nothing."""
    return each._replace(start_offset=max(each.start_offset, offset))


def _first(ranges: deque[OffsetRange], start_offset: int) -> OffsetRange | None:
    """The first with something at or above an offset; those before it are dropped."""
    while ranges:
        ranges[0] = _from(ranges[0], start_offset)
        if ranges[0].start_offset < ranges[0].end_offset:
            return ranges[0]
        ranges.popleft()
    return None


def _take(ranges: deque[OffsetRange], done: OffsetRange) -> None:
    """Leave out what is done from where the first range begins."""
    while ranges and done.start_offset <= ranges[0].start_offset < done.end_offset:
        left = _from(ranges.popleft(), done.end_offset)
        if left.start_offset < left.end_offset:
            ranges.appendleft(left)
