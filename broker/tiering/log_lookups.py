"""LogLookups: what reads of remote segments ask about the log of a replica here."""

from collections.abc import Iterable

from broker.common.identifiers import TopicIdPartition
from broker.log.transaction_index import AbortedTransaction
from broker.replication.partition import Partition
from broker.tiering.first_epochs import ensure_epoch_is_known
from broker.tiering.leader_epochs import LeaderEpochs
from broker.tiering.remote_log_metadata_manager import RemoteLogMetadataManager
from broker.tiering.remote_log_reader import SegmentPart
from broker.tiering.segment_lineage import SegmentLineage


def id_of(partition: Partition) -> TopicIdPartition:
    """Of this incarnation of its topic."""
    return TopicIdPartition(partition.topic_id, *partition.topic_partition)


class LogLookups:
    """A `ReadableLog`.  Leader or follower: a read takes what the replica's own leader epochs say.

    Questions raise StorageFailure when the log has gone, and ReplicaNotAvailableError while not everything is known of
    the partition, or the epoch of an offset.
    """

    def __init__(self, partition: Partition, metadata: RemoteLogMetadataManager) -> None:
        self._partition = partition
        self._id = id_of(partition)
        self._metadata = metadata
        self._known: tuple[LeaderEpochs, int] | None = None
        self._lineage = SegmentLineage((), 0)

    async def segment_at(self, offset: int) -> SegmentPart | None:
        epoch = self._partition.log.leader_epochs.epoch_for_offset(offset)
        if epoch is None:
            ensure_epoch_is_known(self._partition.log, offset)
            return None
        segment = await self._metadata.remote_log_segment_metadata(self._id, epoch, offset)
        if segment is None:
            return None
        end_offset = self._lineage_of_now().common_end(segment, offset)
        return SegmentPart(segment, end_offset) if end_offset > offset else None

    def _lineage_of_now(self) -> SegmentLineage:
        """Kept while the log stays as it is: thousands of segments may be looked through for aborted transactions."""
        local = self._partition.log
        known = (local.leader_epochs.entries, local.log_end_offset)
        if known != self._known:
            self._known = known
            self._lineage = SegmentLineage(*known)
        return self._lineage

    def local_aborted(self, fetch_offset: int, upper_bound_offset: int) -> Iterable[AbortedTransaction]:
        return self._partition.log.local_log.collect_aborted(fetch_offset, upper_bound_offset)
