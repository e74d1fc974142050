"""Where a follower begins whose leader has moved the start of its log to remote storage (Kafka: TierStateMachine)."""

from dataclasses import dataclass

from broker.log.leader_epoch_file_cache import EpochEndOffset
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class LeaderLocalStart:
    """What the leader answers when asked for its earliest local offset (ListOffsets -4): its log has no local record
    below `offset`, which `epoch` wrote."""

    epoch: int
    offset: int

    def __post_init__(self) -> None:
        if self.epoch < 0 or self.offset <= 0:
            raise ValueError(f"a leader whose local log starts at {self.offset} in epoch {self.epoch} tiered nothing")

    @property
    def last_remote_offset(self) -> int:
        """The offset before it: the follower needs the state as of there."""
        return self.offset - 1

    @property
    def epoch_to_ask_for(self) -> int | None:
        """Of which epoch the leader is to be asked the end, by OffsetsForLeaderEpoch; None: of none."""
        return None if self.epoch == 0 else self.epoch - 1

    def epoch_of_last_remote_offset(self, earlier: EpochEndOffset | None) -> int:
        """Which epoch wrote it; `earlier` is the leader's answer for `epoch_to_ask_for`.

        The leader answers with the newest epoch it has at or below the one asked for, so gaps in the numbers do not
        matter.
        """
        if earlier is not None and earlier.end_offset > self.last_remote_offset:
            return earlier.epoch
        return self.epoch


@dataclass(frozen=True, slots=True)
class BootstrapTarget:
    """The follower's log is to be empty, with its local part starting at `next_offset`.

    Leader epochs and producers as of there are with `segment`; `log_start_offset` is the leader's, of both tiers.
    """

    segment: RemoteLogSegmentMetadata
    log_start_offset: int

    @property
    def next_offset(self) -> int:
        return self.segment.next_offset
