"""A follower's progress as its leader sees it (Kafka's Replica and ReplicaState)."""

from typing import Final

from broker.common.identifiers import NO_EPOCH, NO_OFFSET

NEVER_MS: Final = -(1 << 62)  # before every time: the monotonic clock may have begun a moment ago


class ReplicaState:
    """Moved only by the follower's fetches and by elections.  Times are milliseconds of the monotonic clock.

    Who fetches from the mark on had, at the mark's time, all there was then: it was caught up then (KIP-16).  Kafka's
    mark is the log end and the time of the last fetch, whose answer carried the bytes.  A follower that takes its
    records from a bucket (KIP-1176) fetches every few milliseconds and has the bytes much later: under steady load it
    never has what was there a fetch ago, and would leave the ISR.  Its mark stays where it is until it is reached.
    """

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "last_caught_up_time_ms",
        "log_end_offset",
        "log_start_offset",
        "mark_offset",
        "mark_time_ms",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.log_start_offset = NO_OFFSET
        self.log_end_offset = NO_OFFSET  # may go back: a follower truncates
        self.mark_offset = NO_OFFSET  # Kafka's lastFetchLeaderLogEndOffset
        self.mark_time_ms = NEVER_MS  # Kafka's lastFetchTimeMs
        self.last_caught_up_time_ms = NEVER_MS
        self.broker_epoch = NO_EPOCH  # of its last fetch; -1 until it has fetched, or when it does not send one

    def update_fetch_state(
        self,
        *,
        fetch_offset: int,
        log_start_offset: int,
        leader_log_end_offset: int,
        now_ms: int,
        broker_epoch: int,
        is_mark_pinned: bool,
    ) -> None:
        """Record a fetch; `leader_log_end_offset` is the one from before the fetch was read.

        `is_mark_pinned`: the records come through a bucket, see above.
        """
        has_reached_mark = fetch_offset >= self.mark_offset
        if fetch_offset >= leader_log_end_offset:
            self.last_caught_up_time_ms = max(self.last_caught_up_time_ms, now_ms)
        elif has_reached_mark:
            self.last_caught_up_time_ms = max(self.last_caught_up_time_ms, self.mark_time_ms)
        if has_reached_mark or not is_mark_pinned:
            self.mark_offset = max(leader_log_end_offset, self.mark_offset)
            self.mark_time_ms = now_ms
        self.log_start_offset = log_start_offset
        self.log_end_offset = fetch_offset
        self.broker_epoch = broker_epoch

    def note_idle(self, fetch_time_ms: int) -> None:
        """It fetched without being looked at, because there was nothing new: it had everything then."""
        if self.mark_time_ms < fetch_time_ms and NO_OFFSET < self.mark_offset <= self.log_end_offset:
            self.mark_time_ms = fetch_time_ms
            self.last_caught_up_time_ms = max(self.last_caught_up_time_ms, fetch_time_ms)

    def reset(self, *, now_ms: int, is_in_sync: bool) -> None:
        """A leader epoch begins: members of the ISR get the whole lag time, and nothing else is known.

        Kafka keeps what it knows when the same broker leads on.  But what we hear of as the next epoch may be several
        in one change, with another leader among them whom the follower has cut its log for: only a fetch in this
        epoch tells what it has.
        """
        self.last_caught_up_time_ms = now_ms if is_in_sync else NEVER_MS
        self.log_start_offset = NO_OFFSET
        self.log_end_offset = NO_OFFSET
        self.mark_offset = NO_OFFSET
        self.mark_time_ms = NEVER_MS
        self.broker_epoch = NO_EPOCH

    def is_caught_up(self, leader_log_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        return leader_log_end_offset == self.log_end_offset or now_ms - self.last_caught_up_time_ms <= lag_time_max_ms
