from broker.metadata.metadata_image import MetadataImage
from broker.metadata.metadata_records import to_records
from broker.schemas import cluster_metadata as records
from tests.unit.metadata.image_support import full_image, image_of


def test_an_image_is_its_records() -> None:
    image = full_image()
    assert image_of(*to_records(image, 29)) == image
    assert list(to_records(MetadataImage.EMPTY, 29)) == []


def test_the_order_of_a_snapshot() -> None:
    names = [type(record).__name__.removesuffix("Record") for record in to_records(full_image(), 29)]
    assert names == [
        "FeatureLevel",
        "FeatureLevel",
        "ZkMigrationState",
        "RegisterBroker",
        "RegisterBroker",
        "RegisterController",
        "Topic",
        "Partition",
        "Partition",
        "Topic",
        "Partition",
        "Config",
        "Config",
        "ClientQuota",
        "ProducerIds",
        "AccessControlEntry",
        "UserScramCredential",
        "DelegationToken",
    ]
    first = next(iter(to_records(full_image(), 29)))
    assert first == records.FeatureLevelRecord(name="metadata.version", feature_level=29)


def test_every_record_can_be_encoded_at_its_level() -> None:
    for record in to_records(full_image(), 29):
        version = records.record_version(type(record), 29)
        assert records.decode(records.encode(record, version)) == record


def test_before_directories_existed_they_are_left_out() -> None:
    partitions = [each for each in to_records(full_image(), 16) if isinstance(each, records.PartitionRecord)]
    assert [each.directories for each in partitions] == [()] * 3
