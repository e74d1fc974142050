"""BrokerFeatures: the features ApiVersions shows on a broker's listener."""

from collections.abc import Mapping

from broker.metadata.metadata_cache import MetadataCache
from broker.server.api_version_manager import FinalizedFeatures, VersionRange
from broker.server.supported_features import SUPPORTED_FEATURES


class BrokerFeatures:
    """The `FeaturesProvider` of a broker: what it can run with, and what the cluster has finalized."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache

    def supported_features(self) -> Mapping[str, VersionRange]:
        return {name: (levels.minimum, levels.maximum) for name, levels in SUPPORTED_FEATURES.items()}

    def finalized_features(self) -> FinalizedFeatures:
        image = self._cache.image
        return FinalizedFeatures(image.offset, image.features.finalized)
