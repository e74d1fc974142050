"""MetadataImage: the cluster at one offset of its metadata log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias
from uuid import UUID

from broker.metadata.broker_registration import BrokerRegistration
from broker.metadata.configs_image import ConfigsImage
from broker.metadata.metadata_version import METADATA_VERSION_FEATURE
from broker.metadata.topics_image import TopicsImage
from broker.schemas.cluster_metadata import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RegisterControllerRecord,
    UserScramCredentialRecord,
)

# A quota's entity: (type, name) pairs in the order of the record; the name None is the default entity.
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
ScramUser: TypeAlias = tuple[str, int]  # (user, mechanism)


@dataclass(frozen=True, slots=True)
class FeaturesImage:
    """Finalized features: the levels the whole cluster runs at.  A level of 0 is the absence of the feature."""

    EMPTY: ClassVar["FeaturesImage"]

    finalized: Mapping[str, int] = field(default_factory=dict)
    zk_migration_state: int = 0

    @property
    def metadata_version(self) -> int:
        """0 while no record named one: nothing may be served from such an image."""
        return self.finalized.get(METADATA_VERSION_FEATURE, 0)

    def level(self, feature: str) -> int:
        return self.finalized.get(feature, 0)


FeaturesImage.EMPTY = FeaturesImage()


@dataclass(frozen=True, slots=True)
class ProducerIdsImage:
    """The first producer id no block has handed out."""

    EMPTY: ClassVar["ProducerIdsImage"]

    next_producer_id: int = -1


ProducerIdsImage.EMPTY = ProducerIdsImage()


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """Immutable: it is replaced in one assignment, so every answer is built from one cluster.

    `offset` is that of the last record in it (-1: none), `epoch` the leader epoch which wrote that record.
    Credentials, ACLs, quotas and tokens are kept as their records.
    """

    EMPTY: ClassVar["MetadataImage"]

    offset: int = -1
    epoch: int = -1
    features: FeaturesImage = FeaturesImage.EMPTY
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    controllers: Mapping[int, RegisterControllerRecord] = field(default_factory=dict)
    topics: TopicsImage = TopicsImage.EMPTY
    configs: ConfigsImage = ConfigsImage.EMPTY
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    producer_ids: ProducerIdsImage = ProducerIdsImage.EMPTY
    acls: Mapping[UUID, AccessControlEntryRecord] = field(default_factory=dict)
    scram_credentials: Mapping[ScramUser, UserScramCredentialRecord] = field(default_factory=dict)
    delegation_tokens: Mapping[str, DelegationTokenRecord] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return self.offset < 0

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        return self.brokers.get(broker_id)

    def is_broker_active(self, broker_id: int) -> bool:
        registration = self.brokers.get(broker_id)
        return registration is not None and registration.is_active


MetadataImage.EMPTY = MetadataImage()
