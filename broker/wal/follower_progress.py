"""Whether a follower that gets its records through the bucket keeps up, and how it comes back into the ISR.

Kafka calls a follower caught up if its fetch offset has reached the log end of its previous fetch: the answer to that
fetch carried the bytes.  Here a fetch comes every few milliseconds and its bytes much later, so under steady load
that is never true, and every follower would leave the ISR.
"""

from enum import Enum
from typing import Final

from broker.replication.replica_state import NEVER_MS

PRE_JOIN_MARK_LAG_MAX_MS: Final = 1000
PRE_JOIN_MAX_MS: Final = 1000
PRE_JOIN_PAUSE_MS: Final = 5000


class CaughtUpMark:
    """A log end that is pinned until the follower reaches it: then it was caught up when the mark was set.

    Times are milliseconds of the monotonic clock.
    """

    __slots__ = ("_mark_offset", "_mark_time_ms", "last_caught_up_time_ms")

    def __init__(self, last_caught_up_time_ms: int = NEVER_MS) -> None:
        """In a new leader epoch members of the ISR begin as caught up."""
        self.last_caught_up_time_ms = last_caught_up_time_ms
        self._mark_offset: int | None = None
        self._mark_time_ms = NEVER_MS

    def fetched(self, fetch_offset: int, leader_log_end_offset: int, now_ms: int) -> None:
        """A valid fetch, answered neither with an error nor with a diverging epoch."""
        if fetch_offset >= leader_log_end_offset:
            self._caught_up_at(now_ms)
        elif self._mark_offset is not None and fetch_offset >= self._mark_offset:
            self._caught_up_at(self._mark_time_ms)
        if self._mark_offset is None or fetch_offset >= self._mark_offset:
            self._mark_offset, self._mark_time_ms = leader_log_end_offset, now_ms

    def lag_ms(self, now_ms: int) -> int:
        """How long ago it was last known to have everything."""
        return now_ms - self.last_caught_up_time_ms

    def _caught_up_at(self, time_ms: int) -> None:
        self.last_caught_up_time_ms = max(self.last_caught_up_time_ms, time_ms)


class PreJoinState(Enum):
    """OUT: not counted.  JOINING: in the leader's own maximal ISR.  PROPOSED: the controller is asked."""

    OUT = "out"
    JOINING = "joining"
    PROPOSED = "proposed"


class PreJoin:
    """How a follower that is out of the ISR joins it while records keep coming.

    With the leader alone in the ISR the high watermark is the log end, which the follower never reaches.  So the
    leader first counts it for the high watermark, which then stands still; when the follower has reached that, the
    controller is asked.  The high watermark never goes back, and stands still for a second at most.
    """

    __slots__ = ("_joining_since_ms", "_not_before_ms", "frozen_high_watermark", "state")

    def __init__(self) -> None:
        self.state = PreJoinState.OUT
        self.frozen_high_watermark = 0
        self._joining_since_ms = 0
        self._not_before_ms = NEVER_MS

    @property
    def holds_high_watermark(self) -> bool:
        """Whether the leader's high watermark waits for the follower."""
        return self.state is not PreJoinState.OUT

    def advance(
        self, mark: CaughtUpMark, *, fetch_offset: int, high_watermark: int, epoch_start_offset: int, now_ms: int
    ) -> PreJoinState:
        """At each fetch of the follower, and at ticks.  On the first PROPOSED send the AlterPartition."""
        if self.state is PreJoinState.OUT and self._may_begin(mark, fetch_offset, epoch_start_offset, now_ms):
            self.state = PreJoinState.JOINING
            self.frozen_high_watermark = high_watermark
            self._joining_since_ms = now_ms
        if self.state is PreJoinState.JOINING:
            if fetch_offset >= max(self.frozen_high_watermark, epoch_start_offset):
                self.state = PreJoinState.PROPOSED
            elif now_ms - self._joining_since_ms >= PRE_JOIN_MAX_MS:
                self.dropped(now_ms)
        return self.state

    def dropped(self, now_ms: int) -> None:
        """The controller refused, or it took too long: the high watermark goes on, and the follower waits a while."""
        self.state = PreJoinState.OUT
        self._not_before_ms = now_ms + PRE_JOIN_PAUSE_MS

    def joined(self) -> None:
        """It is in the ISR; should it leave again, it may join at once."""
        self.state = PreJoinState.OUT
        self._not_before_ms = NEVER_MS

    def _may_begin(self, mark: CaughtUpMark, fetch_offset: int, epoch_start_offset: int, now_ms: int) -> bool:
        return (
            now_ms >= self._not_before_ms
            and fetch_offset >= epoch_start_offset
            and mark.lag_ms(now_ms) < PRE_JOIN_MARK_LAG_MAX_MS
        )
