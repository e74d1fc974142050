import itertools

from broker.schemas.remote_log_metadata import RemoteLogSegmentState, RemotePartitionDeleteState
from broker.tiering.segment_state import may_follow, may_follow_deletion


def test_5_the_legal_ways_of_a_segment() -> None:
    known = (None, *RemoteLogSegmentState)
    legal = [pair for pair in itertools.product(known, RemoteLogSegmentState) if may_follow(*pair)]
    assert [(None if state is None else int(state), int(target)) for state, target in legal] == [
        (None, 0),
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 1),
        (1, 2),
        (2, 2),
        (2, 3),
        (3, 3),
    ]


def test_the_legal_ways_of_a_deleted_partition() -> None:
    known = (None, *RemotePartitionDeleteState)
    legal = [pair for pair in itertools.product(known, RemotePartitionDeleteState) if may_follow_deletion(*pair)]
    assert [(None if state is None else int(state), int(target)) for state, target in legal] == [
        (None, 0),
        (0, 0),
        (0, 1),
        (1, 1),
        (1, 2),
        (2, 2),
    ]
