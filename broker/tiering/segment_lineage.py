"""SegmentLineage: whether remote segments are a part of this log: the same leader epochs at the same offsets."""

from broker.tiering.leader_epochs import LeaderEpochs, without_empty_epochs
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata


class SegmentLineage:
    """One log as of now (Kafka: RemoteLogManager.isRemoteSegmentWithinLeaderEpochs)."""

    def __init__(self, leader_epochs: LeaderEpochs, log_end_offset: int) -> None:
        self.epochs = without_empty_epochs(leader_epochs)
        """Those of the log that have records, or may get them."""
        self._places = {entry.epoch: place for place, entry in enumerate(self.epochs)}
        self._ends = [*(entry.start_offset for entry in self.epochs[1:]), log_end_offset]

    def __contains__(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Whether every record of the segment is, or was before the log's start moved, one of this log.

        Epochs of the segment below the first of the log are not looked at: retention and DeleteRecords cut them off.
        """
        considered = self._considered(segment)
        if not considered:
            return False
        first = considered[0]
        place = self._places.get(first.epoch)
        if place is None or (place > 0 and first.start_offset < self.epochs[place].start_offset):
            return False
        last_place = place + len(considered) - 1
        if last_place > place and considered[1:] != self.epochs[place + 1 : last_place + 1]:
            return False
        return segment.end_offset < self._ends[last_place]

    def _considered(self, segment: RemoteLogSegmentMetadata) -> LeaderEpochs:
        epochs = segment.segment_leader_epochs
        if len(epochs) > 1:
            epochs = without_empty_epochs(epochs)
        if self.epochs and epochs[0].epoch >= self.epochs[0].epoch:
            return epochs  # nearly always; a leader's round goes through all segments there are
        return tuple(entry for entry in epochs if self.epochs and entry.epoch >= self.epochs[0].epoch)
