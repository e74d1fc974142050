from types import SimpleNamespace

from broker.common.errors import ErrorCode
from broker.server.partition_errors import count_errors
from broker.server.response_slot import ResponseSlot
from tests.support.replica_requests import Answer


def test_errors_are_counted_by_name() -> None:
    counted: list[str] = []
    slot = ResponseSlot(Answer())
    count_errors(slot, [ErrorCode.corrupt_message])
    slot.route = SimpleNamespace(metrics=SimpleNamespace(count_error=counted.append))
    count_errors(slot, [ErrorCode.corrupt_message, ErrorCode.not_leader_or_follower])
    assert counted == ["CORRUPT_MESSAGE", "NOT_LEADER_OR_FOLLOWER"]
