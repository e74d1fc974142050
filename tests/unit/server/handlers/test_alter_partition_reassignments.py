from typing import Any

from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.server.handlers.alter_partition_reassignments import alter_partition_reassignments
from tests.unit.server.handlers.forwarding_support import check_forwarded


def fields(version: int) -> dict[str, Any]:
    return {"topics": (), "timeout": milliseconds(1000)}


def test_the_controller_answers() -> None:
    check_forwarded(alter_partition_reassignments, ApiKey.ALTER_PARTITION_REASSIGNMENTS, fields)
