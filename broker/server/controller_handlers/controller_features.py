"""ControllerFeatures: the features ApiVersions shows on a controller's listener."""

from collections.abc import Mapping

from broker.controller.controller import Controller
from broker.controller.feature_control_manager import SUPPORTED_FEATURES
from broker.server.api_version_manager import FinalizedFeatures


class ControllerFeatures:
    """The `FeaturesProvider` of a controller: what it can finalize, and what is finalized."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        return SUPPORTED_FEATURES

    def finalized_features(self) -> FinalizedFeatures:
        image = self._controller.image
        return FinalizedFeatures(image.offset, image.features.finalized)
