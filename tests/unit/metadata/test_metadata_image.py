from broker.metadata.metadata_image import MetadataImage
from tests.unit.metadata.image_support import full_image


def test_the_empty_image_is_before_the_first_record() -> None:
    assert MetadataImage.EMPTY.is_empty
    assert MetadataImage.EMPTY.features.metadata_version == 0
    assert not full_image().is_empty


def test_brokers_and_features() -> None:
    image = full_image()
    broker = image.broker(1)
    assert broker is not None
    assert broker.rack == "a"
    assert image.broker(9) is None
    assert image.is_broker_active(1)
    assert not image.is_broker_active(2)
    assert not image.is_broker_active(9)
    assert (image.features.metadata_version, image.features.level("group.version")) == (29, 1)
    assert image.features.level("unknown") == 0
