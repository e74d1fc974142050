from typing import Any

from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.server.handlers.list_partition_reassignments import list_partition_reassignments
from tests.unit.server.handlers.forwarding_support import check_forwarded


def fields(version: int) -> dict[str, Any]:
    return {"topics": None, "timeout": milliseconds(1000)}


def test_the_controller_answers() -> None:
    check_forwarded(list_partition_reassignments, ApiKey.LIST_PARTITION_REASSIGNMENTS, fields)
