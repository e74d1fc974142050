"""A follower's progress as its leader sees it (Kafka's Replica and ReplicaState)."""

from typing import Final

from broker.common.identifiers import NO_EPOCH, NO_OFFSET

NEVER_MS: Final = -(1 << 62)  # before every time: the monotonic clock may have begun a moment ago


class ReplicaState:
    """Moved only by the follower's fetches and by elections.  Times are milliseconds of the monotonic clock."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "last_caught_up_time_ms",
        "last_fetch_leader_log_end_offset",
        "last_fetch_time_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.log_start_offset = NO_OFFSET
        self.log_end_offset = NO_OFFSET  # may go back: a follower truncates
        self.last_fetch_leader_log_end_offset = NO_OFFSET
        self.last_fetch_time_ms = NEVER_MS
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
    ) -> None:
        """Record a fetch; `leader_log_end_offset` is the one from before the fetch was read."""
        if fetch_offset >= leader_log_end_offset:
            self.last_caught_up_time_ms = max(self.last_caught_up_time_ms, now_ms)
        elif fetch_offset >= self.last_fetch_leader_log_end_offset:
            # It now has all that existed when it fetched before: it was caught up then (KIP-16's definition).
            self.last_caught_up_time_ms = max(self.last_caught_up_time_ms, self.last_fetch_time_ms)
        self.log_start_offset = log_start_offset
        self.log_end_offset = fetch_offset
        self.last_fetch_leader_log_end_offset = max(leader_log_end_offset, self.last_fetch_leader_log_end_offset)
        self.last_fetch_time_ms = now_ms
        self.broker_epoch = broker_epoch

    def reset(self, *, now_ms: int, is_in_sync: bool) -> None:
        """A leader epoch begins: members of the ISR get the whole lag time, and nothing else is known.

        Kafka keeps what it knows when the same broker leads on.  But what we hear of as the next epoch may be several
        in one change, with another leader among them whom the follower has cut its log for: only a fetch in this
        epoch tells what it has.
        """
        self.last_caught_up_time_ms = now_ms if is_in_sync else NEVER_MS
        self.log_start_offset = NO_OFFSET
        self.log_end_offset = NO_OFFSET
        self.last_fetch_leader_log_end_offset = NO_OFFSET
        self.last_fetch_time_ms = NEVER_MS
        self.broker_epoch = NO_EPOCH

    def is_caught_up(self, leader_log_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        return leader_log_end_offset == self.log_end_offset or now_ms - self.last_caught_up_time_ms <= lag_time_max_ms
