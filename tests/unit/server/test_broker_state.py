import pytest

from broker.server.broker_state import BrokerState, LifecycleEvent, next_state


def test_the_way_through_life() -> None:
    state = BrokerState.NOT_RUNNING
    way = []
    for event in (
        LifecycleEvent.STARTED,
        LifecycleEvent.CAUGHT_UP,
        LifecycleEvent.UNFENCED,
        LifecycleEvent.SHUTDOWN_REQUESTED,
        LifecycleEvent.SHUTDOWN_GRANTED,
        LifecycleEvent.STOPPED,
    ):
        state = next_state(state, event)
        way.append(state.name)
    assert way == [
        "STARTING",
        "RECOVERY",
        "RUNNING",
        "PENDING_CONTROLLED_SHUTDOWN",
        "SHUTTING_DOWN",
        "SHUTTING_DOWN",
    ]


def test_a_broker_that_never_ran_hands_nothing_over() -> None:
    assert next_state(BrokerState.RECOVERY, LifecycleEvent.SHUTDOWN_REQUESTED) is BrokerState.SHUTTING_DOWN


def test_impossible_events_are_told() -> None:
    with pytest.raises(AssertionError, match="RUNNING cannot be caught up"):
        next_state(BrokerState.RUNNING, LifecycleEvent.CAUGHT_UP)


def test_the_numbers_are_kafkas() -> None:
    assert [int(state) for state in BrokerState] == [0, 1, 2, 3, 6, 7]
