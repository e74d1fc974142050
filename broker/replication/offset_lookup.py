"""Offsets by timestamp and by epoch of one partition (Kafka's Partition.fetchOffsetForTimestamp and friends)."""

from typing import Final, NamedTuple

from broker.common.errors import (
    ErrorCode,
    LeaderNotAvailableError,
    OffsetNotAvailableError,
    UnsupportedVersionError,
)
from broker.common.identifiers import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP
from broker.log.log_segment import TimestampAndOffset
from broker.log.unified_log import UnifiedLog
from broker.replication.fetch_params import CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID, FetchIsolation
from broker.replication.partition import Partition

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5

# The first version of ListOffsets that knows each special timestamp.
FIRST_VERSION_OF: Final = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
}
FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE: Final = 5

READ_COMMITTED: Final = 1


class OffsetQuery(NamedTuple):
    """What ListOffsets asks of a partition: a timestamp in milliseconds, or one of the special ones."""

    timestamp: int
    version: int
    replica_id: int = CONSUMER_REPLICA_ID
    isolation_level: int = 0
    current_leader_epoch: int = NO_EPOCH


class ListedOffset(NamedTuple):
    """What ListOffsets answers for a partition; -1 where there is no such record."""

    timestamp: int = NO_TIMESTAMP
    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH
    error: ErrorCode = ErrorCode.none


NOT_FOUND: Final = ListedOffset()


class RemoteOffsetLookup(NamedTuple):
    """A timestamp whose record may be in segments that are not on this disk any more: remote storage knows first."""

    partition: Partition
    query: OffsetQuery

    @property
    def log(self) -> UnifiedLog:
        """The log as long as the query may be answered here.  KafkaError."""
        return _log_of(self.partition, self.query)

    def conclude(self, remote: TimestampAndOffset | None) -> ListedOffset:
        """The answer, as what remote storage has and the partition is now.  KafkaError.

        Kafka holds it to the last fetchable offset of the time of the request.
        """
        local = self.log
        found = local.offset_for_timestamp(self.query.timestamp) if remote is None else remote
        return _if_fetchable(self.partition, local, self.query, found)


class EpochEnd(NamedTuple):
    """What OffsetForLeaderEpoch answers for a partition; (-1, -1) for an epoch we know nothing of."""

    leader_epoch: int = NO_EPOCH
    end_offset: int = NO_OFFSET


def list_offset(partition: Partition, query: OffsetQuery) -> ListedOffset | RemoteOffsetLookup:
    """The offset for a timestamp, or for one of the special ones.  KafkaError."""
    timestamp = query.timestamp
    if timestamp < 0 and FIRST_VERSION_OF.get(timestamp, query.version + 1) > query.version:
        raise UnsupportedVersionError(f"ListOffsets version {query.version} does not know the timestamp {timestamp}")
    local = _log_of(partition, query)
    if timestamp == LATEST_TIMESTAMP:
        if _is_behind(partition, local, query):
            raise _not_available(partition, query.version)
        return ListedOffset(NO_TIMESTAMP, _limit(partition, query), partition.leader_epoch)
    if timestamp == EARLIEST_LOCAL_TIMESTAMP and local.is_tiered:
        start_offset = local.local_log_start_offset
        return ListedOffset(NO_TIMESTAMP, start_offset, _epoch_of(local, start_offset))
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return ListedOffset(NO_TIMESTAMP, local.log_start_offset, _epoch_of_first_record(local))
    if timestamp == LATEST_TIERED_TIMESTAMP:
        return _latest_tiered(partition, local, query)
    if timestamp == MAX_TIMESTAMP:
        return _if_fetchable(partition, local, query, local.offset_of_max_timestamp())
    if local.is_tiered and local.log_start_offset < local.local_log_start_offset:
        return RemoteOffsetLookup(partition, query)
    return _if_fetchable(partition, local, query, local.offset_for_timestamp(timestamp))


def _log_of(partition: Partition, query: OffsetQuery) -> UnifiedLog:
    return partition.leader_log(query.current_leader_epoch, must_lead=query.replica_id != DEBUGGING_REPLICA_ID)


def _limit(partition: Partition, query: OffsetQuery) -> int:
    """Where what the asking side may see ends."""
    if query.replica_id != CONSUMER_REPLICA_ID:
        return partition.fetch_limit(FetchIsolation.LOG_END)
    is_committed = query.isolation_level == READ_COMMITTED
    return partition.fetch_limit(FetchIsolation.TXN_COMMITTED if is_committed else FetchIsolation.HIGH_WATERMARK)


def _is_behind(partition: Partition, local: UnifiedLog, query: OffsetQuery) -> bool:
    """KIP-207: right after an election the high watermark may not have reached the start of our epoch yet, and what
    the previous leader has told consumers could be above it."""
    return query.replica_id == CONSUMER_REPLICA_ID and partition.leader_epoch_start_offset > local.high_watermark


def _latest_tiered(partition: Partition, local: UnifiedLog, query: OffsetQuery) -> ListedOffset:
    """The last offset known to be in remote storage; its epoch is -1 once the log starts after it (KIP-1005)."""
    if not local.is_tiered or local.highest_remote_offset == NO_OFFSET:
        return NOT_FOUND
    offset = local.highest_remote_offset
    return _if_fetchable(partition, local, query, TimestampAndOffset(NO_TIMESTAMP, offset, _epoch_of(local, offset)))


def _if_fetchable(
    partition: Partition, local: UnifiedLog, query: OffsetQuery, found: TimestampAndOffset | None
) -> ListedOffset:
    if found is None or found.offset >= _limit(partition, query):
        if _is_behind(partition, local, query):
            raise _not_available(partition, query.version)
        return NOT_FOUND
    return ListedOffset(found.timestamp, found.offset, found.leader_epoch)


def _epoch_of(local: UnifiedLog, offset: int) -> int:
    epoch = local.leader_epochs.epoch_for_offset(offset)
    return NO_EPOCH if epoch is None else epoch


def _epoch_of_first_record(local: UnifiedLog) -> int:
    first = local.leader_epochs.earliest_entry
    return first.epoch if first is not None and first.start_offset <= local.log_start_offset else NO_EPOCH


def _not_available(partition: Partition, version: int) -> LeaderNotAvailableError | OffsetNotAvailableError:
    message = f"The high watermark of {partition.topic_partition} has not reached the start of the leader's epoch"
    if version < FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE:
        return LeaderNotAvailableError(message)
    return OffsetNotAvailableError(message)


def last_offset_for_leader_epoch(
    partition: Partition,
    leader_epoch: int,
    *,
    current_leader_epoch: int = NO_EPOCH,
    replica_id: int = CONSUMER_REPLICA_ID,
) -> EpochEnd:
    """Where an epoch ended here, so that a reader can see whether it has diverged (KIP-320).  KafkaError.

    An epoch older than all that are known is answered with Kafka's floor, the start of the oldest one, to consumers
    only: a replica would read it as "your epoch ended there", and nobody here knows whether it was one of this log.
    """
    local = partition.leader_log(current_leader_epoch)
    oldest = local.leader_epochs.earliest_entry
    if replica_id >= 0 and oldest is not None and leader_epoch < oldest.epoch:
        return EpochEnd()
    epoch, end_offset = local.end_offset_for_epoch(leader_epoch)
    return EpochEnd(epoch, end_offset)
