"""BrokerHeartbeatManager: when each broker was last heard, and what its next state is.

Soft state, never logged (Kafka's class of the same name).  Times are the event loop's, in seconds: a jump of the
wall clock fences nobody.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from broker.metadata.broker_registration import BrokerRegistration

NEVER: Final = float("-inf")


class BrokerControlState(Enum):
    FENCED = auto()
    UNFENCED = auto()
    CONTROLLED_SHUTDOWN = auto()
    SHUTDOWN_NOW = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatRequest:
    """`current_metadata_offset` is that of the last record the broker applied."""

    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool


@dataclass(slots=True)
class _BrokerHeartbeat:
    last_contact: float = NEVER
    metadata_offset: int = -1
    controlled_shutdown_offset: int = -1


class BrokerHeartbeatManager:
    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout = session_timeout_ms / 1000
        self._brokers: dict[int, _BrokerHeartbeat] = {}

    def register(self, broker_id: int, now: float) -> None:
        """A new process registered: it has a session from now on."""
        self._brokers[broker_id] = _BrokerHeartbeat(last_contact=now)

    def expire(self, broker_id: int) -> None:
        """The process is known to be gone."""
        self._brokers.setdefault(broker_id, _BrokerHeartbeat()).last_contact = NEVER

    def forget(self, broker_id: int) -> None:
        self._brokers.pop(broker_id, None)

    def touch(self, broker_id: int, now: float, metadata_offset: int | None = None) -> None:
        heartbeat = self._brokers.setdefault(broker_id, _BrokerHeartbeat())
        heartbeat.last_contact = now
        if metadata_offset is not None:
            heartbeat.metadata_offset = metadata_offset

    def has_valid_session(self, broker_id: int, now: float) -> bool:
        heartbeat = self._brokers.get(broker_id)
        return heartbeat is not None and now - heartbeat.last_contact < self.session_timeout

    def begin_controlled_shutdown(self, broker_id: int, offset: int) -> None:
        """The broker may go once every other active broker has applied `offset`."""
        self._brokers.setdefault(broker_id, _BrokerHeartbeat()).controlled_shutdown_offset = offset

    def stalest(self, brokers: Iterable[BrokerRegistration], now: float) -> int | None:
        """The unfenced broker that has been silent longest, if its session has expired."""
        unfenced = [broker.id for broker in brokers if not broker.fenced]
        if not unfenced:
            return None
        broker_id = min(unfenced, key=self._last_contact)
        return None if self.has_valid_session(broker_id, now) else broker_id

    def next_check_at(self, brokers: Iterable[BrokerRegistration], now: float) -> float:
        """When the next session can expire, given that nobody is heard until then."""
        contacts = [self._last_contact(broker.id) for broker in brokers if not broker.fenced]
        return max(now, min(contacts, default=now) + self.session_timeout)

    def _last_contact(self, broker_id: int) -> float:
        heartbeat = self._brokers.get(broker_id)
        return heartbeat.last_contact if heartbeat else NEVER

    def next_state(
        self,
        registration: BrokerRegistration,
        request: BrokerHeartbeatRequest,
        *,
        registration_offset: int,
        has_leaderships: Callable[[], bool],
        lowest_active_offset: Callable[[], int | None],
    ) -> BrokerControlState:
        """What a heartbeat makes of the broker (calculateNextBrokerState)."""
        if registration.fenced:
            if request.want_shut_down or registration.in_controlled_shutdown:
                return BrokerControlState.SHUTDOWN_NOW  # a process that was let go does not come back
            is_caught_up = request.current_metadata_offset >= registration_offset
            return BrokerControlState.UNFENCED if is_caught_up and not request.want_fence else BrokerControlState.FENCED
        if registration.in_controlled_shutdown:
            return self._next_in_shutdown(registration.id, has_leaderships, lowest_active_offset)
        if request.want_fence:
            return BrokerControlState.SHUTDOWN_NOW if request.want_shut_down else BrokerControlState.FENCED
        if not request.want_shut_down:
            return BrokerControlState.UNFENCED
        return BrokerControlState.CONTROLLED_SHUTDOWN if has_leaderships() else BrokerControlState.SHUTDOWN_NOW

    def _next_in_shutdown(
        self, broker_id: int, has_leaderships: Callable[[], bool], lowest_active_offset: Callable[[], int | None]
    ) -> BrokerControlState:
        if has_leaderships():
            return BrokerControlState.CONTROLLED_SHUTDOWN
        heartbeat = self._brokers.get(broker_id)
        begun_at = heartbeat.controlled_shutdown_offset if heartbeat else -1
        lowest = lowest_active_offset()
        if lowest is None or begun_at <= lowest:
            return BrokerControlState.SHUTDOWN_NOW
        return BrokerControlState.CONTROLLED_SHUTDOWN

    def lowest_metadata_offset(self, brokers: Iterable[BrokerRegistration]) -> int | None:
        """How far every active broker has come; None when there is no active one."""
        offsets = [
            heartbeat.metadata_offset if (heartbeat := self._brokers.get(broker.id)) else -1
            for broker in brokers
            if broker.is_active
        ]
        return min(offsets, default=None)
