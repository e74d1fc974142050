"""What may happen in a state, and what then is."""

from collections.abc import Iterator

from tests.model import controller, follower, leader
from tests.model.action import Action
from tests.model.settings import CRASHES, Settings
from tests.model.state import Request, Role, State, empty_state

HANDLERS = {**leader.HANDLERS, **follower.HANDLERS, **controller.HANDLERS}


def first_state(settings: Settings) -> State:
    """Replica 0 leads in epoch 0 over empty logs, and all know it."""
    state = empty_state(settings)
    controller.first_state(state, settings)
    return state


def enabled(state: State, settings: Settings) -> list[Action]:
    """Every action that may come next, in a fixed order."""
    found: list[Action] = []
    for me, replica in enumerate(state.replicas):
        if replica.up:
            found.extend(_enabled_at(state, settings, me))
        else:
            found.extend(controller.enabled_when_down(state, settings, me))
    found.extend(controller.enabled(state, settings))
    return found


def _enabled_at(state: State, settings: Settings, me: int) -> Iterator[Action]:
    replica = state.replicas[me]
    yield from controller.enabled_when_up(state, settings, me)
    yield from leader.enabled_slice_steps(state, settings, me)
    if replica.role == Role.LEADER:
        yield from leader.enabled(state, settings, me)
    elif replica.role == Role.FOLLOWER:
        yield from follower.enabled(state, settings, me)
    for number in range(len(replica.downloads)):
        yield Action("append_download", me, number)
    if replica.stale_fetch is not None:
        yield Action("serve_stale" if isinstance(replica.stale_fetch, Request) else "stale_answer", me)
    if state.budget[CRASHES]:
        yield Action("crash", me)


def apply(state: State, settings: Settings, action: Action) -> None:
    """Change the state; the action has to be one of those enabled."""
    HANDLERS[action.kind](state, settings, action)
