"""An image as records: what a snapshot holds, in the order it holds them."""

from collections.abc import Iterator
from dataclasses import replace

from broker.metadata.metadata_image import MetadataImage
from broker.metadata.metadata_version import METADATA_VERSION_FEATURE, MetadataVersion
from broker.schemas import cluster_metadata as records


def to_records(image: MetadataImage, metadata_version: int) -> Iterator[records.MetadataRecord]:
    """Replayed onto an empty image they give an equal one (at a level that can say all of it).

    Features come first, since `metadata.version` decides how the rest is to be read.
    """
    yield from _feature_records(image)
    for broker in sorted(image.brokers.values(), key=lambda broker: broker.id):
        yield broker.to_record()
    yield from sorted(image.controllers.values(), key=lambda controller: controller.controller_id)
    yield from _topic_records(image, metadata_version)
    for resource, properties in image.configs.by_resource.items():
        for name, value in properties.items():
            yield records.ConfigRecord(
                resource_type=int(resource.type), resource_name=resource.name, name=name, value=value
            )
    yield from _quota_records(image)
    if image.producer_ids.next_producer_id >= 0:
        yield records.ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=image.producer_ids.next_producer_id
        )
    yield from image.acls.values()
    yield from image.scram_credentials.values()
    yield from image.delegation_tokens.values()


def _feature_records(image: MetadataImage) -> Iterator[records.MetadataRecord]:
    features = image.features
    if features.metadata_version:
        yield records.FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=features.metadata_version)
    for name, level in features.finalized.items():
        if name != METADATA_VERSION_FEATURE:
            yield records.FeatureLevelRecord(name=name, feature_level=level)
    if features.metadata_version >= MetadataVersion.IBP_3_4_IV0:
        yield records.ZkMigrationStateRecord(zk_migration_state=features.zk_migration_state)


def _topic_records(image: MetadataImage, metadata_version: int) -> Iterator[records.MetadataRecord]:
    has_directories = metadata_version >= MetadataVersion.IBP_3_7_IV2
    for topic in image.topics.by_id.values():
        yield records.TopicRecord(name=topic.name, topic_id=topic.id)
        for index, partition in topic.partitions.items():
            record = partition.to_record(topic.id, index)
            yield record if has_directories else replace(record, directories=())


def _quota_records(image: MetadataImage) -> Iterator[records.MetadataRecord]:
    for entity, quotas in image.client_quotas.items():
        parts = tuple(records.ClientQuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity)
        for key, value in quotas.items():
            yield records.ClientQuotaRecord(entity=parts, key=key, value=value, remove=False)
