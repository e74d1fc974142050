"""UpdateFeatures on a controller."""

from typing import Any

from broker.common.errors import ErrorCode
from broker.controller.controller import Controller
from broker.controller.feature_control_manager import FeatureUpdate, UpgradeType
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.UPDATE_FEATURES, versions=range(3))
async def update_features(request: Request, context: RequestContext, controller: Controller) -> Any:
    """UpdateFeatures: finalizes levels of features for the whole cluster (KIP-584, KIP-778).

    Behaviour: all or none.  A level that the controller or any registered broker cannot run at, a lower level without
      the downgrade type, or a downgrade of metadata.version that would lose metadata is INVALID_UPDATE_VERSION with a
      sentence.
    Versions:  0 allow_downgrade · 1 upgrade types, validation only · 2 one error for all.
    Left out:  unsafe downgrades that lose metadata.
    """
    body = request.body
    updates = [
        FeatureUpdate(update.feature, update.max_version_level, _upgrade_type(update))
        for update in body.feature_updates
    ]
    await controller.update_features(updates, validate_only=getattr(body, "validate_only", False))
    schema = request.schema
    return schema.UpdateFeaturesResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        results=tuple(
            schema.UpdatableFeatureResult(feature=update.name, error_code=ErrorCode.none, error_message=None)
            for update in updates
        ),
    )


def _upgrade_type(update: Any) -> UpgradeType:
    if hasattr(update, "allow_downgrade"):
        return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    try:
        return UpgradeType(update.upgrade_type)
    except ValueError:
        return UpgradeType.UNKNOWN
