"""A suffix without faults: does everybody reach the leader's log end and high watermark? (I6)

Nobody crashes any more, all messages arrive, buckets answer.  Without fallback the bytes come through the bucket alone;
what no usable entry covers below the start of the leader's epoch is published again once (backfill).
"""

from dataclasses import dataclass, replace
from typing import Final

from tests.model.action import NO_REPLICA, Action
from tests.model.actions import apply, enabled
from tests.model.controller import NO_NEW_LEADER
from tests.model.invariants import broken
from tests.model.settings import BACKFILLS, Settings
from tests.model.state import NOBODY, Replica, Role, State

AT_ONCE: Final = (
    "learn",
    "consume",
    "put",
    "publish",
    "publish_acked",
    "ask_lineage",
    "serve_stale",
    "stale_answer",
    "judge_proposal",
    "hear_verdict",
    "reset",
)
ROUNDS_MAX: Final = 60
IDLE_ROUNDS_MAX: Final = 6


@dataclass(frozen=True, slots=True)
class Settled:
    """How it ended: `stuck` says who did not get where, or which promise broke."""

    rounds: int
    backfilled: bool
    stuck: str | None


def settle(state: State, settings: Settings, *, fallback: bool, backfill: bool = True) -> Settled:
    """Let the world come to rest; the state changes."""
    settings = replace(settings, fallback=fallback)
    state.budget = [0] * len(state.budget)
    state.dead_zones = []
    _bring_back(state, settings)
    idle, published = 0, False
    for number in range(ROUNDS_MAX):
        moved = _round(state, settings)
        violation = broken(state, settings)
        if violation is not None:
            return Settled(number, published, violation)
        if _all_there(state):
            return Settled(number, published, None)
        if backfill and not moved and not published:
            published = moved = _publish_again(state, settings)
        idle = 0 if moved else idle + 1
        if idle > IDLE_ROUNDS_MAX:
            break
    ends = [(each.end, each.high_watermark, each.handshaken) for each in state.replicas]
    return Settled(number, published, f"leader {state.leader} of epoch {state.epoch}: {ends}")


def _bring_back(state: State, settings: Settings) -> None:
    for me, replica in enumerate(state.replicas):
        if not replica.up and me not in state.fenced:
            leads = state.leader == me
            others = [each for each in state.isr if each != me and each not in state.fenced]
            successor = (others[0] if others else NOBODY) if leads else NO_NEW_LEADER
            apply(state, settings, Action("fence", me, successor))
    state.budget = [0] * len(state.budget)
    for me in list(state.fenced):
        apply(state, settings, Action("unfence" if state.replicas[me].up else "restart", me))


def _round(state: State, settings: Settings) -> bool:
    """Everything that goes by itself, and one fetch of every follower; whether anything moved."""
    moved = False
    for me in range(len(state.replicas)):
        moved |= _land_all(state, settings)
        while (action := _next(state, settings, me)) is not None:
            apply(state, settings, action)
            _land_all(state, settings)
            moved = True
        moved |= _append_from_bucket(state, settings, me)
        moved |= _fetch(state, settings, me)
    return moved


def _land_all(state: State, settings: Settings) -> bool:
    moved = bool(state.in_flight)
    while state.in_flight:
        apply(state, settings, Action("land", NO_REPLICA, 0))
    return moved


def _next(state: State, settings: Settings, me: int) -> Action | None:
    slices = []
    for action in enabled(state, settings):
        if action.replica == me and action.kind in AT_ONCE:
            return action
        if action.replica == me and action.kind == "slice":
            slices.append(action)
    return slices[-1] if slices else None


def _append_from_bucket(state: State, settings: Settings, me: int) -> bool:
    moved = False
    gets = [each for each in enabled(state, settings) if each.kind == "get" and each.replica == me]
    if gets:
        apply(state, settings, max(gets, key=lambda each: state.metadata[each.number].epoch))
    while state.replicas[me].downloads:
        before = state.replicas[me].end
        apply(state, settings, Action("append_download", me, 0))
        moved |= state.replicas[me].end != before
    return moved


def _fetch(state: State, settings: Settings, me: int) -> bool:
    replica = state.replicas[me]
    before = _position(replica)
    for action in (
        Action("fetch", me),
        Action("serve", me, int(settings.fallback)),
        Action("answer", me),
    ):
        if action in enabled(state, settings):
            apply(state, settings, action)
    return _position(replica) != before


def _position(replica: Replica) -> tuple[int, bool, int]:
    return replica.end, replica.handshaken, replica.high_watermark


def _all_there(state: State) -> bool:
    leader = state.replicas[state.leader]
    return state.leads_now(state.leader, state.epoch) and all(
        (each.end, each.high_watermark) == (leader.end, leader.end) for each in state.replicas
    )


def _publish_again(state: State, settings: Settings) -> bool:
    """Only when something of the earlier epochs is not covered by an entry that a follower can use."""
    leader = state.replicas[state.leader]
    if leader.role != Role.LEADER:
        return False
    covered = _covered(state, leader)
    if all(offset in covered for offset in range(leader.start, leader.epoch_start)):
        return False
    state.budget[BACKFILLS] = 1
    apply(state, settings, Action("backfill", state.leader))
    return True


def _covered(state: State, leader: Replica) -> set[int]:
    found: set[int] = set()
    for number in leader.entries:
        entry = state.metadata[number]
        stored = state.object(entry)
        if stored.stored:
            found.update(
                offset
                for offset in range(max(entry.start, leader.start), min(entry.end, leader.end))
                if stored.cells[offset - entry.start] == leader.log[offset]
            )
    return found
