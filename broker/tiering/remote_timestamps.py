"""Which record of a remote log is the first of a timestamp (Kafka: RemoteLogManager.findOffsetByTimestamp)."""

from uuid import UUID

from broker.log.log_segment import TimestampAndOffset
from broker.replication.partition import Partition
from broker.tiering.log_lookups import id_of
from broker.tiering.remote_log_metadata_manager import RemoteLogMetadataManager
from broker.tiering.remote_log_reader import RemoteLogReader
from broker.tiering.segment_lineage import SegmentLineage


async def find_remote_offset(
    metadata: RemoteLogMetadataManager,
    reader: RemoteLogReader,
    partition: Partition,
    timestamp: int,
    starting_offset: int,
) -> TimestampAndOffset | None:
    """The first record at or after `starting_offset` whose timestamp is not smaller, below the local log.

    The log start may move up while this waits: records below it do not count, those above it are still looked through.
    Segments that are on this disk as well are not asked.  One that goes on with what another log has, after an unclean
    election, is asked for what it has of this one, as reads are; Kafka passes over it.  RemoteStorageError,
    ReplicaNotAvailableError, StorageFailure.
    """
    starting_offset = max(starting_offset, partition.log.log_start_offset)
    first_epoch = partition.log.leader_epochs.epoch_for_offset(starting_offset)
    if first_epoch is None:
        return None
    asked: set[UUID] = set()  # a segment of two epochs is listed twice
    for epoch, _ in partition.log.leader_epochs.entries:
        if epoch < first_epoch:
            continue
        for segment in await metadata.list_remote_log_segments(id_of(partition), epoch):
            if (
                segment.max_timestamp_ms < timestamp
                or segment.end_offset < starting_offset
                or not segment.is_readable
                or segment.segment_id in asked
            ):
                continue
            asked.add(segment.segment_id)
            local = partition.log
            from_offset = max(segment.start_offset, starting_offset, local.log_start_offset)
            lineage = SegmentLineage(local.leader_epochs.entries, local.log_end_offset)
            if (end_offset := lineage.common_end(segment, from_offset)) <= from_offset:
                continue
            if from_offset >= local.local_log_start_offset:
                return None
            found = await reader.find_offset_by_timestamp(segment, timestamp, from_offset, end_offset)
            if found is not None:
                return found
    return None
