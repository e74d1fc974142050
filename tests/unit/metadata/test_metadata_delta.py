from uuid import UUID

import pytest

from broker.metadata.configs_image import ConfigResource, ConfigResourceType
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_fault import MetadataFault
from broker.metadata.metadata_image import MetadataImage
from broker.schemas import cluster_metadata as records
from tests.unit.metadata.image_support import (
    TOPIC,
    broker_record,
    config_record,
    delta_of,
    full_image,
    image_of,
)

QUOTA = (records.ClientQuotaEntity(entity_type="user", entity_name=None),)


def test_features_come_and_go() -> None:
    delta = delta_of(
        full_image(),
        records.FeatureLevelRecord(name="group.version", feature_level=0),
        records.FeatureLevelRecord(name="transaction.version", feature_level=2),
    )
    assert delta.changed_features == {"group.version": None, "transaction.version": 2}
    assert delta.apply(101, 1).features.finalized == {"metadata.version": 29, "transaction.version": 2}


def test_brokers_register_change_and_leave() -> None:
    image = image_of(
        broker_record(3),
        records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=10, fenced=1),
        records.FenceBrokerRecord(id=3, epoch=30),
        records.UnfenceBrokerRecord(id=2, epoch=20),
        base=full_image(),
    )
    assert {broker_id: broker.fenced for broker_id, broker in image.brokers.items()} == {1: True, 2: False, 3: True}
    delta = delta_of(image, records.UnregisterBrokerRecord(broker_id=3, broker_epoch=30))
    assert delta.changed_brokers == {3: None}
    assert sorted(delta.apply(102, 1).brokers) == [1, 2]


@pytest.mark.parametrize(
    "record",
    [
        records.UnregisterBrokerRecord(broker_id=1, broker_epoch=11),
        records.UnregisterBrokerRecord(broker_id=9, broker_epoch=90),
        records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=11),
        records.FenceBrokerRecord(id=9, epoch=1),
        records.BeginTransactionRecord(),
    ],
)
def test_impossible_records_are_faults(record: records.MetadataRecord) -> None:
    with pytest.raises(MetadataFault):
        delta_of(full_image(), record)


def test_configs_are_set_deleted_and_go_with_their_topic() -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, "t")
    delta = delta_of(full_image(), config_record("flush.ms", "1"), config_record("retention.ms", None))
    assert delta.changed_configs == {resource: {"flush.ms": "1"}}
    image = delta.apply(101, 1)
    assert image.configs.properties(*resource) == {"flush.ms": "1"}
    emptied = delta_of(image, config_record("flush.ms", None))
    assert emptied.changed_configs == {resource: None}
    deleted = delta_of(image, records.RemoveTopicRecord(topic_id=TOPIC))
    assert deleted.changed_configs == {resource: None}
    assert resource not in deleted.apply(102, 1).configs.by_resource


def test_the_old_image_stays_as_it_was() -> None:
    image, twin = full_image(), full_image()
    delta_of(image, config_record("flush.ms", "1"), broker_record(3), records.RemoveTopicRecord(topic_id=TOPIC)).apply(
        101, 1
    )
    assert image == twin


def test_quotas_ids_acls_credentials_and_tokens() -> None:
    image = image_of(
        records.ClientQuotaRecord(entity=QUOTA, key="consumer_byte_rate", value=2.0, remove=False),
        records.ClientQuotaRecord(entity=QUOTA, key="producer_byte_rate", value=0.0, remove=True),
        records.ProducerIdsRecord(broker_id=1, broker_epoch=10, next_producer_id=4000),
        records.RemoveAccessControlEntryRecord(id=UUID(int=0x77)),
        records.RemoveUserScramCredentialRecord(name="u", mechanism=1),
        records.RemoveDelegationTokenRecord(token_id="id"),
        records.NoOpRecord(),
        base=full_image(),
    )
    assert image.client_quotas == {(("user", None),): {"consumer_byte_rate": 2.0}}
    assert image.producer_ids.next_producer_id == 4000
    assert (image.acls, image.scram_credentials, image.delegation_tokens) == ({}, {}, {})
    last = delta_of(image, records.ClientQuotaRecord(entity=QUOTA, key="consumer_byte_rate", value=0.0, remove=True))
    assert last.changed_client_quotas == {(("user", None),): None}


def test_13_what_a_snapshot_leaves_out_is_removed_and_nothing_else_changes() -> None:
    old = full_image()
    new = image_of(
        records.RemoveTopicRecord(topic_id=TOPIC), records.RemoveAccessControlEntryRecord(id=UUID(int=0x77)), base=old
    )
    delta = MetadataDelta.between(old, new)
    assert delta.topics_delta.deleted_topics == {TOPIC: "t"}
    assert delta.topics_delta.changed_topics == {}
    assert delta.changed_acls == {UUID(int=0x77): None}
    assert delta.changed_configs == {ConfigResource(ConfigResourceType.TOPIC, "t"): None}
    assert (delta.changed_brokers, delta.changed_features, delta.changed_client_quotas) == ({}, {}, {})
    assert delta.apply(new.offset, new.epoch) == new


def test_between_nothing_and_everything() -> None:
    image = full_image()
    assert MetadataDelta.between(MetadataImage.EMPTY, image).apply(image.offset, image.epoch) == image
    assert MetadataDelta.between(image, MetadataImage.EMPTY).apply(-1, -1) == MetadataImage.EMPTY
