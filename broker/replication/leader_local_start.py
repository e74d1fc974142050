"""Where a leader's log begins on its disk, when what came before is in remote storage (KIP-405)."""

from typing import NamedTuple

from broker.replication.fetch_params import EpochEndOffset


class LeaderLocalStart(NamedTuple):
    """What a leader answers when asked for its earliest local offset (ListOffsets -4): it has no record on its disk
    below `offset`, which `epoch` wrote; -1 when it does not know that."""

    epoch: int
    offset: int

    @property
    def last_remote_offset(self) -> int:
        """The offset before it: a follower that begins there needs the state as of this one."""
        return self.offset - 1

    @property
    def epoch_to_ask_for(self) -> int | None:
        """Of which epoch the leader is to be asked the end, to find out who wrote `last_remote_offset`; None: of none.

        Kafka's TierStateMachine.fetchEarlierEpochEndOffset."""
        return None if self.epoch == 0 else self.epoch - 1

    def epoch_of_last_remote_offset(self, earlier: EpochEndOffset | None) -> int:
        """Which epoch wrote it; `earlier` is the leader's answer for `epoch_to_ask_for`.

        The leader answers with the newest epoch it has at or below the one asked for, so gaps in the numbers do not
        matter.
        """
        if earlier is not None and earlier.end_offset > self.last_remote_offset:
            return earlier.epoch
        return self.epoch
