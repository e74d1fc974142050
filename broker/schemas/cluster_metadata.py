"""The records of `__cluster_metadata`, named and numbered as Kafka's (metadata/src/main/resources/common/metadata).

Each class has the fields of all versions.  Ids are never None: an absent one is ZERO_UUID.
"""

from typing import ClassVar, Final, TypeAlias, get_args
from uuid import UUID

from broker.common.buffers import Buffer
from broker.common.identifiers import NO_BROKER
from broker.schemas.framing import decode_record, encode_record
from broker.schemas.message_codec import message, stored

NO_LEADER_CHANGE: Final = -2  # in PartitionChangeRecord.leader: the leader stays; -1 is "no leader"
NO_RECOVERY_STATE_CHANGE: Final = -1  # in PartitionChangeRecord.leader_recovery_state


class ClusterMetadataMessage:
    """What the records share; all are flexible from their first version on."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0


@message
class BrokerEndpoint:
    """Where a broker or controller listens; `security_protocol` is Kafka's number: 0 PLAINTEXT, 1 SSL, ..."""

    name: str = stored("string")
    host: str = stored("string")
    port: int = stored("uint16")
    security_protocol: int = stored("int16")


@message
class BrokerFeature:
    """The versions of a feature that a node can work with."""

    name: str = stored("string")
    min_supported_version: int = stored("int16")
    max_supported_version: int = stored("int16")


@message
class RegisterBrokerRecord(ClusterMetadataMessage):
    """A broker process starts; it is fenced until it has caught up."""

    API_KEY: ClassVar[int] = 0
    VERSIONS: ClassVar[range] = range(4)

    broker_id: int = stored("int32")
    is_migrating_zk_broker: bool = stored("bool", since=2, default=False)
    incarnation_id: UUID = stored("uuid")
    broker_epoch: int = stored("int64")
    end_points: tuple[BrokerEndpoint, ...] = stored(default=())
    features: tuple[BrokerFeature, ...] = stored(default=())
    rack: str | None = stored("string", default=None)
    fenced: bool = stored("bool", default=True)
    in_controlled_shutdown: bool = stored("bool", since=1, default=False)
    log_dirs: tuple[UUID, ...] = stored("uuid", since=3, tag=0, default=())


@message
class UnregisterBrokerRecord(ClusterMetadataMessage):
    """A broker is removed from the cluster."""

    API_KEY: ClassVar[int] = 1

    broker_id: int = stored("int32")
    broker_epoch: int = stored("int64")


@message
class TopicRecord(ClusterMetadataMessage):
    """A topic is created; its partitions follow."""

    API_KEY: ClassVar[int] = 2

    name: str = stored("string")
    topic_id: UUID = stored("uuid")


@message
class PartitionRecord(ClusterMetadataMessage):
    """The whole state of a partition: at its creation, and in snapshots."""

    API_KEY: ClassVar[int] = 3
    VERSIONS: ClassVar[range] = range(3)

    partition_id: int = stored("int32", default=-1)
    topic_id: UUID = stored("uuid")
    replicas: tuple[int, ...] = stored("int32")
    isr: tuple[int, ...] = stored("int32")
    removing_replicas: tuple[int, ...] = stored("int32", default=())
    adding_replicas: tuple[int, ...] = stored("int32", default=())
    leader: int = stored("int32", default=NO_BROKER)
    leader_recovery_state: int = stored("int8", tag=0, default=0)
    leader_epoch: int = stored("int32")
    partition_epoch: int = stored("int32")
    directories: tuple[UUID, ...] = stored("uuid", since=1, default=())  # one for each of `replicas`
    eligible_leader_replicas: tuple[int, ...] | None = stored("int32", since=2, tag=1, default=None)
    last_known_elr: tuple[int, ...] | None = stored("int32", since=2, tag=2, default=None)


@message
class ConfigRecord(ClusterMetadataMessage):
    """A configuration of a resource is set; a null value deletes it."""

    API_KEY: ClassVar[int] = 4

    resource_type: int = stored("int8")
    resource_name: str = stored("string")
    name: str = stored("string")
    value: str | None = stored("string", default=None)


@message
class PartitionChangeRecord(ClusterMetadataMessage):
    """What changes in a partition; null and the two NO_..._CHANGE numbers mean "as it was".

    Each one raises the partition epoch, and a leader given, even the same, raises the leader epoch.
    """

    API_KEY: ClassVar[int] = 5
    VERSIONS: ClassVar[range] = range(3)

    partition_id: int = stored("int32", default=-1)
    topic_id: UUID = stored("uuid")
    isr: tuple[int, ...] | None = stored("int32", tag=0, default=None)
    leader: int = stored("int32", tag=1, default=NO_LEADER_CHANGE)
    replicas: tuple[int, ...] | None = stored("int32", tag=2, default=None)
    removing_replicas: tuple[int, ...] | None = stored("int32", tag=3, default=None)
    adding_replicas: tuple[int, ...] | None = stored("int32", tag=4, default=None)
    leader_recovery_state: int = stored("int8", tag=5, default=NO_RECOVERY_STATE_CHANGE)
    eligible_leader_replicas: tuple[int, ...] | None = stored("int32", since=2, tag=6, default=None)
    last_known_elr: tuple[int, ...] | None = stored("int32", since=2, tag=7, default=None)
    directories: tuple[UUID, ...] | None = stored("uuid", since=1, tag=8, default=None)


@message
class FenceBrokerRecord(ClusterMetadataMessage):
    """A broker is fenced; logs from before 3.3 only, BrokerRegistrationChangeRecord took its place."""

    API_KEY: ClassVar[int] = 7

    id: int = stored("int32")
    epoch: int = stored("int64")


@message
class UnfenceBrokerRecord(ClusterMetadataMessage):
    """A broker is unfenced; logs from before 3.3 only."""

    API_KEY: ClassVar[int] = 8

    id: int = stored("int32")
    epoch: int = stored("int64")


@message
class RemoveTopicRecord(ClusterMetadataMessage):
    """A topic is deleted, its partitions and configurations with it."""

    API_KEY: ClassVar[int] = 9

    topic_id: UUID = stored("uuid")


@message
class DelegationTokenRecord(ClusterMetadataMessage):
    """A delegation token is made or renewed; principals are texts like "User:alice"."""

    API_KEY: ClassVar[int] = 10

    owner: str = stored("string")
    requester: str = stored("string")
    renewers: tuple[str, ...] = stored("string", default=())
    issue_timestamp: int = stored("int64")
    max_timestamp: int = stored("int64")
    expiration_timestamp: int = stored("int64")
    token_id: str = stored("string")


@message
class UserScramCredentialRecord(ClusterMetadataMessage):
    """A user's SCRAM credential; mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""

    API_KEY: ClassVar[int] = 11

    name: str = stored("string")
    mechanism: int = stored("int8")
    salt: bytes = stored("bytes")
    stored_key: bytes = stored("bytes")
    server_key: bytes = stored("bytes")
    iterations: int = stored("int32")


@message
class FeatureLevelRecord(ClusterMetadataMessage):
    """A feature gets a level; 0 removes it."""

    API_KEY: ClassVar[int] = 12

    name: str = stored("string")
    feature_level: int = stored("int16")


@message
class ClientQuotaEntity:
    """One part of whom a quota binds; a null name is the default entity of the type."""

    entity_type: str = stored("string")
    entity_name: str | None = stored("string", default=None)


@message
class ClientQuotaRecord(ClusterMetadataMessage):
    """A quota is set or removed."""

    API_KEY: ClassVar[int] = 14

    entity: tuple[ClientQuotaEntity, ...] = stored()
    key: str = stored("string")
    value: float = stored("float64")
    remove: bool = stored("bool", default=False)


@message
class ProducerIdsRecord(ClusterMetadataMessage):
    """A broker was given a block of producer ids; the next block starts at `next_producer_id`."""

    API_KEY: ClassVar[int] = 15

    broker_id: int = stored("int32")
    broker_epoch: int = stored("int64", default=-1)
    next_producer_id: int = stored("int64")


@message
class BrokerRegistrationChangeRecord(ClusterMetadataMessage):
    """What changes in a registration: fenced -1 means unfenced, 0 as it was, 1 fenced; no directories as they were."""

    API_KEY: ClassVar[int] = 17
    VERSIONS: ClassVar[range] = range(3)

    broker_id: int = stored("int32")
    broker_epoch: int = stored("int64")
    fenced: int = stored("int8", tag=0, default=0)
    in_controlled_shutdown: int = stored("int8", since=1, tag=1, default=0)
    log_dirs: tuple[UUID, ...] = stored("uuid", since=2, tag=2, default=())


@message
class AccessControlEntryRecord(ClusterMetadataMessage):
    """One ACL."""

    API_KEY: ClassVar[int] = 18

    id: UUID = stored("uuid")
    resource_type: int = stored("int8")
    resource_name: str = stored("string")
    pattern_type: int = stored("int8")
    principal: str = stored("string")
    host: str = stored("string")
    operation: int = stored("int8")
    permission_type: int = stored("int8")


@message
class RemoveAccessControlEntryRecord(ClusterMetadataMessage):
    """One ACL is removed."""

    API_KEY: ClassVar[int] = 19

    id: UUID = stored("uuid")


@message
class NoOpRecord(ClusterMetadataMessage):
    """Nothing; the active controller writes it now and then so that offsets move."""

    API_KEY: ClassVar[int] = 20


@message
class ZkMigrationStateRecord(ClusterMetadataMessage):
    """Left from migrations; 0 is none."""

    API_KEY: ClassVar[int] = 21

    zk_migration_state: int = stored("int8")


@message
class RemoveUserScramCredentialRecord(ClusterMetadataMessage):
    """A user's SCRAM credential is removed."""

    API_KEY: ClassVar[int] = 22

    name: str = stored("string")
    mechanism: int = stored("int8")


@message
class BeginTransactionRecord(ClusterMetadataMessage):
    """The records from here on count only when the transaction ends (KIP-868)."""

    API_KEY: ClassVar[int] = 23

    name: str | None = stored("string", tag=0, default=None)


@message
class EndTransactionRecord(ClusterMetadataMessage):
    """The records since the beginning of the transaction count."""

    API_KEY: ClassVar[int] = 24


@message
class AbortTransactionRecord(ClusterMetadataMessage):
    """The records since the beginning of the transaction never happened."""

    API_KEY: ClassVar[int] = 25

    reason: str | None = stored("string", tag=0, default=None)


@message
class RemoveDelegationTokenRecord(ClusterMetadataMessage):
    """A delegation token is removed."""

    API_KEY: ClassVar[int] = 26

    token_id: str = stored("string")


@message
class RegisterControllerRecord(ClusterMetadataMessage):
    """A controller tells where it listens and what it supports (KIP-919)."""

    API_KEY: ClassVar[int] = 27

    controller_id: int = stored("int32")
    incarnation_id: UUID = stored("uuid")
    zk_migration_ready: bool = stored("bool", default=False)
    end_points: tuple[BrokerEndpoint, ...] = stored(default=())
    features: tuple[BrokerFeature, ...] = stored(default=())


@message
class ClearElrRecord(ClusterMetadataMessage):
    """The eligible leader replicas of a topic, or of all topics when the name is empty, are dropped (KIP-966)."""

    API_KEY: ClassVar[int] = 28

    topic_name: str = stored("string", default="")


MetadataRecord: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | RemoveTopicRecord
    | DelegationTokenRecord
    | UserScramCredentialRecord
    | FeatureLevelRecord
    | ClientQuotaRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | NoOpRecord
    | ZkMigrationStateRecord
    | RemoveUserScramCredentialRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | RemoveDelegationTokenRecord
    | RegisterControllerRecord
    | ClearElrRecord
)

RECORD_TYPES: Final[dict[int, type[MetadataRecord]]] = {kind.API_KEY: kind for kind in get_args(MetadataRecord)}

# From which metadata.version on a version of a record is written (Kafka: MetadataVersion).
_VERSION_LEVELS: Final[dict[type[MetadataRecord], tuple[tuple[int, int], ...]]] = {
    RegisterBrokerRecord: ((17, 3), (8, 2), (7, 1)),
    PartitionRecord: ((23, 2), (17, 1)),
    PartitionChangeRecord: ((23, 2), (17, 1)),
    BrokerRegistrationChangeRecord: ((17, 2), (7, 1)),
}


def record_version(kind: type[MetadataRecord], metadata_version: int) -> int:
    """The version in which a record is written at a level of metadata.version."""
    for level, version in _VERSION_LEVELS.get(kind, ()):
        if metadata_version >= level:
            return version
    return 0


def encode(record: MetadataRecord, version: int | None = None) -> bytes:
    """The record as a value of the log; by default in its latest version.

    ValueError when the version cannot hold what the record says.
    """
    return encode_record(record, record.VERSIONS[-1] if version is None else version)


def decode(data: Buffer) -> MetadataRecord:
    """The record in a value of the log.  UnknownRecordError, which must stop the reader, or MalformedRecordError."""
    return decode_record(data, RECORD_TYPES)
