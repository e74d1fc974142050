"""PartitionFallback: whether a follower gets records from its leader, although its partition goes through the bucket.

No I/O and no clock.  What it sends is paid for as traffic between zones, so it begins only when the bucket does not
serve and ends when it does again.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

HEALTHY_LAG_MS: Final = 1000  # what is announced later than this after its append is late
HEALTHY_FOR_MS: Final = 10_000  # in time for so long: followers may look in the bucket again
GONE_AFTER_MS: Final = 30_000  # a follower that lacks something and has not asked for so long is not served in any way


class FallbackReason(StrEnum):
    """Why the bucket does not serve."""

    NOT_IN_BUCKET = "not_in_bucket"  # the follower is further back than what was uploaded, and is still there
    UPLOADS_LATE = "uploads_late"
    METADATA_TOPIC = "metadata_topic"  # nothing can be announced
    FOLLOWER_STUCK = "follower_stuck"  # it does not get what is announced
    SHUTDOWN = "shutdown"


class UploadProgress(NamedTuple):
    """Where a partition stands at a moment.  Followers can find [covered_from, announced_to) in buckets."""

    covered_from: int
    announced_to: int
    log_end_offset: int
    unannounced_ms: int | None  # the age of the oldest record that is not announced; None: all are
    is_metadata_failing: bool
    is_shutting_down: bool


@dataclass(frozen=True, slots=True)
class FallbackPolicy:
    """`remote.wal.fallback.enable` and `remote.wal.fallback.lag.ms`.

    `patience_ms`: a follower that is there asks at least as often, by `replica.fetch.wait.max.ms`.
    """

    is_enabled: bool = True
    lag_ms: int = 5000
    patience_ms: int = 2000


class FallbackEnd(NamedTuple):
    """A follower that is not served any more, and how much it was sent."""

    replica_id: int
    reason: FallbackReason
    sent_bytes: int


class _Follower:
    __slots__ = ("asked_ms", "began_ms", "offset", "reason", "sent_bytes", "stuck_ms")

    def __init__(self) -> None:
        self.reason: FallbackReason | None = None
        self.began_ms = 0
        self.sent_bytes = 0  # in this episode
        self.offset = -1
        self.stuck_ms: int | None = None  # for how long it could have moved on
        self.asked_ms = 0


@dataclass(frozen=True, slots=True)
class FallbackDecision:
    """`began` and `ended` are the episode that does with this decision.

    `republish`: fallback is forbidden, and the follower cannot read what is announced: upload it again.
    """

    serves_records: bool
    began: FallbackReason | None = None
    ended: FallbackEnd | None = None
    republish: bool = False


_FROM_BUCKET: Final = FallbackDecision(False)
_FROM_LEADER: Final = FallbackDecision(True)


class PartitionFallback:
    """One partition in one leader epoch, with its followers.  Times are milliseconds of the loop's clock."""

    def __init__(self, policy: FallbackPolicy, now_ms: int) -> None:
        self.policy = policy
        self._followers: dict[int, _Follower] = {}
        self._late_ms = now_ms - HEALTHY_FOR_MS  # when something was last announced late, or waited for long

    @property
    def is_active(self) -> bool:
        """Whether a follower gets records from the leader."""
        return any(each.reason is not None for each in self._followers.values())

    @property
    def followers(self) -> frozenset[int]:
        """Those that have asked."""
        return frozenset(self._followers)

    @property
    def served(self) -> list[tuple[int, int]]:
        """Followers that get records from the leader, and where they asked last."""
        return [(replica_id, each.offset) for replica_id, each in self._followers.items() if each.reason is not None]

    def was_late(self, now_ms: int) -> None:
        """Something was announced HEALTHY_LAG_MS after its append, or later still."""
        self._late_ms = now_ms

    def sent(self, replica_id: int, size_bytes: int) -> None:
        """So much went to the follower."""
        if (follower := self._followers.get(replica_id)) is not None:
            follower.sent_bytes += size_bytes

    def decide(self, replica_id: int, fetch_offset: int, progress: UploadProgress, now_ms: int) -> FallbackDecision:
        """For a fetch of a follower at `fetch_offset`."""
        self._note_lag(progress, now_ms)
        follower = self._followers.setdefault(replica_id, _Follower())
        is_stuck = self._note_position(follower, fetch_offset, progress, now_ms)
        reason = self._reason(fetch_offset, progress, is_stuck)
        if reason is not None:
            if follower.reason is not None:
                return _FROM_LEADER
            follower.reason, follower.began_ms, follower.sent_bytes = reason, now_ms, 0
            return FallbackDecision(True, began=reason)
        if follower.reason is not None:
            if not self._may_end(follower, fetch_offset, progress, now_ms):
                return _FROM_LEADER
            return FallbackDecision(False, ended=self._end(replica_id))
        if is_stuck:
            follower.stuck_ms = 0  # again after another such time
            return FallbackDecision(False, republish=True)
        return _FROM_BUCKET

    def settle(self, replica_id: int, progress: UploadProgress, now_ms: int) -> FallbackEnd | None:
        """For a follower in `served` that may not ask any more: it has everything, or it is gone."""
        self._note_lag(progress, now_ms)
        follower = self._followers[replica_id]
        if follower.offset >= progress.log_end_offset:
            follower.asked_ms = now_ms  # it would, had it a reason to
            is_over = self._may_end(follower, follower.offset, progress, now_ms)
        else:
            is_over = now_ms - follower.asked_ms >= GONE_AFTER_MS
        return self._end(replica_id) if is_over else None

    def forget(self, replica_ids: Collection[int]) -> list[FallbackEnd]:
        """They follow this leader no more."""
        ends = [end for each in replica_ids if (end := self._end(each)) is not None]
        for each in replica_ids:
            self._followers.pop(each, None)
        return ends

    def _end(self, replica_id: int) -> FallbackEnd | None:
        follower = self._followers.get(replica_id)
        if follower is None or follower.reason is None:
            return None
        reason, follower.reason = follower.reason, None
        return FallbackEnd(replica_id, reason, follower.sent_bytes)

    def _note_lag(self, progress: UploadProgress, now_ms: int) -> None:
        if progress.unannounced_ms is not None and progress.unannounced_ms >= HEALTHY_LAG_MS:
            self._late_ms = now_ms

    def _note_position(self, follower: _Follower, fetch_offset: int, progress: UploadProgress, now_ms: int) -> bool:
        """Whether it has stood still for too long although there was something in the bucket for it."""
        silent_ms, follower.asked_ms = now_ms - follower.asked_ms, now_ms
        if fetch_offset != follower.offset or fetch_offset >= progress.announced_to:
            follower.offset, follower.stuck_ms = fetch_offset, None
        if fetch_offset >= progress.announced_to:
            return False
        patience_ms = self.policy.patience_ms
        if follower.stuck_ms is None or silent_ms >= max(self.policy.lag_ms, patience_ms):
            follower.stuck_ms = 0  # it has yet to look into the bucket, or has been away and has yet to look again
        else:
            follower.stuck_ms += min(silent_ms, patience_ms)
        return follower.stuck_ms >= self.policy.lag_ms

    def _reason(self, fetch_offset: int, progress: UploadProgress, is_stuck: bool) -> FallbackReason | None:
        if fetch_offset >= progress.log_end_offset:
            return None  # there is nothing to send
        if fetch_offset < progress.covered_from:
            return FallbackReason.NOT_IN_BUCKET
        if progress.is_shutting_down:
            return FallbackReason.SHUTDOWN
        if not self.policy.is_enabled:
            return None
        if is_stuck:
            return FallbackReason.FOLLOWER_STUCK
        if progress.unannounced_ms is None:
            return None
        if progress.unannounced_ms >= self.policy.lag_ms:
            return FallbackReason.UPLOADS_LATE
        return FallbackReason.METADATA_TOPIC if progress.is_metadata_failing else None

    def _may_end(self, follower: _Follower, fetch_offset: int, progress: UploadProgress, now_ms: int) -> bool:
        if fetch_offset < progress.covered_from:
            return False
        if follower.reason is FallbackReason.NOT_IN_BUCKET:
            return True  # nothing was wrong with the bucket
        return now_ms - max(self._late_ms, follower.began_ms) >= HEALTHY_FOR_MS
