"""The port to what takes the records of a followed partition from the bucket (KIP-1176)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from broker.replication.leader_endpoint import FollowerFetch

if TYPE_CHECKING:
    from broker.replication.bucket_fetch_state import BucketFetchState


class BucketFollower(Protocol):
    """One partition in one leader epoch.  The fetcher goes on asking the leader for offsets, high watermark and
    divergence, and tells what comes of it; this half appends through `BucketFetchState.append`, and appends nothing
    before the handshake: an answer for the log end as it is, since the last truncation or reset.

    All of it is plain and returns soon; none of it may raise.
    """

    def answered(self, request: FollowerFetch, leader_log_start_offset: int) -> None:
        """The leader answered `request` in this epoch without an error and without divergence.

        High watermark and log start are applied already.  When the leader sent records (fallback), they are appended,
        and `request.fetch_offset` is the offset behind them: they are the leader's own.  It is the handshake when
        `request.fetch_offset` is the log end.  An incremental answer that leaves the partition out counts, until the
        handshake, as one in which nothing has changed; the log start is then at least the one told last.
        """

    def truncated(self) -> None:
        """The log was cut, or would have been had it been longer: handshake again, what is under way is void."""

    def begin_reset(self) -> None:
        """The leader does not have our offset.  Until `end_reset` nothing may be appended or fetched from the bucket;
        what is under way is void."""

    def end_reset(self) -> None:
        """The log is within the leader's range, or could not be brought there yet: handshake again."""

    def stop(self) -> None:
        """The state is no longer followed; nothing else is told after this."""


MakeBucketFollower: TypeAlias = Callable[["BucketFetchState"], BucketFollower]
