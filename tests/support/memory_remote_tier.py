"""What leaders of one partition have copied to remote storage, as those see it who begin behind it: no record of it."""

from collections.abc import Callable
from typing import NamedTuple

from broker.common.errors import ReplicaNotAvailableError
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.log.unified_log import UnifiedLog
from broker.replication.partition import Partition
from broker.replication.remote_log import RemoteLogState


class TieredSegment(NamedTuple):
    """`history` is what is uploaded with it: all epochs of the log below its end."""

    base_offset: int
    state: RemoteLogState

    @property
    def history(self) -> tuple[EpochEntry, ...]:
        return self.state.leader_epochs

    def holds(self, epoch: int, offset: int) -> bool:
        """Whether it has the record at `offset`, of `epoch`."""
        if not self.base_offset <= offset < self.state.next_offset:
            return False
        return epoch == max(entry for entry in self.history if entry.start_offset <= offset).epoch


class MemoryRemoteTier:
    """Answers `state_before` of a `ScriptedRemoteLog`.  `knows` says whether a broker has heard of a segment."""

    def __init__(self) -> None:
        self.segments: list[TieredSegment] = []
        self.knows: Callable[[], bool] = lambda: True

    def copy(self, log: UnifiedLog, *, is_dropped: bool = True) -> int:
        """All closed segments that it has not: then they leave the leader's disk.  Returns where that begins now."""
        closed = list(log.segments)[:-1]
        bases = [each.base_offset for each in log.segments]
        for segment, next_offset in zip(closed, bases[1:], strict=True):
            if any(each.base_offset == segment.base_offset for each in self.segments):
                continue
            history = tuple(entry for entry in log.leader_epochs.entries if entry.start_offset < next_offset)
            snapshot = log.producer_snapshot_path(next_offset).read_bytes()
            self.segments.append(TieredSegment(segment.base_offset, RemoteLogState(next_offset, history, snapshot)))
        log.update_highest_remote_offset(bases[-1] - 1)
        if is_dropped:
            log.flush()  # what the device lacks stays
            log.maybe_increment_local_log_start_offset(bases[-1], "copied")
            log.delete_old_segments()
        return bases[-1]

    def state_before(self, partition: Partition, epoch: int, offset: int) -> RemoteLogState:
        if self.knows():
            for segment in self.segments:
                if segment.holds(epoch, offset):
                    return segment.state
        raise ReplicaNotAvailableError(f"nothing is known of {partition.topic_partition} at {offset} in epoch {epoch}")
