"""How the state of a remote segment, and that of a deleted partition, may change (KIP-405: RemoteLogSegmentState)."""

from collections.abc import Mapping
from typing import Final

from broker.schemas.remote_log_metadata import RemoteLogSegmentState, RemotePartitionDeleteState

_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
_MARKED = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
_PARTITION_DELETING = RemotePartitionDeleteState.DELETE_PARTITION_STARTED
_PARTITION_DELETED = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED

# From each state to those that may follow; None is a segment not heard of.  An event may come twice.
SEGMENT_TRANSITIONS: Final[Mapping[RemoteLogSegmentState | None, frozenset[RemoteLogSegmentState]]] = {
    None: frozenset({_STARTED}),
    _STARTED: frozenset({_STARTED, _FINISHED, _DELETING}),
    _FINISHED: frozenset({_FINISHED, _DELETING}),
    _DELETING: frozenset({_DELETING, _DELETED}),
    _DELETED: frozenset({_DELETED}),
}
PARTITION_DELETE_TRANSITIONS: Final[
    Mapping[RemotePartitionDeleteState | None, frozenset[RemotePartitionDeleteState]]
] = {
    None: frozenset({_MARKED}),
    _MARKED: frozenset({_MARKED, _PARTITION_DELETING}),
    _PARTITION_DELETING: frozenset({_PARTITION_DELETING, _PARTITION_DELETED}),
    _PARTITION_DELETED: frozenset({_PARTITION_DELETED}),
}


def may_follow(state: RemoteLogSegmentState | None, target: RemoteLogSegmentState) -> bool:
    """Whether a segment in `state` may become `target`."""
    return target in SEGMENT_TRANSITIONS[state]


def may_follow_deletion(state: RemotePartitionDeleteState | None, target: RemotePartitionDeleteState) -> bool:
    """Whether a partition whose deletion is in `state` may come to `target`."""
    return target in PARTITION_DELETE_TRANSITIONS[state]
