from broker.common.chance import Chance
from broker.metadata.metadata_cache import MetadataCache
from broker.schemas.cluster_metadata import FeatureLevelRecord
from broker.server.supported_features import FEATURE_ADVICE, SUPPORTED_FEATURES, ClusterFeatures
from tests.unit.server.link_support import image_with


def test_only_what_is_built_is_claimed() -> None:
    assert {name: tuple(levels) for name, levels in SUPPORTED_FEATURES.items()} == {
        "metadata.version": (7, 29),
        "kraft.version": (0, 1),
    }


def test_the_advice_names_the_level_and_the_switches() -> None:
    assert "at most 29 (4.2-IV1)" in FEATURE_ADVICE
    assert "--feature eligible.leader.replicas.version=0" in FEATURE_ADVICE


def test_clients_are_told_the_levels_of_the_image() -> None:
    cache = MetadataCache(Chance(1))
    features = ClusterFeatures(cache)
    assert features.finalized_features() == (-1, {})
    cache.set_image(image_with(FeatureLevelRecord(name="metadata.version", feature_level=25), offset=12))
    assert features.finalized_features() == (12, {"metadata.version": 25})
    assert features.supported_features()["metadata.version"] == (7, 29)
