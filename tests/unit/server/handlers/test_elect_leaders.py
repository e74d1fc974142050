from typing import Any

from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.server.handlers.elect_leaders import elect_leaders
from tests.unit.server.handlers.forwarding_support import check_forwarded


def fields(version: int) -> dict[str, Any]:
    return {"election_type": 0, "topic_partitions": None, "timeout": milliseconds(1000)}


def test_the_controller_answers() -> None:
    check_forwarded(elect_leaders, ApiKey.ELECT_LEADERS, fields)
