"""What a new leader uploads again because no bucket in reach holds it."""

from collections.abc import Iterable
from enum import Enum

from broker.wal.follow.coverage_index import OffsetRange


class RepublishMode(Enum):
    """`remote.wal.republish.mode`: what tiered storage does not have, all of the local retention, or nothing."""

    UNTIERED = "untiered"
    LOCAL_RETENTION = "local-retention"
    NONE = "none"


def needed_range(
    mode: RepublishMode,
    *,
    local_log_start_offset: int,
    highest_tiered_offset: int,
    retained_from_offset: int,
    first_announced_offset: int | None,
    upload_start_offset: int,
) -> OffsetRange:
    """The offsets that must be in a bucket, below those that the live uploads begin with.

    `highest_tiered_offset` is inclusive (-1: nothing is tiered), `retained_from_offset` the first that is younger than
    local.retention.ms.  From `upload_start_offset` on, the high watermark at the election, everything goes out as live
    slices anyway.

    Without tiering, what is below `first_announced_offset` (None: nothing was ever announced) has not been in a bucket
    for as long as objects are kept, or never: followers get it from the leader.  Otherwise each election would upload
    the whole log, also one that has just been told to go through the bucket.
    """
    if mode is RepublishMode.UNTIERED:
        start_offset = max(local_log_start_offset, highest_tiered_offset + 1)
        if highest_tiered_offset < 0:
            announced_from = upload_start_offset if first_announced_offset is None else first_announced_offset
            start_offset = max(start_offset, announced_from)
    elif mode is RepublishMode.LOCAL_RETENTION:
        start_offset = max(local_log_start_offset, retained_from_offset)
    else:
        start_offset = upload_start_offset
    return OffsetRange(min(start_offset, upload_start_offset), upload_start_offset)


def next_backfill(uncovered: Iterable[OffsetRange], resume_offset: int) -> OffsetRange | None:
    """The lowest of the uncovered offsets at or above `resume_offset`: backfill goes in offset order."""
    for start_offset, end_offset in sorted(uncovered):
        if end_offset > resume_offset and end_offset > start_offset:
            return OffsetRange(max(start_offset, resume_offset), end_offset)
    return None
