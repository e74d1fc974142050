"""The promises, looked at after every step.

I1  an acknowledged acks=all record is never lost under clean elections
I2  below the lesser high watermark any two replicas are the same
I3  after the handshake a follower's log is a prefix of its leader's
I4  no log has a gap, and no batch is there in part
I5  no high watermark is beyond its log end, below one nothing is uncommitted, and in-sync replicas hold what is below
I7  what a leader announces in one term is contiguous (checked where events land)
I8  the same epoch at the same offset means the same log up to there; epochs do not fall
I9  the epoch cache fits the log
I10 a log start does not go back by an append (checked where that happens)

With unclean elections only those hold that do not speak of acknowledged records: I3, I4, I8, I9, a part of I5.
"""

from itertools import pairwise

from tests.model.settings import Settings
from tests.model.state import Cell, Replica, Role, State


def broken(state: State, settings: Settings) -> str | None:
    """The first promise that does not hold, told in a sentence that begins with its name."""
    if state.violation is not None:
        return state.violation
    for me, replica in enumerate(state.replicas):
        found = _one_log(me, replica) or _follows_its_leader(state, me, replica)
        if found is None and settings.deep:
            found = _epochs(me, replica)
        if found is not None:
            return found
    if settings.deep:
        for one in range(len(state.replicas)):
            for other in range(one):
                found = _log_matching(state, one, other)
                if found is not None:
                    return found
    return None if settings.unclean else _committed(state)


def _one_log(me: int, replica: Replica) -> str | None:
    log, start = replica.log, replica.start
    if None in log[start:]:
        return f"I4: gap in the log of {me}: {log}"
    if replica.high_watermark > len(log):
        return f"I5: high watermark {replica.high_watermark} of {me} is beyond the log end {len(log)}"
    if len(log) > start and log[-1] is not None and log[-1].position + 1 != log[-1].width:
        return f"I4: the log of {me} ends within a batch: {log[-1]}"
    for before, cell in pairwise(log[start:]):
        assert before is not None and cell is not None
        if cell.position and (before.number, before.position + 1) != (cell.number, cell.position):
            return f"I4: the log of {me} has a part of a batch: {before}, {cell}"
    return None


def _follows_its_leader(state: State, me: int, replica: Replica) -> str | None:
    if replica.role != Role.FOLLOWER or not replica.handshaken:
        return None
    if not state.leads_now(replica.leader, replica.known_epoch):
        return None
    leader = state.replicas[replica.leader]
    start, end = max(replica.start, leader.start), len(replica.log)
    if end > len(leader.log) or replica.log[start:] != leader.log[start:end]:
        return f"I3: follower {me} {_short(replica)} is no prefix of leader {replica.leader} {_short(leader)}"
    return None


def _epochs(me: int, replica: Replica) -> str | None:
    log, start = replica.log, replica.start
    starts: list[tuple[int, int]] = []
    for offset in range(start, len(log)):
        cell = log[offset]
        assert cell is not None
        if starts and cell.epoch < starts[-1][0]:
            return f"I8: epochs fall at {me}: {_short(replica)}"
        if not starts or starts[-1][0] != cell.epoch:
            starts.append((cell.epoch, offset))
    in_log = {epoch for epoch, _ in starts}
    kept = [each for each in replica.epochs if each.start < len(log) and each.epoch in in_log]
    cached = [(each.epoch, max(each.start, start)) for each in kept]
    if cached != starts:
        return f"I9: epoch cache {cached} of {me} does not fit its log {_short(replica)}"
    return None


def _log_matching(state: State, one: int, other: int) -> str | None:
    first, second = state.replicas[one], state.replicas[other]
    start, end = max(first.start, second.start), min(len(first.log), len(second.log))
    for offset in range(end - 1, start - 1, -1):
        mine, theirs = first.log[offset], second.log[offset]
        assert mine is not None and theirs is not None
        if mine.epoch == theirs.epoch:
            if first.log[start : offset + 1] != second.log[start : offset + 1]:
                return f"I8: {one} {_short(first)} and {other} {_short(second)} share an epoch at {offset}, not the log"
            return None
    return None


def _committed(state: State) -> str | None:
    replicas = state.replicas
    for one in range(len(replicas)):
        for other in range(one):
            first, second = replicas[one], replicas[other]
            start = max(first.start, second.start)
            end = min(first.high_watermark, second.high_watermark)
            if first.log[start:end] != second.log[start:end]:
                return f"I2: {one} and {other} differ below {end}: {_short(first)} {_short(second)}"
    if state.leader < 0:
        return None
    leader = replicas[state.leader]
    if leader.role != Role.LEADER or leader.known_epoch != state.epoch:
        return None
    for offset in range(leader.start, len(state.committed)):
        if offset >= len(leader.log) or leader.log[offset] != state.committed[offset]:
            return f"I1: leader {state.leader} lacks acknowledged {state.committed[offset]} at {offset}"
    for each in state.isr:
        start, end = max(leader.start, replicas[each].start), leader.high_watermark
        if replicas[each].log[start:end] != leader.log[start:end]:
            return f"I5: in-sync {each} {_short(replicas[each])} lacks what is committed of {_short(leader)}"
    return None


def _short(replica: Replica) -> str:
    """A log as epoch.batch for every offset."""
    return "[" + " ".join(_name(cell) for cell in replica.log) + f"] from {replica.start}"


def _name(cell: Cell | None) -> str:
    return "-" if cell is None else f"{cell.epoch}.{cell.number}"
