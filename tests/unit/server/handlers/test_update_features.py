from typing import Any

from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.server.handlers.update_features import update_features
from tests.unit.server.handlers.forwarding_support import check_forwarded


def fields(version: int) -> dict[str, Any]:
    return {"timeout": milliseconds(1000), "feature_updates": (), "validate_only": True}


def test_the_controller_answers() -> None:
    check_forwarded(update_features, ApiKey.UPDATE_FEATURES, fields)
