from typing import Any

from broker.protocol.api_keys import ApiKey
from broker.server.handlers.unregister_broker import unregister_broker
from tests.unit.server.handlers.forwarding_support import check_forwarded


def fields(version: int) -> dict[str, Any]:
    return {"broker_id": 3}


def test_the_controller_answers() -> None:
    check_forwarded(unregister_broker, ApiKey.UNREGISTER_BROKER, fields)
