"""FollowerTerm: whether a follower may append from the bucket now, and what still counts of what it asked before."""

from typing import NamedTuple

from broker.common.identifiers import NO_EPOCH
from broker.wal.follow.lineage import Lineage


class FollowerTicket(NamedTuple):
    """Taken with a request, compared with its result: `FollowerTerm.holds`."""

    leader_epoch: int
    generation: int


class FollowerTerm:
    """One follower's relation to the leader of one epoch.

    `generation` counts new epochs, truncations and resets; results of an older one are dropped.  From the bucket
    nothing is appended before the handshake, nor while the log is being reset.
    """

    __slots__ = ("generation", "is_resetting", "leader_epoch", "lineage")

    def __init__(self) -> None:
        self.leader_epoch = NO_EPOCH
        self.generation = 0
        self.is_resetting = False
        self.lineage = Lineage(NO_EPOCH)

    @property
    def may_append(self) -> bool:
        return self.lineage.is_agreed and not self.is_resetting

    @property
    def may_fetch(self) -> bool:
        """Whether the leader may be asked: not while its last answer is still being dealt with."""
        return self.leader_epoch != NO_EPOCH and not self.is_resetting

    @property
    def ticket(self) -> FollowerTicket:
        return FollowerTicket(self.leader_epoch, self.generation)

    def holds(self, ticket: FollowerTicket) -> bool:
        return ticket == (self.leader_epoch, self.generation)

    def begin(self, leader_epoch: int) -> None:
        """The broker follows the leader of that epoch from now on."""
        self.leader_epoch = leader_epoch
        self.is_resetting = False
        self._forget()

    def end(self) -> None:
        """The broker follows nobody: it leads, or there is no leader."""
        self.begin(NO_EPOCH)

    def truncated(self) -> None:
        """The log was cut: the handshake must be repeated."""
        self._forget()

    def begin_reset(self) -> None:
        """The leader says the offset is out of its range, or the log must be built anew, or its directory failed."""
        self.is_resetting = True
        self._forget()

    def end_reset(self) -> None:
        """Whoever looked up the leader's range has placed the log in it: the handshake must be repeated."""
        self.is_resetting = False
        self._forget()

    def fetch_answered(
        self, ticket: FollowerTicket, fetch_offset: int, log_end_offset: int, leader_log_start_offset: int
    ) -> bool:
        """The leader answered a fetch without an error and without divergence.  False: the answer is to be dropped.

        It is the handshake if it was asked for at the log end.  A partition that an incremental answer leaves out was
        answered as well: nothing has changed for the offset and the epoch that were asked for.
        """
        if not self.holds(ticket) or not self.may_fetch:
            return False
        if self.lineage.is_agreed or fetch_offset == log_end_offset:
            self.lineage.agree(leader_log_start_offset)
        return True

    def _forget(self) -> None:
        self.generation += 1
        self.lineage = Lineage(self.leader_epoch)
