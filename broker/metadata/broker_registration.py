"""BrokerRegistration: one broker as the controller knows it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from broker.common.identifiers import ZERO_UUID
from broker.schemas.cluster_metadata import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
)


class SecurityProtocol(IntEnum):
    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


class Endpoint(NamedTuple):
    """Where one listener of a node is reached."""

    host: str
    port: int
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT


class VersionRange(NamedTuple):
    """Levels of a feature somebody supports, both ends included."""

    minimum: int
    maximum: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.minimum <= level <= self.maximum

    def __str__(self) -> str:
        return f"{self.minimum}-{self.maximum}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """Listeners, rack, directories and whether the broker may serve.

    The epoch names one registration of one process; a fenced broker leads nothing and is not shown to clients.
    """

    id: int
    epoch: int
    incarnation_id: UUID = ZERO_UUID
    listeners: Mapping[str, Endpoint] = field(default_factory=dict)
    features: Mapping[str, VersionRange] = field(default_factory=dict)
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    directories: tuple[UUID, ...] = ()

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> "BrokerRegistration":
        return cls(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            listeners={
                end_point.name: Endpoint(end_point.host, end_point.port, SecurityProtocol(end_point.security_protocol))
                for end_point in record.end_points
            },
            features={
                feature.name: VersionRange(feature.min_supported_version, feature.max_supported_version)
                for feature in record.features
            },
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(record.log_dirs),
        )

    def to_record(self) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            broker_id=self.id,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=tuple(
                BrokerEndpoint(
                    name=name,
                    host=endpoint.host,
                    port=endpoint.port,
                    security_protocol=int(endpoint.security_protocol),
                )
                for name, endpoint in self.listeners.items()
            ),
            features=tuple(
                BrokerFeature(name=name, min_supported_version=levels.minimum, max_supported_version=levels.maximum)
                for name, levels in self.features.items()
            ),
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=self.directories,
        )

    def merge(self, change: BrokerRegistrationChangeRecord) -> "BrokerRegistration":
        """After a change record: fenced 1, unfenced -1, 0 as it was (BrokerRegistrationFencingChange)."""
        return replace(
            self,
            fenced=self.fenced if change.fenced == 0 else change.fenced > 0,
            in_controlled_shutdown=self.in_controlled_shutdown or change.in_controlled_shutdown > 0,
            directories=tuple(change.log_dirs) or self.directories,
        )

    @property
    def is_active(self) -> bool:
        """May be in an ISR and lead: neither fenced nor on its way out."""
        return not self.fenced and not self.in_controlled_shutdown
