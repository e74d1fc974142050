"""TieredPartition: a replica here whose log is tiered, as its remote log tasks share it."""

from uuid import UUID

from broker.common.identifiers import TopicIdPartition
from broker.log.unified_log import UnifiedLog
from broker.replication.partition import Partition
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata


class LogChangedError(Exception):
    """The log is not what it was when a task looked at it: what was decided counts no more, and the task ends.

    Nothing is wrong: the lead was lost, the log was cut, or its directory is offline.
    """


class LogView:
    """A log as it was when a task began; `check` after whatever was waited for."""

    def __init__(self, replica: Partition, log: UnifiedLog) -> None:
        self.log = log
        self._replica = replica
        self._is_leader = replica.is_leader
        self._truncation_count = log.truncation_count

    @property
    def is_current(self) -> bool:
        """Whether it is the same log with the same records, or more, in the same role."""
        return (
            self._replica.local_log is self.log
            and not self.log.is_closed
            and self._replica.is_leader == self._is_leader
            and self.log.truncation_count == self._truncation_count
        )

    def raise_log_start(self, offset: int, reason: str) -> None:
        """As the leader of the log.  OffsetOutOfRangeError above its high watermark."""
        self._replica.increment_log_start(offset, reason)

    def check(self) -> None:
        """LogChangedError."""
        if not self.is_current:
            raise LogChangedError(f"the log of {self.log.topic_partition} has changed")


class TieredPartition:
    """`being_copied` are the segments that the copy task has under way, which expiration leaves alone; `losses` counts
    what could be read in remote storage, and can be no more."""

    def __init__(self, partition: TopicIdPartition, replica: Partition) -> None:
        self.partition = partition
        self.being_copied: set[UUID] = set()
        self.losses = 0
        self._replica = replica

    @property
    def name(self) -> str:
        return str(self.partition.topic_partition)

    def lose(self, segment: RemoteLogSegmentMetadata | None) -> None:
        """The segment, or for None anything, can be read no more: what this disk has of it counts as not copied.

        So `highest_remote_offset` is true at any moment, and local retention, which goes by it, never deletes what is
        nowhere else.  Tasks find out anew how far the log is copied (`raise_highest_remote_offset`).
        """
        self.losses += 1
        log = self._replica.local_log
        if log is None or (segment is not None and segment.end_offset < log.local_log_start_offset):
            return
        lost_offset = log.local_log_start_offset
        if segment is not None:
            lost_offset = max(lost_offset, segment.start_offset)
        log.highest_remote_offset = min(log.highest_remote_offset, lost_offset - 1)

    def look(self, *, as_leader: bool) -> LogView | None:
        """The log as of now; None while there is none, or it is not led here though that was asked for."""
        log = self._replica.local_log
        if log is None or log.is_closed or (as_leader and not self._replica.is_leader):
            return None
        return LogView(self._replica, log)
