"""Random walks through the model, a function of their seed, and the shrinking of what they find."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tests.model.action import NO_REPLICA, Action
from tests.model.actions import apply, enabled, first_state
from tests.model.invariants import broken
from tests.model.settings import Settings
from tests.model.state import State

WEIGHTS: Final = {
    "append": 3.0,
    "slice": 3.0,
    "take_epoch": 3.0,
    "put": 4.0,
    "put_fails": 0.3,
    "publish": 4.0,
    "publish_acked": 3.0,
    "publish_again": 0.4,
    "publish_times_out": 0.3,
    "land": 5.0,
    "consume": 6.0,
    "learn": 3.0,
    "fetch": 2.0,
    "serve": 3.0,
    "answer": 3.0,
    "serve_stale": 1.0,
    "stale_answer": 1.0,
    "late_fetch": 0.5,
    "ask_lineage": 5.0,
    "get": 5.0,
    "append_download": 5.0,
    "reset": 1.5,
    "backfill": 0.5,
    "delete_records": 0.4,
    "propose_isr": 0.7,
    "judge_proposal": 2.0,
    "hear_verdict": 2.0,
    "elect": 1.0,
    "elect_uncleanly": 0.5,
    "fence": 0.7,
    "unfence": 1.0,
    "crash": 0.4,
    "restart": 1.5,
    "lose_tail": 0.7,
    "zone_dies": 0.2,
    "zone_returns": 0.7,
}
"""How often a kind of action comes, before a walk makes some of them rarer and some more frequent."""
SLOWED: Final = ("learn", "consume", "fetch", "serve")
IDLE_MAX: Final = 60
"""Fetches in a row after which nothing else will happen any more."""
FETCHING: Final = ("fetch", "serve", "answer", "serve_stale", "stale_answer")


@dataclass(frozen=True, slots=True)
class Walk:
    """What one walk did, and which promise it broke."""

    trace: tuple[Action, ...]
    violation: str | None
    seed: int | None = None


def walk(settings: Settings, seed: int, steps: int) -> Walk:
    """Take at most that many steps; each walk has its own weights and its own slow replicas."""
    return walk_to(settings, seed, steps)[1]


def walk_to(settings: Settings, seed: int, steps: int) -> tuple[State, Walk]:
    """The same, with the state in which the walk ended."""
    chance = random.Random(seed)
    state = first_state(settings)
    settings = replace(settings, fallback=settings.fallback and chance.random() < 0.3)
    weights = {kind: weight * chance.choice((0.1, 0.5, 1, 1, 3)) for kind, weight in WEIGHTS.items()}
    speeds = [chance.choice((0.1, 1, 1)) for _ in range(settings.replicas)]
    trace: list[Action] = []
    idle = 0
    while len(trace) < steps and idle <= IDLE_MAX:
        groups: dict[tuple[str, int], list[Action]] = {}
        for action in enabled(state, settings):
            groups.setdefault((action.kind, action.replica), []).append(action)
        if not groups:
            break
        chosen = list(groups)
        likely = [
            weights[kind] * (speeds[replica] if replica != NO_REPLICA and kind in SLOWED else 1)
            for kind, replica in chosen
        ]
        action = chance.choice(groups[chance.choices(chosen, likely)[0]])
        trace.append(action)
        idle = idle + 1 if action.kind in FETCHING else 0
        apply(state, settings, action)
        violation = broken(state, settings)
        if violation is not None:
            return state, Walk(tuple(trace), violation, seed)
    return state, Walk(tuple(trace), None, seed)


def walk_many(settings: Settings, seeds: Iterable[int], steps: int) -> tuple[Walk | None, int, Counter[str]]:
    """Walk until one breaks a promise: that one, the steps taken, and how often each kind of action occurred."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        done = walk(settings, seed, steps)
        seen.update(action.kind for action in done.trace)
        if done.violation is not None:
            return done, seen.total(), seen
    return None, seen.total(), seen


def replay(settings: Settings, trace: Sequence[Action]) -> Walk:
    """Take the actions of a trace that are possible, leave out those that are not."""
    state = first_state(settings)
    used: list[Action] = []
    for action in trace:
        if action not in enabled(state, settings):
            continue
        apply(state, settings, action)
        used.append(action)
        violation = broken(state, settings)
        if violation is not None:
            return Walk(tuple(used), violation)
    return Walk(tuple(used), None)


def shrink(settings: Settings, found: Walk) -> Walk:
    """Leave out what is not needed to break the same promise, in ever smaller pieces."""
    assert found.violation is not None
    promise = found.violation.split(":")[0]
    best = found
    piece = max(1, len(best.trace) // 2)
    while True:
        shorter = _without_pieces(settings, best, promise, piece)
        if piece == 1 and len(shorter.trace) == len(best.trace):
            return shorter
        best, piece = shorter, max(1, piece // 2)


def _without_pieces(settings: Settings, best: Walk, promise: str, piece: int) -> Walk:
    at = 0
    while at < len(best.trace):
        tried = replay(settings, best.trace[:at] + best.trace[at + piece :])
        if tried.violation is not None and tried.violation.split(":")[0] == promise:
            best = tried
        else:
            at += piece
    return best


def follow(settings: Settings, trace: Sequence[Action]) -> tuple[Walk, int | None]:
    """Take a trace's actions one by one; also the number of the first that is not possible, where it ends.

    An argument of -1 to "land" means the event that was sent last.
    """
    state = first_state(settings)
    used: list[Action] = []
    for number, step in enumerate(trace):
        last_sent = step.kind == "land" and step.argument == -1
        action = step._replace(argument=len(state.in_flight) - 1) if last_sent else step
        if action not in enabled(state, settings):
            return Walk(tuple(used), None), number
        apply(state, settings, action)
        used.append(action)
        violation = broken(state, settings)
        if violation is not None:
            return Walk(tuple(used), violation), None
    return Walk(tuple(used), None), None
