"""What a leader has of the path through the bucket, for a partition whose followers take their records there."""

from typing import Protocol


class LeaderWal(Protocol):
    """The sending half of one partition, for as long as it is led here (KIP-1176).

    A partition without one is replicated as ever: followers get records in the answers to their fetches.
    """

    def appended(self, size_bytes: int) -> None:
        """The log end has moved, by so many bytes before compression here.  Called at each append: it must be cheap."""

    def awaited(self) -> None:
        """A producer waits with acks=all for what it has just appended.  Called for each request: it must be cheap."""

    def serves_records(self, replica_id: int, fetch_offset: int) -> bool:
        """Whether a follower's fetch is answered with records because the bucket has not what it needs (fallback).

        Asked once for each fetch that is otherwise valid, caught up or not.
        """

    def count_fallback(self, replica_id: int, size_bytes: int) -> None:
        """Records are about to be sent to a follower."""

    def log_start_moved(self) -> None:
        """Records at the start of the log were deleted on request; those that retention deletes are not told."""
