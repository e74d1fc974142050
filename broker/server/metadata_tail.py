"""The end of the metadata log that this broker has fetched and may not apply yet."""

from collections import deque

from broker.common.buffers import Buffer
from broker.common.identifiers import NO_OFFSET, LeaderEpoch, Offset
from broker.metadata.metadata_fault import MetadataFault
from broker.records.record_batch import RecordBatch, batches


class MetadataDivergedError(Exception):
    """The quorum's log contradicts what was already applied here: it has lost committed records."""


class MetadataTail:
    """Batches between what is applied and what is fetched; a new leader may take back those above the high watermark.

    `end_offset` is the next offset to fetch, `last_epoch` the leader epoch of the record before it (0 in an empty log).
    """

    def __init__(self) -> None:
        self._batches: deque[RecordBatch] = deque()
        self._applied_end_offset: Offset = 0
        self._applied_epoch: LeaderEpoch = 0
        self._epoch_starts: list[tuple[LeaderEpoch, Offset]] = []  # ascending
        self.high_watermark: Offset = NO_OFFSET
        self.leader_high_watermark: Offset = NO_OFFSET  # may be beyond what we have

    @property
    def lag(self) -> int:
        """How many committed records are not handed out yet, as far as the leader has told."""
        return max(0, self.leader_high_watermark - self._applied_end_offset)

    @property
    def end_offset(self) -> Offset:
        return self._batches[-1].next_offset if self._batches else self._applied_end_offset

    @property
    def last_epoch(self) -> LeaderEpoch:
        return self._batches[-1].partition_leader_epoch if self._batches else self._applied_epoch

    @property
    def applied_end_offset(self) -> Offset:
        """Everything below has been handed out."""
        return self._applied_end_offset

    def append(self, records: Buffer) -> bool:
        """Add what the leader sent; returns whether anything was new.

        CorruptMessageError for a batch with a wrong CRC, MetadataFault for a hole between ours and theirs.
        """
        before = self.end_offset
        for batch in batches(records):
            if batch.next_offset <= self.end_offset:
                continue  # the leader serves whole batches; this one we have
            if batch.base_offset != self.end_offset:
                raise MetadataFault(f"the leader sent offset {batch.base_offset} instead of {self.end_offset}")
            batch.ensure_valid()
            epoch = batch.partition_leader_epoch
            if not self._epoch_starts or self._epoch_starts[-1][0] < epoch:
                self._epoch_starts.append((epoch, batch.base_offset))
            self._batches.append(batch)
        return self.end_offset != before

    def advance_high_watermark(self, leader_high_watermark: Offset) -> bool:
        """Whether it moved.  -1 says that a new leader has committed nothing; what was committed stays so."""
        before = self.high_watermark
        self.leader_high_watermark = max(self.leader_high_watermark, leader_high_watermark)
        self.high_watermark = max(before, min(leader_high_watermark, self.end_offset))
        return self.high_watermark != before

    def take_committed(self) -> RecordBatch | None:
        """The next batch below the high watermark; from now on it counts as applied."""
        if not self._batches or self._batches[0].next_offset > self.high_watermark:
            return None
        batch = self._batches.popleft()
        self._applied_end_offset = batch.next_offset
        self._applied_epoch = batch.partition_leader_epoch
        return batch

    def truncate(self, epoch: LeaderEpoch, end_offset: Offset) -> None:
        """Give up what the leader does not have: its log of `epoch` ends at `end_offset` (DivergingEpoch)."""
        target = min(end_offset, self._end_offset_for(epoch))
        if target < max(self.high_watermark, self._applied_end_offset):
            raise MetadataDivergedError(
                f"the leader's log ends at {end_offset} in epoch {epoch}, but records up to {self.high_watermark} "
                "were committed: the quorum has lost data"
            )
        while self._batches and self._batches[-1].next_offset > target:
            self._batches.pop()
        while self._epoch_starts and self._epoch_starts[-1][1] >= self.end_offset:
            self._epoch_starts.pop()

    def restart_at(self, end_offset: Offset, epoch: LeaderEpoch) -> None:
        """A snapshot took the place of everything below `end_offset`."""
        self._batches.clear()
        self._applied_end_offset, self._applied_epoch = end_offset, epoch
        self._epoch_starts = [(epoch, end_offset - 1)]
        self.high_watermark = max(self.high_watermark, end_offset)
        self.leader_high_watermark = max(self.leader_high_watermark, end_offset)

    def _end_offset_for(self, epoch: LeaderEpoch) -> Offset:
        """Where our records of epochs up to this one end."""
        later = [start for other, start in self._epoch_starts if other > epoch]
        return min(later) if later else self.end_offset
