"""The life of a broker as a table: which state follows which event (Kafka's BrokerState)."""

from enum import Enum, IntEnum
from typing import Final


class BrokerState(IntEnum):
    """Numbered as Kafka's metric shows them."""

    NOT_RUNNING = 0
    STARTING = 1  # registering, and catching up with the metadata log
    RECOVERY = 2  # caught up; logs are being loaded, still fenced
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6  # the controller moves leaderships away
    SHUTTING_DOWN = 7


class LifecycleEvent(Enum):
    STARTED = "started"
    CAUGHT_UP = "caught up"
    UNFENCED = "unfenced"
    SHUTDOWN_REQUESTED = "shutdown requested"
    SHUTDOWN_GRANTED = "shutdown granted"
    STOPPED = "stopped"


_S, _E = BrokerState, LifecycleEvent

TRANSITIONS: Final[dict[tuple[BrokerState, LifecycleEvent], BrokerState]] = {
    (_S.NOT_RUNNING, _E.STARTED): _S.STARTING,
    (_S.STARTING, _E.CAUGHT_UP): _S.RECOVERY,
    (_S.RECOVERY, _E.UNFENCED): _S.RUNNING,
    # Before it ran a broker leads nothing: there is nothing to hand over.
    (_S.NOT_RUNNING, _E.SHUTDOWN_REQUESTED): _S.SHUTTING_DOWN,
    (_S.STARTING, _E.SHUTDOWN_REQUESTED): _S.SHUTTING_DOWN,
    (_S.RECOVERY, _E.SHUTDOWN_REQUESTED): _S.SHUTTING_DOWN,
    (_S.RUNNING, _E.SHUTDOWN_REQUESTED): _S.PENDING_CONTROLLED_SHUTDOWN,
    (_S.PENDING_CONTROLLED_SHUTDOWN, _E.SHUTDOWN_REQUESTED): _S.PENDING_CONTROLLED_SHUTDOWN,
    (_S.SHUTTING_DOWN, _E.SHUTDOWN_REQUESTED): _S.SHUTTING_DOWN,
    (_S.PENDING_CONTROLLED_SHUTDOWN, _E.SHUTDOWN_GRANTED): _S.SHUTTING_DOWN,
    **{(state, _E.STOPPED): _S.SHUTTING_DOWN for state in BrokerState},
}


def next_state(state: BrokerState, event: LifecycleEvent) -> BrokerState:
    """AssertionError for an event that cannot happen in a state."""
    assert (state, event) in TRANSITIONS, f"a broker that is {state.name} cannot be {event.value}"
    return TRANSITIONS[state, event]
