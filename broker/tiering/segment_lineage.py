"""SegmentLineage: whether remote segments are a part of this log: the same leader epochs at the same offsets."""

from bisect import bisect_right

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

    def common_end(self, segment: RemoteLogSegmentMetadata, offset: int) -> int:
        """Up to where, exclusive, the segment's records from `offset` on are those of this log.

        `offset` itself when already its epoch is another one.  Kafka's reads do not ask: after an unclean election they
        may return what the old leader wrote.
        """
        place = bisect_right(self.epochs, offset, key=lambda entry: entry.start_offset) - 1
        epochs = without_empty_epochs(segment.segment_leader_epochs)
        theirs = bisect_right(epochs, offset, key=lambda entry: entry.start_offset) - 1
        while 0 <= theirs < len(epochs) and 0 <= place < len(self.epochs):
            if epochs[theirs].epoch != self.epochs[place].epoch:
                return offset
            end_offset = self._ends[place]
            next_offset = epochs[theirs + 1].start_offset if theirs + 1 < len(epochs) else segment.next_offset
            offset = min(end_offset, next_offset)
            if end_offset != next_offset:
                return offset
            place, theirs = place + 1, theirs + 1
        return offset
