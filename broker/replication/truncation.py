"""Where a follower's log stops being the leader's (KIP-101, KIP-279, KIP-595): pure functions."""

from broker.common.identifiers import NO_EPOCH, NO_OFFSET


def common_end_offset(
    *,
    leader_epoch: int,
    leader_end_offset: int,
    local_epoch: int,
    local_end_offset: int,
    log_end_offset: int,
    fetch_offset: int,
) -> int:
    """The offset to truncate to, after the leader said that its log of `leader_epoch` ends at `leader_end_offset`.

    `local_epoch` and `local_end_offset` are what the follower's own epoch cache says of that epoch, -1 when it knows
    none.  When it knows only an older one, that one's end may still be too far: the next fetch, with the older epoch,
    has the leader say so (AbstractFetcherThread.getOffsetTruncationState).
    """
    if leader_end_offset == NO_OFFSET:
        return min(fetch_offset, log_end_offset)
    if local_epoch == NO_EPOCH:
        return min(leader_end_offset, log_end_offset)
    if local_epoch == leader_epoch:
        return min(local_end_offset, leader_end_offset, log_end_offset)
    return min(local_end_offset, log_end_offset)
