"""ClusterControlManager: who is in the cluster: registration, heartbeats, fencing, unregistration."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

import structlog

from broker.common.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    InconsistentClusterIdError,
    InvalidRegistrationError,
    StaleBrokerEpochError,
    UnsupportedVersionError,
)
from broker.controller.broker_heartbeat_manager import (
    BrokerControlState,
    BrokerHeartbeatManager,
    BrokerHeartbeatRequest,
)
from broker.controller.controller_result import ControllerResult
from broker.controller.controller_state import ControllerState
from broker.controller.replication_control_manager import ReplicationControlManager
from broker.metadata import directory_id
from broker.metadata.broker_registration import BrokerRegistration, Endpoint, VersionRange
from broker.metadata.metadata_version import (
    METADATA_VERSION_FEATURE,
    MetadataVersion,
)
from broker.schemas.cluster_metadata import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    UnregisterBrokerRecord,
)

log = structlog.get_logger(__name__)

FENCED, UNFENCED, NO_CHANGE = 1, -1, 0  # BrokerRegistrationFencingChange
IN_CONTROLLED_SHUTDOWN = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationRequest:
    """One process introduces itself; a new incarnation id for every start of a process."""

    broker_id: int
    cluster_id: str
    incarnation_id: UUID
    listeners: Mapping[str, Endpoint]
    features: Mapping[str, VersionRange]
    rack: str | None = None
    directories: tuple[UUID, ...] = ()
    previous_broker_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeat(BrokerHeartbeatRequest):
    """A heartbeat with what only the cluster manager looks at."""

    offline_directories: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatReply:
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool
    begins_controlled_shutdown: bool = field(default=False, compare=False)


class ClusterControlManager:
    """`now` is the event loop's time in seconds, everywhere here."""

    def __init__(
        self,
        cluster_id: str,
        session_timeout_ms: int,
        state: ControllerState,
        replication_control: ReplicationControlManager,
    ) -> None:
        self._cluster_id = cluster_id
        self._state = state
        self._replication_control = replication_control
        self.heartbeats = BrokerHeartbeatManager(session_timeout_ms)

    def recover_sessions(self, now: float, own_broker_id: int | None) -> None:
        """After a start: every unfenced broker gets a full session, for nobody knows when it was last heard.

        Except the broker of our own process: the old one died with the old controller.
        """
        for broker in self._state.image.brokers.values():
            if broker.id == own_broker_id:
                self.heartbeats.expire(broker.id)
            elif not broker.fenced:
                self.heartbeats.touch(broker.id, now)

    def register_broker(
        self, request: BrokerRegistrationRequest, next_offset: int, now: float
    ) -> ControllerResult[int]:
        """Answers the broker epoch: the next offset of the log, or the old epoch for the same process again."""
        if request.cluster_id != self._cluster_id:
            raise InconsistentClusterIdError(
                f"Expected cluster ID {self._cluster_id}, but got cluster ID {request.cluster_id}"
            )
        existing = self._state.image.broker(request.broker_id)
        is_same_process = existing is not None and existing.incarnation_id == request.incarnation_id
        if existing is not None and not is_same_process:
            self._check_replaceable(existing, now)
        self._check_directories(request)
        self._check_features(request)
        records: list[MetadataRecord] = []
        if existing is not None and not is_same_process:
            is_clean = request.previous_broker_epoch == existing.epoch
            records += self._replication_control.records_for_restart(request.broker_id, is_clean=is_clean)
        registration = BrokerRegistration(
            id=request.broker_id,
            epoch=existing.epoch if existing is not None and is_same_process else next_offset,
            incarnation_id=request.incarnation_id,
            listeners=request.listeners,
            features=request.features,
            rack=request.rack,
            fenced=existing.fenced if existing is not None and is_same_process else True,
            in_controlled_shutdown=existing.in_controlled_shutdown if existing and is_same_process else False,
            directories=tuple(sorted(request.directories)),
        )
        records.append(registration.to_record())
        if is_same_process:
            self.heartbeats.touch(request.broker_id, now)
        else:
            self.heartbeats.register(request.broker_id, now)
        log.info("broker_registered", broker_id=request.broker_id, broker_epoch=registration.epoch)
        return ControllerResult(records, registration.epoch)

    def _check_replaceable(self, existing: BrokerRegistration, now: float) -> None:
        if not existing.fenced and self.heartbeats.has_valid_session(existing.id, now):
            raise DuplicateBrokerRegistrationError(
                f"Another broker is registered with that broker id. If the broker {existing.id} was recently "
                "restarted this should self-resolve once the heartbeat manager expires the broker's session."
            )

    def _check_directories(self, request: BrokerRegistrationRequest) -> None:
        if not MetadataVersion(self._metadata_version()).is_directory_assignment_supported:
            return
        directories = request.directories
        if not directories:
            raise InvalidRegistrationError("No directories specified in request")
        if len(set(directories)) != len(directories):
            raise InvalidRegistrationError("Duplicate directory ID in request")
        for directory in directories:
            if directory_id.is_reserved(directory):
                raise InvalidRegistrationError(f"Reserved directory ID in request: {directory}")
        for broker in self._state.image.brokers.values():
            shared = set(directories) & set(broker.directories)
            if broker.id != request.broker_id and shared:
                raise InvalidRegistrationError(f"Broker {broker.id} is already registered with directory {min(shared)}")

    def _check_features(self, request: BrokerRegistrationRequest) -> None:
        if METADATA_VERSION_FEATURE not in request.features:
            raise InvalidRegistrationError(f"Request features do not contain '{METADATA_VERSION_FEATURE}'")
        for name, level in self._state.image.features.finalized.items():
            supported = request.features.get(name, VersionRange(0, 0))
            if level > 0 and level not in supported:
                raise UnsupportedVersionError(
                    f"Unable to register because the broker does not support finalized version {level} of {name}. "
                    f"The broker wants a version between {supported.minimum} and {supported.maximum}, inclusive."
                )

    def _metadata_version(self) -> int:
        return self._state.image.features.level(METADATA_VERSION_FEATURE)

    def checked_registration(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        """The registration that epoch names; StaleBrokerEpochError for an older process or none."""
        registration = self._state.image.broker(broker_id)
        if registration is None:
            raise StaleBrokerEpochError(f"No broker registration found for broker id {broker_id}")
        if registration.epoch != broker_epoch:
            raise StaleBrokerEpochError(
                f"Expected broker epoch {registration.epoch}, but got broker epoch {broker_epoch}"
            )
        return registration

    def process_heartbeat(self, request: BrokerHeartbeat, now: float) -> ControllerResult[BrokerHeartbeatReply]:
        registration = self.checked_registration(request.broker_id, request.broker_epoch)
        registration_offset = self._state.registration_offsets.get(request.broker_id, -1)
        next_state = self.heartbeats.next_state(
            registration,
            request,
            registration_offset=registration_offset,
            has_leaderships=lambda: self._state.brokers_to_isrs.has_leaderships(request.broker_id),
            lowest_active_offset=lambda: self.heartbeats.lowest_metadata_offset(self._state.image.brokers.values()),
        )
        records: list[MetadataRecord] = []
        begins_shutdown = False
        if next_state in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW):
            if not registration.fenced:
                records += self._records_for_fence(registration)
        elif next_state is BrokerControlState.UNFENCED:
            if registration.fenced:
                records += self._records_for_unfence(registration)
        elif not registration.in_controlled_shutdown:
            begins_shutdown = True
            records += self._records_for_controlled_shutdown(registration)
        self.heartbeats.touch(request.broker_id, now, request.current_metadata_offset)
        records += self._records_for_offline_directories(registration, request.offline_directories)
        reply = BrokerHeartbeatReply(
            is_caught_up=request.current_metadata_offset >= registration_offset,
            is_fenced=next_state in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW),
            should_shut_down=next_state is BrokerControlState.SHUTDOWN_NOW,
            begins_controlled_shutdown=begins_shutdown,
        )
        return ControllerResult(records, reply, is_atomic=False)

    def _records_for_fence(self, registration: BrokerRegistration) -> list[MetadataRecord]:
        return [
            *self._replication_control.records_without_broker(registration.id),
            _registration_change(registration, fenced=FENCED),
        ]

    def _records_for_unfence(self, registration: BrokerRegistration) -> list[MetadataRecord]:
        return [
            _registration_change(registration, fenced=UNFENCED),
            *self._replication_control.records_with_broker(registration.id),
        ]

    def _records_for_controlled_shutdown(self, registration: BrokerRegistration) -> list[MetadataRecord]:
        return [
            _registration_change(registration, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN),
            *self._replication_control.records_without_broker(registration.id),
        ]

    def _records_for_offline_directories(
        self, registration: BrokerRegistration, offline: tuple[UUID, ...]
    ) -> list[MetadataRecord]:
        """Directories that failed leave the registration, and their replicas the leadership (KIP-858)."""
        newly_offline = tuple(sorted(set(offline) & set(registration.directories)))
        remaining = tuple(directory for directory in registration.directories if directory not in newly_offline)
        if not newly_offline or not remaining:
            return []  # a broker without any directory left shuts down by itself
        change = BrokerRegistrationChangeRecord(
            broker_id=registration.id, broker_epoch=registration.epoch, log_dirs=remaining
        )
        return [
            change,
            *self._replication_control.records_without_directories(registration.id, frozenset(newly_offline)),
        ]

    def fence_stalest_broker(self, now: float) -> ControllerResult[int | None]:
        """Fence the broker that has been silent longest, if its session expired; answers which.

        One at a time, so that the next one is judged by what this one changed: brokers that went silent together
        do not inherit each other's leaderships.
        """
        broker_id = self.heartbeats.stalest(self._state.image.brokers.values(), now)
        if broker_id is None:
            return ControllerResult((), None)
        log.warning("broker_fenced", broker_id=broker_id, reason="session timed out")
        registration = self._state.image.brokers[broker_id]
        return ControllerResult(self._records_for_fence(registration), broker_id, is_atomic=False)

    def unregister_broker(self, broker_id: int) -> ControllerResult[None]:
        registration = self._state.image.broker(broker_id)
        if registration is None:
            raise BrokerIdNotRegisteredError(f"Broker ID {broker_id} is not currently registered")
        records = [
            *self._replication_control.records_without_broker(broker_id, with_elr=True),
            UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=registration.epoch),
        ]
        self.heartbeats.forget(broker_id)
        return ControllerResult(records, None, is_atomic=False)


def _registration_change(
    registration: BrokerRegistration, *, fenced: int = NO_CHANGE, in_controlled_shutdown: int = 0
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=registration.id,
        broker_epoch=registration.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )
