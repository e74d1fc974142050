from broker.metadata.metadata_cache import MetadataCache
from broker.schemas.cluster_metadata import FeatureLevelRecord
from broker.server.broker_features import BrokerFeatures
from broker.server.supported_features import SUPPORTED_FEATURES
from tests.unit.server.link_support import image_with


def test_supported_features_are_those_the_broker_registers_with() -> None:
    told = BrokerFeatures(MetadataCache()).supported_features()
    assert told == {name: (levels.minimum, levels.maximum) for name, levels in SUPPORTED_FEATURES.items()}
    assert "metadata.version" in told


def test_finalized_features_are_those_of_the_image_with_its_offset() -> None:
    cache = MetadataCache()
    features = BrokerFeatures(cache)
    assert features.finalized_features().epoch == -1
    assert dict(features.finalized_features().levels) == {}
    cache.set_image(image_with(FeatureLevelRecord(name="metadata.version", feature_level=25), offset=42))
    assert features.finalized_features().epoch == 42
    assert dict(features.finalized_features().levels) == {"metadata.version": 25}
