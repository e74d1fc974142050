"""QueuedPartition: what of one partition waits for an object, and for how long."""

from collections import deque
from typing import Final

from broker.wal.upload.partition_uploads import PartitionUploads

AGE_GRANULARITY_MS: Final = 10  # of what is known about when bytes were appended
AGES_MAX: Final = 256  # of a partition; what comes after them counts as old as the last of them


class QueuedPartition:
    """A partition this broker leads, and what of it waits.  Moved by the `UploadQueue` alone.

    `waits` while it is in the queue's lists; one that is no longer uploaded counts as waiting, and never gets there.
    """

    __slots__ = ("ages", "first_dirty_ms", "log_end_offset", "pending_bytes", "uploads", "waits")

    def __init__(self, uploads: PartitionUploads, log_end_offset: int) -> None:
        self.uploads = uploads
        self.log_end_offset = log_end_offset
        self.pending_bytes = 0
        self.waits = False
        self.first_dirty_ms = 0  # when the first of what waits was appended
        self.ages: deque[tuple[int, int]] = deque()  # from which offset on, appended since when

    @property
    def is_dirty(self) -> bool:
        return self.uploads.wal_reserved < self.log_end_offset

    def appended(self, log_end_offset: int, size: int, now_ms: int) -> None:
        ages = self.ages
        if not ages or (now_ms - ages[-1][1] >= AGE_GRANULARITY_MS and len(ages) < AGES_MAX):
            ages.append((self.log_end_offset, now_ms))
        self.log_end_offset = log_end_offset
        self.pending_bytes += size

    def taken(self) -> None:
        """What is below `wal_reserved` does not wait any more."""
        ages, offset = self.ages, self.uploads.wal_reserved
        while len(ages) > 1 and ages[1][0] <= offset:
            ages.popleft()
        if ages and offset < self.log_end_offset:
            self.first_dirty_ms = ages[0][1]
        else:
            ages.clear()
