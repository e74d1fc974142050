"""The port to what remote storage has of the logs here (KIP-405; RemoteLogManager, as ReplicaManager sees it).

What is asked goes on in the background: whoever waits gives up when its own time is over.
"""

import asyncio
from typing import NamedTuple, Protocol

from broker.common.buffers import Buffer
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.log.log_segment import TimestampAndOffset
from broker.log.transaction_index import AbortedTransaction
from broker.replication.partition import Partition


class RemoteFetch(NamedTuple):
    """Records that a consumer wants from `offset` on, which is below the local log start offset."""

    partition: Partition
    offset: int
    size_max: int
    min_one_message: bool  # a first batch larger than that is given whole, or else nothing (KIP-74)
    upper_bound_offset: int  # up to where it may see the log, exclusive
    only_committed: bool


class RemoteRecords(NamedTuple):
    """Whole batches of one segment; `aborted` is None unless only committed records were asked for.

    `next_offset`: remote storage has nothing from the offset asked for up to there, where the local log has the next
    records; batches were compacted away before the topic was tiered.
    """

    records: Buffer
    aborted: tuple[AbortedTransaction, ...] | None
    next_offset: int | None = None


class RemoteLogState(NamedTuple):
    """What a follower begins with whose local log is to begin at `next_offset`: all that came before, but the records.

    `producer_snapshot` is the content of a snapshot file at that offset.
    """

    next_offset: int
    leader_epochs: tuple[EpochEntry, ...]
    producer_snapshot: bytes


class RemoteLog(Protocol):
    """Futures fail with KafkaError; one that is cancelled takes its question back."""

    @property
    def is_fetch_quota_exceeded(self) -> bool:
        """Whether no fetch may begin now (remote.log.manager.fetch.max.bytes.per.second)."""

    def fetch(self, fetch: RemoteFetch) -> "asyncio.Future[RemoteRecords]":
        """Begin to read.  RemoteStorageError at once when too many wait (remote.log.reader.max.pending.tasks).

        The future's errors: OffsetOutOfRangeError when no remote segment has the offset, ReplicaNotAvailableError
        while not everything is known of the partition, RemoteStorageError.
        """

    def find_offset(
        self, partition: Partition, timestamp: int, starting_offset: int
    ) -> "asyncio.Future[TimestampAndOffset | None]":
        """The first record at or after `starting_offset` whose timestamp is not smaller, in segments that are not on
        this disk; None: it is in the local log, if anywhere.  Errors as those of `fetch`."""

    async def state_before(self, partition: Partition, epoch: int, offset: int) -> RemoteLogState:
        """The state at the end of the remote segment that has `offset`, which was written in `epoch`.

        ReplicaNotAvailableError while not everything is known of the partition, RemoteStorageError when there is no
        such segment or it cannot be read.
        """
