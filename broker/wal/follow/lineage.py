"""Lineage: which leader epochs the log of the current leader consists of, and where each of them ends.

Slices are announced on a topic of their own, so a deposed leader can go on announcing.  What protects a follower is
the identity of (epoch, offset): a batch is the leader's own exactly if its epoch is in the leader's log and its
offset below that epoch's end.  Who announced it does not matter.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from broker.log.leader_epoch_file_cache import EpochEndOffset, EpochEntry
from broker.wal.objects.wal_entry import WalEntry

_VOID_FROM: Final = -1


class Lineage:
    """The answers of the leader of one epoch to OffsetsForLeaderEpoch, for one follower.

    It is made anew with every leader epoch and every truncation or reset of the follower's log, and the answers die
    with it: those of another epoch, or to another log, may be wrong.  Before the handshake (a first fetch that is
    answered without error or divergence) the leader may not have truncated its own log yet, so nothing is asked.
    """

    __slots__ = ("_ends", "is_agreed", "leader_epoch", "leader_log_start_offset")

    def __init__(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.is_agreed = False
        self.leader_log_start_offset = 0
        self._ends: dict[int, int] = {}  # _VOID_FROM: the leader has nothing of that epoch

    @classmethod
    def of_own_log(
        cls, leader_epoch: int, entries: Sequence[EpochEntry], log_start_offset: int, log_end_offset: int
    ) -> "Lineage":
        """What a leader knows by its own epoch cache, about all epochs up to its own."""
        lineage = cls(leader_epoch)
        lineage.agree(log_start_offset)
        lineage._ends = dict.fromkeys(range(leader_epoch), _VOID_FROM)
        for index, entry in enumerate(entries):
            is_last = index + 1 == len(entries)
            lineage._ends[entry.epoch] = log_end_offset if is_last else entries[index + 1].start_offset
        return lineage

    def agree(self, leader_log_start_offset: int) -> None:
        """A fetch of this epoch at the log end was answered without error or divergence."""
        self.is_agreed = True
        self.leader_log_start_offset = max(self.leader_log_start_offset, leader_log_start_offset)

    def unknown(self, epochs: Iterable[int]) -> set[int]:
        """Which of these to ask the leader for now; none before the handshake."""
        if not self.is_agreed:
            return set()
        return {epoch for epoch in epochs if epoch < self.leader_epoch and epoch not in self._ends}

    def answered(self, epoch: int, answer: EpochEndOffset, leader_epoch: int) -> None:
        """The leader's answer, without error, for `epoch`; `leader_epoch` is that for which it answered.

        Another epoch than the one asked for, or (-1, -1), says that the leader has nothing of it.
        """
        if self.is_agreed and leader_epoch == self.leader_epoch:
            self._ends[epoch] = answer.end_offset if answer.epoch == epoch else _VOID_FROM

    def end_of(self, epoch: int) -> int | None:
        """Below which offset batches of `epoch` are the leader's own; None when not known yet."""
        return self._ends.get(epoch)

    def valid_until(self, entry: WalEntry, offset: int) -> int:
        """Up to which offset, exclusive, the entry's batches from the one at `offset` on are the leader's own.

        `offset` itself when none is, or it is not known.  The entry holds `offset`.
        """
        if not self.is_agreed or entry.leader_epoch > self.leader_epoch:
            return offset  # of a leader that the metadata has not told us of yet
        if entry.leader_epoch == self.leader_epoch:
            return entry.next_offset  # the current leader's own log
        if offset < self.leader_log_start_offset:
            return offset  # an answer says nothing about what the leader has deleted
        reached = offset
        for run in entry.epoch_runs():
            if run.end_offset <= reached:
                continue
            end = self._ends.get(run.epoch, _VOID_FROM)
            if run.epoch > self.leader_epoch or end <= reached:
                break
            reached = min(run.end_offset, end)
            if reached < run.end_offset:
                break
        return reached
