"""Every state within a bound, by breadth; the first violation found is a shortest one."""

from dataclasses import dataclass
from typing import Any

from tests.model.action import Action
from tests.model.actions import apply, enabled, first_state
from tests.model.invariants import broken
from tests.model.settings import Settings
from tests.model.state import State

Path = tuple[Action, Any] | None


@dataclass(frozen=True, slots=True)
class Explored:
    """How far a search came."""

    states: int
    depth: int
    complete: bool
    violation: str | None = None
    trace: tuple[Action, ...] = ()


def breadth_first(settings: Settings, *, most_states: int) -> Explored:
    """Search until all is seen, a promise is broken, or the number of states is passed.

    A state is remembered by a hash of 64 bits; that two of some million share one is one chance in a million.
    """
    first = first_state(settings)
    seen = {hash(first.key())}
    frontier: list[tuple[State, Path]] = [(first, None)]
    depth = 0
    while frontier:
        following: list[tuple[State, Path]] = []
        for state, path in frontier:
            for action in enabled(state, settings):
                after = state.copy()
                apply(after, settings, action)
                key = hash(after.key())
                if key in seen:
                    continue
                seen.add(key)
                here = (action, path)
                violation = broken(after, settings)
                if violation is not None:
                    return Explored(len(seen), depth + 1, False, violation, _trace(here))
                following.append((after, here))
            if len(seen) > most_states:
                return Explored(len(seen), depth, False)
        frontier = following
        depth += 1
    return Explored(len(seen), depth, True)


def _trace(path: Path) -> tuple[Action, ...]:
    actions = []
    while path is not None:
        actions.append(path[0])
        path = path[1]
    return tuple(reversed(actions))
