from broker.common.errors import ErrorCode
from broker.coordinator.group.group_messages import FetchedOffset, JoinGroupResult, LeaveGroupResult, SyncGroupResult


def test_an_error_says_nothing_else() -> None:
    joined = JoinGroupResult(ErrorCode.unknown_member_id)
    assert (joined.member_id, joined.generation, joined.leader_id, joined.members) == ("", -1, "", ())
    assert SyncGroupResult(ErrorCode.unknown_member_id).assignment == b""
    assert LeaveGroupResult().members == ()


def test_nothing_committed_is_no_error() -> None:
    assert FetchedOffset(3) == (3, -1, -1, "", ErrorCode.none)
