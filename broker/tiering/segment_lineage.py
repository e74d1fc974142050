"""SegmentLineage: whether remote segments are a part of this log: the same leader epochs at the same offsets."""

from broker.tiering.leader_epochs import LeaderEpochs, end_offset_of, without_empty_epochs
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata


class SegmentLineage:
    """One log as of now (Kafka: RemoteLogManager.isRemoteSegmentWithinLeaderEpochs)."""

    def __init__(self, leader_epochs: LeaderEpochs, log_end_offset: int) -> None:
        self.epochs = without_empty_epochs(leader_epochs)
        """Those of the log that have records, or may get them."""
        self._places = {entry.epoch: place for place, entry in enumerate(self.epochs)}
        self._log_end_offset = log_end_offset

    def __contains__(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Whether every record of the segment is, or was before the log's start moved, one of this log.

        Epochs of the segment below the first of the log are not looked at: retention and DeleteRecords cut them off.
        """
        if not self.epochs:
            return False
        epochs = without_empty_epochs(segment.segment_leader_epochs)
        considered = tuple(entry for entry in epochs if entry.epoch >= self.epochs[0].epoch)
        if not considered:
            return False
        first, last = considered[0], considered[-1]
        place = self._places.get(first.epoch)
        if place is None or (place > 0 and first.start_offset < self.epochs[place].start_offset):
            return False
        if considered[1:] != self.epochs[place + 1 : place + len(considered)]:
            return False
        return segment.end_offset < end_offset_of(self.epochs, last.epoch, self._log_end_offset)
