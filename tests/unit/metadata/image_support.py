"""Records and images for the tests of the metadata package."""

from typing import Any
from uuid import UUID

from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.schemas import cluster_metadata as records

TOPIC, OTHER = UUID(int=0xA0A0), UUID(int=0xB0B0)
LEVEL = records.FeatureLevelRecord(name="metadata.version", feature_level=29)


def directory_of(broker_id: int) -> UUID:
    return UUID(int=0x1000 + broker_id)


def broker_record(broker_id: int, **fields: Any) -> records.RegisterBrokerRecord:
    values: dict[str, Any] = {
        "incarnation_id": UUID(int=broker_id + 500),
        "broker_epoch": broker_id * 10,
        "end_points": (
            records.BrokerEndpoint(name="PLAINTEXT", host=f"host-{broker_id}", port=9092, security_protocol=0),
        ),
        "features": (
            records.BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=29),
        ),
        "fenced": False,
        "log_dirs": (directory_of(broker_id),),
    }
    return records.RegisterBrokerRecord(broker_id=broker_id, **{**values, **fields})


def topic_record(name: str = "t", topic_id: UUID = TOPIC) -> records.TopicRecord:
    return records.TopicRecord(name=name, topic_id=topic_id)


def partition_record(
    index: int = 0, replicas: tuple[int, ...] = (1, 2), topic_id: UUID = TOPIC, **fields: Any
) -> records.PartitionRecord:
    values: dict[str, Any] = {
        "isr": replicas,
        "leader": replicas[0],
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": tuple(map(directory_of, replicas)),
    }
    return records.PartitionRecord(partition_id=index, topic_id=topic_id, replicas=replicas, **{**values, **fields})


def change_record(index: int = 0, topic_id: UUID = TOPIC, **fields: Any) -> records.PartitionChangeRecord:
    return records.PartitionChangeRecord(partition_id=index, topic_id=topic_id, **fields)


def config_record(name: str, value: str | None, topic: str = "t", kind: int = 2) -> records.ConfigRecord:
    return records.ConfigRecord(resource_type=kind, resource_name=topic, name=name, value=value)


def delta_of(image: MetadataImage, *given: records.MetadataRecord) -> MetadataDelta:
    delta = MetadataDelta(image)
    for record in given:
        delta.replay(record)
    return delta


def image_of(
    *given: records.MetadataRecord, base: MetadataImage = MetadataImage.EMPTY, offset: int = 100
) -> MetadataImage:
    return delta_of(base, *given).apply(offset, 1)


def full_image() -> MetadataImage:
    """Something of everything an image can hold."""
    return image_of(
        LEVEL,
        records.FeatureLevelRecord(name="group.version", feature_level=1),
        records.ZkMigrationStateRecord(zk_migration_state=0),
        broker_record(1, rack="a"),
        broker_record(2, fenced=True),
        records.RegisterControllerRecord(controller_id=3000, incarnation_id=UUID(int=7)),
        topic_record(),
        partition_record(0),
        partition_record(1, (2, 1), eligible_leader_replicas=(1,), last_known_elr=(2,), isr=(2,)),
        topic_record("u", OTHER),
        partition_record(0, (1,), OTHER),
        config_record("retention.ms", "1000"),
        config_record("log.retention.ms", "5", "", 4),
        records.ClientQuotaRecord(
            entity=(records.ClientQuotaEntity(entity_type="user", entity_name=None),),
            key="producer_byte_rate",
            value=1.5,
            remove=False,
        ),
        records.ProducerIdsRecord(broker_id=1, broker_epoch=10, next_producer_id=3000),
        records.AccessControlEntryRecord(
            id=UUID(int=0x77),
            resource_type=2,
            resource_name="t",
            pattern_type=3,
            principal="User:a",
            host="*",
            operation=3,
            permission_type=3,
        ),
        records.UserScramCredentialRecord(
            name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
        records.DelegationTokenRecord(
            owner="User:a",
            requester="User:b",
            renewers=(),
            issue_timestamp=1,
            max_timestamp=2,
            expiration_timestamp=3,
            token_id="id",
        ),
    )
