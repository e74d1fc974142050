import pytest

from broker.controller.broker_heartbeat_manager import (
    BrokerControlState,
    BrokerHeartbeatManager,
    BrokerHeartbeatRequest,
)
from broker.metadata.broker_registration import BrokerRegistration

FENCED, UNFENCED = BrokerControlState.FENCED, BrokerControlState.UNFENCED
CONTROLLED_SHUTDOWN, SHUTDOWN_NOW = BrokerControlState.CONTROLLED_SHUTDOWN, BrokerControlState.SHUTDOWN_NOW


def unfenced(*broker_ids: int) -> list[BrokerRegistration]:
    return [BrokerRegistration(id=broker_id, epoch=1, fenced=False) for broker_id in broker_ids]


def next_state(
    *,
    fenced: bool,
    shutting_down: bool = False,
    offset: int = 10,
    want_fence: bool = False,
    want_shut_down: bool = False,
    leads: bool = False,
    lowest: int | None = None,
) -> BrokerControlState:
    manager = BrokerHeartbeatManager(9000)
    manager.begin_controlled_shutdown(1, 20)
    return manager.next_state(
        BrokerRegistration(id=1, epoch=1, fenced=fenced, in_controlled_shutdown=shutting_down),
        BrokerHeartbeatRequest(
            broker_id=1,
            broker_epoch=1,
            current_metadata_offset=offset,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
        ),
        registration_offset=10,
        has_leaderships=lambda: leads,
        lowest_active_offset=lambda: lowest,
    )


def test_22_a_fenced_broker_is_unfenced_once_it_has_applied_its_registration() -> None:
    assert next_state(fenced=True, offset=9) is FENCED
    assert next_state(fenced=True, offset=10) is UNFENCED
    assert next_state(fenced=True, offset=10, want_fence=True) is FENCED
    assert next_state(fenced=True, want_shut_down=True) is SHUTDOWN_NOW
    assert next_state(fenced=True, shutting_down=True) is SHUTDOWN_NOW


def test_an_unfenced_broker_shuts_down_at_once_only_when_it_leads_nothing() -> None:
    assert next_state(fenced=False) is UNFENCED
    assert next_state(fenced=False, want_fence=True) is FENCED
    assert next_state(fenced=False, want_fence=True, want_shut_down=True) is SHUTDOWN_NOW
    assert next_state(fenced=False, want_shut_down=True, leads=True) is CONTROLLED_SHUTDOWN
    assert next_state(fenced=False, want_shut_down=True, leads=False) is SHUTDOWN_NOW


@pytest.mark.parametrize(("lowest", "expected"), [(19, CONTROLLED_SHUTDOWN), (20, SHUTDOWN_NOW), (None, SHUTDOWN_NOW)])
def test_28_a_controlled_shutdown_ends_when_every_active_broker_has_seen_it(
    lowest: int | None, expected: BrokerControlState
) -> None:
    assert next_state(fenced=False, shutting_down=True, lowest=lowest) is expected
    assert next_state(fenced=False, shutting_down=True, lowest=lowest, leads=True) is CONTROLLED_SHUTDOWN


def test_sessions_last_exactly_as_long_as_configured() -> None:
    manager = BrokerHeartbeatManager(9000)
    manager.touch(1, now=100.0)
    assert manager.has_valid_session(1, now=108.999)
    assert not manager.has_valid_session(1, now=109.0)
    assert not manager.has_valid_session(2, now=100.0)


def test_stalest_is_the_unfenced_broker_silent_longest() -> None:
    manager = BrokerHeartbeatManager(9000)
    manager.touch(1, now=101.0)
    manager.touch(2, now=100.0)
    manager.touch(3, now=50.0)
    brokers = [*unfenced(1, 2), BrokerRegistration(id=3, epoch=1, fenced=True)]
    assert manager.stalest(brokers, now=108.0) is None
    assert manager.stalest(brokers, now=110.5) == 2
    assert manager.next_check_at(brokers, now=101.0) == 109.0
    assert manager.next_check_at(brokers, now=300.0) == 300.0
    assert manager.stalest([], now=0.0) is None


def test_expire_and_forget_end_a_session() -> None:
    manager = BrokerHeartbeatManager(9000)
    manager.register(1, now=100.0)
    manager.expire(1)
    assert not manager.has_valid_session(1, now=100.0)
    assert manager.stalest(unfenced(1), now=100.0) == 1
    manager.touch(1, now=100.0)
    manager.forget(1)
    assert not manager.has_valid_session(1, now=100.0)


def test_lowest_offset_counts_active_brokers_only() -> None:
    manager = BrokerHeartbeatManager(9000)
    manager.touch(1, 1.0, metadata_offset=30)
    manager.touch(2, 1.0, metadata_offset=20)
    manager.touch(3, 1.0, metadata_offset=10)
    leaving = BrokerRegistration(id=3, epoch=1, fenced=False, in_controlled_shutdown=True)
    assert manager.lowest_metadata_offset([*unfenced(1, 2), leaving]) == 20
    assert manager.lowest_metadata_offset(unfenced(1, 4)) == -1  # it never said
    assert manager.lowest_metadata_offset([leaving]) is None
