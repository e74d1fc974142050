"""Offsets by timestamp and by epoch of one partition (Kafka's Partition.fetchOffsetForTimestamp and friends)."""

from typing import Final, NamedTuple

from broker.common.errors import (
    LeaderNotAvailableError,
    OffsetNotAvailableError,
    UnsupportedVersionError,
)
from broker.common.identifiers import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP
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


class ListedOffset(NamedTuple):
    """What ListOffsets answers for a partition; -1 where there is no such record."""

    timestamp: int = NO_TIMESTAMP
    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH


NOT_FOUND: Final = ListedOffset()


class EpochEnd(NamedTuple):
    """What OffsetForLeaderEpoch answers for a partition; (-1, -1) for an epoch we know nothing of."""

    leader_epoch: int = NO_EPOCH
    end_offset: int = NO_OFFSET


def list_offset(
    partition: Partition,
    timestamp: int,
    *,
    version: int,
    replica_id: int = CONSUMER_REPLICA_ID,
    isolation_level: int = 0,
    current_leader_epoch: int = NO_EPOCH,
) -> ListedOffset:
    """The offset for a timestamp, or for one of the special ones.  KafkaError."""
    if timestamp < 0 and FIRST_VERSION_OF.get(timestamp, version + 1) > version:
        raise UnsupportedVersionError(f"ListOffsets version {version} does not know the timestamp {timestamp}")
    local = partition.leader_log(current_leader_epoch, must_lead=replica_id != DEBUGGING_REPLICA_ID)
    is_consumer = replica_id == CONSUMER_REPLICA_ID
    if not is_consumer:
        isolation = FetchIsolation.LOG_END
    else:
        isolation = FetchIsolation.TXN_COMMITTED if isolation_level == 1 else FetchIsolation.HIGH_WATERMARK
    limit = partition.fetch_limit(isolation)
    # KIP-207: right after an election the high watermark may not have reached the start of our epoch yet, and what
    # the previous leader has told consumers could be above it.
    is_behind = is_consumer and partition.leader_epoch_start_offset > local.high_watermark
    if timestamp == LATEST_TIMESTAMP:
        if is_behind:
            raise _not_available(partition, version)
        return ListedOffset(NO_TIMESTAMP, limit, partition.leader_epoch)
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return ListedOffset(NO_TIMESTAMP, local.log_start_offset, _epoch_of_first_record(local))
    if timestamp == LATEST_TIERED_TIMESTAMP:
        return NOT_FOUND
    found = _search(local, timestamp)
    if found is None or found.offset >= limit:
        if is_behind:
            raise _not_available(partition, version)
        return NOT_FOUND
    return found


def _search(local: UnifiedLog, timestamp: int) -> ListedOffset | None:
    found = local.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else local.offset_for_timestamp(timestamp)
    return None if found is None else ListedOffset(found.timestamp, found.offset, found.leader_epoch)


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
