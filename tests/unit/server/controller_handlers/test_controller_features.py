from broker.server.api_version_manager import FinalizedFeatures
from broker.server.controller_handlers.controller_features import ControllerFeatures
from tests.support.sim_disk import SimFileSystem
from tests.unit.controller.controller_support import running_controller


async def test_what_is_supported_and_what_is_finalized() -> None:
    async with running_controller(SimFileSystem()) as controller:
        features = ControllerFeatures(controller)
        assert features.supported_features()["metadata.version"] == (7, 29)
        assert features.supported_features()["kraft.version"] == (0, 0)
        assert features.finalized_features() == FinalizedFeatures(3, {"metadata.version": 29})
