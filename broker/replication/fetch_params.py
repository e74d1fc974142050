"""What one fetch asks for, and what each partition answers (Kafka's FetchParams, FetchPartitionData)."""

from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from broker.common.buffers import Buffer
from broker.common.errors import ErrorCode
from broker.common.identifiers import NO_BROKER, NO_EPOCH, NO_OFFSET, ZERO_UUID

if TYPE_CHECKING:
    from broker.log.file_records import FileSlice
    from broker.log.transaction_index import AbortedTransaction
    from broker.replication.partition import Partition
    from broker.replication.remote_log import RemoteFetch

CONSUMER_REPLICA_ID: Final = -1
DEBUGGING_REPLICA_ID: Final = -2
FUTURE_REPLICA_ID: Final = -3  # FutureLocalReplicaId: a log that moves between directories

FOLLOWER_FETCHING_VERSION: Final = 11  # KIP-392: consumers at this version may read from followers


class FetchIsolation(IntEnum):
    """Up to where a reader may see the log (Kafka's FetchIsolation)."""

    LOG_END = 0
    HIGH_WATERMARK = 1
    TXN_COMMITTED = 2


class BucketFetch(Enum):
    """How a follower stands that gets no records here, because it takes them from a bucket (KIP-1176)."""

    CAUGHT_UP = "caught up"  # it waits for the next record, as long as the fetch allows
    BEHIND = "behind"  # what it lacks is on its way; it says soon how far it has come
    REFUSED = "refused"  # it was told an error, or that it has diverged


class FetchParams:
    """The part of a fetch that is the same for all its partitions; never changed."""

    __slots__ = (
        "fetch_only_leader",
        "is_from_follower",
        "isolation",
        "listener_name",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "rack_id",
        "replica_epoch",
        "replica_id",
        "version",
    )

    def __init__(
        self,
        version: int,
        replica_id: int = CONSUMER_REPLICA_ID,
        replica_epoch: int = NO_EPOCH,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 0x7FFFFFFF,
        isolation_level: int = 0,
        rack_id: str = "",
        listener_name: str = "",
    ) -> None:
        """`listener_name` is the one the client came through: only what it can reach there is of use to it."""
        self.version = version
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.rack_id = rack_id
        self.listener_name = listener_name
        self.is_from_follower = replica_id >= 0
        self.fetch_only_leader = self.is_from_follower or (
            replica_id == CONSUMER_REPLICA_ID and version < FOLLOWER_FETCHING_VERSION
        )
        if self.is_from_follower or replica_id == FUTURE_REPLICA_ID:
            self.isolation = FetchIsolation.LOG_END
        elif isolation_level == 1:
            self.isolation = FetchIsolation.TXN_COMMITTED
        else:
            self.isolation = FetchIsolation.HIGH_WATERMARK


class FetchPartition:
    """One partition as a fetch asks for it.

    `hosted` is the local partition found for it, kept while the fetch (or its session) watches that partition;
    `available_bytes` is what a parked fetch has counted for it so far.  `bucket_fetch` is how it was answered when it
    was last read for a follower of a partition with a `leader_wal`; None with records.
    """

    __slots__ = (
        "available_bytes",
        "bucket_fetch",
        "current_leader_epoch",
        "fetch_offset",
        "hosted",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str | None,
        partition: int,
        fetch_offset: int,
        max_bytes: int,
        topic_id: UUID = ZERO_UUID,
        current_leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        log_start_offset: int = NO_OFFSET,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.max_bytes = max_bytes
        self.hosted: Partition | None = None
        self.available_bytes = 0
        self.bucket_fetch: BucketFetch | None = None

    # What is known of earlier answers: nothing, outside of a session

    @property
    def is_remembered(self) -> bool:
        """Whether what the client was told is known at its next fetch."""
        return False

    @property
    def is_refused_again(self) -> bool:
        """Whether a refusal may be the same as the last, to a client that has not changed what it asks for."""
        return True

    def has_news(self, high_watermark: int, log_start_offset: int) -> bool:
        """Whether the client is known not to have been told these."""
        return False


class EpochEndOffset(NamedTuple):
    """An epoch the leader knows and the offset where it ended there: a follower with more has diverged."""

    epoch: int
    end_offset: int


class LeaderHint(NamedTuple):
    """Who leads, for an answer that refuses because somebody else does (KIP-951)."""

    leader_id: int
    leader_epoch: int


NO_LEADER_HINT: Final = LeaderHint(NO_BROKER, NO_EPOCH)


class FetchPartitionResult:
    """What one partition answers.  `records` is never None: an empty answer carries b"" (a null breaks clients)."""

    __slots__ = (
        "aborted_transactions",
        "completes_fetch",
        "current_leader",
        "diverging_epoch",
        "error",
        "file_slice",
        "has_more",
        "high_watermark",
        "is_unresolved",
        "last_stable_offset",
        "log_start_offset",
        "partition",
        "preferred_read_replica",
        "records",
        "remote_fetch",
        "request",
        "size_bytes",
    )

    def __init__(
        self,
        request: FetchPartition,
        error: ErrorCode = ErrorCode.none,
        high_watermark: int = NO_OFFSET,
        last_stable_offset: int = NO_OFFSET,
        log_start_offset: int = NO_OFFSET,
    ) -> None:
        self.request = request
        self.partition = request.partition
        self.error = error
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.aborted_transactions: tuple[AbortedTransaction, ...] | None = None
        self.diverging_epoch: EpochEndOffset | None = None
        self.preferred_read_replica = NO_BROKER
        self.current_leader: LeaderHint | None = None
        self.records: Buffer = b""
        self.size_bytes = 0  # of `records`, known before they are read from the file
        self.file_slice: FileSlice | None = None
        self.remote_fetch: RemoteFetch | None = None  # what is to be read from remote storage, or was
        self.is_unresolved = False  # the topic or partition is not in the metadata: no reason to answer early
        self.completes_fetch = False  # waiting would not change this answer
        self.has_more = False  # there are readable records at or behind the offset asked for

    def refuse(self, error: ErrorCode) -> None:
        """Turn the result into an error: offsets unknown, records empty, told at once."""
        self.error = error
        self.high_watermark = self.last_stable_offset = self.log_start_offset = NO_OFFSET
        self.aborted_transactions = None
        self.records = b""
        self.size_bytes = 0
        self.file_slice = None
        self.completes_fetch = True
