"""CommittedOffset: how far a group has read one partition."""

from typing import NamedTuple

from broker.common.identifiers import NO_TIMESTAMP


class CommittedOffset(NamedTuple):
    """`record_offset` is the place of its record in the coordinator's log: of two commits the later one counts."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP  # only commits of versions 2 to 4 ask for an expiry of their own
    record_offset: int = -1
