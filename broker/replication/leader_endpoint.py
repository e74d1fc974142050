"""The port through which a follower asks the leader of its partitions (Kafka's LeaderEndPoint)."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from broker.common.buffers import Buffer
from broker.common.errors import ErrorCode
from broker.common.identifiers import NO_OFFSET, TopicPartition
from broker.replication.fetch_params import EpochEndOffset
from broker.replication.leader_local_start import LeaderLocalStart


class LeaderUnavailableError(ConnectionError):
    """No answer: the leader could not be reached, was too late, or said something that is not the protocol."""


class FetchSessionError(Exception):
    """The leader refused a fetch as a whole; nothing of it counts, and the next one opens another session."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(f"the fetch was refused: {error.name}")
        self.error = error


class FollowerFetch(NamedTuple):
    """What a follower asks of one partition (the body of one partition in Fetch)."""

    topic_id: UUID
    fetch_offset: int
    log_start_offset: int
    leader_epoch: int
    last_fetched_epoch: int  # -1: the follower knows of no epoch
    max_bytes: int


class FetchedPartition(NamedTuple):
    """What the leader answered for one partition.  `records` may end within a batch."""

    error: ErrorCode = ErrorCode.none
    high_watermark: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    records: Buffer = b""
    diverging_epoch: EpochEndOffset | None = None


class LeaderEndPoint(Protocol):
    """One leading broker as one fetcher sees it; calls never overlap.

    What a fetch session (KIP-227) leaves out of an answer has no change: the mapping lacks it.
    """

    async def fetch(
        self, requests: dict[TopicPartition, FollowerFetch], *, max_wait_ms: int
    ) -> Mapping[TopicPartition, FetchedPartition]:
        """Everything this fetcher follows and is ready to receive; the leader may wait so long for records to come.

        What is not the same request object as in the last call is found fastest at the end of `requests`.
        LeaderUnavailableError, FetchSessionError.  It may be cancelled: the next fetch then begins another session.
        """

    def begin_anew(self) -> None:
        """Something of the last answer was not used, and the leader must not take it for told: the next fetch opens
        another session."""

    async def latest_offset(self, topic_partition: TopicPartition, leader_epoch: int) -> int:
        """The leader's log end offset.  LeaderUnavailableError, or KafkaError with the leader's code."""

    async def earliest_offset(self, topic_partition: TopicPartition, leader_epoch: int) -> int:
        """The leader's log start offset.  LeaderUnavailableError, or KafkaError with the leader's code."""

    async def earliest_local_offset(self, topic_partition: TopicPartition, leader_epoch: int) -> LeaderLocalStart:
        """Where the log begins on the leader's disk.  LeaderUnavailableError, or KafkaError with the leader's code."""

    async def epoch_end_offset(self, topic_partition: TopicPartition, epoch: int, leader_epoch: int) -> EpochEndOffset:
        """The newest epoch at or below `epoch` that the leader knows, and where it ended; (-1, -1): it knows none.

        `leader_epoch` is the one it leads in.  LeaderUnavailableError, or KafkaError with the leader's code.
        """

    async def close(self) -> None:
        """Give the connection up; the next call makes another one."""
