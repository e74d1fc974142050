"""Where a fetch takes its partitions from: the request itself, or a session that remembers them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from broker.replication.fetch_params import FetchPartition

if TYPE_CHECKING:
    from broker.replication.delayed_fetch import DelayedFetch


class FetchSource(Protocol):
    def partitions_to_read(self) -> Sequence[FetchPartition]:
        """The partitions that could have something to tell, in the order in which they are to be served."""

    def __len__(self) -> int:
        """All partitions that belong to it, read or not."""

    def park(self, operation: "DelayedFetch") -> None:
        """From now on tell the operation about each partition that changes."""

    def unpark(self, operation: "DelayedFetch") -> None: ...


class RequestedPartitions:
    """All partitions of one request, watched only while it is parked."""

    __slots__ = ("_partitions",)

    def __init__(self, partitions: Sequence[FetchPartition]) -> None:
        self._partitions = partitions

    def partitions_to_read(self) -> Sequence[FetchPartition]:
        return self._partitions

    def __len__(self) -> int:
        return len(self._partitions)

    def park(self, operation: "DelayedFetch") -> None:
        for request in self._partitions:
            if request.hosted is not None:
                request.hosted.watch_fetch(request, operation, is_from_follower=operation.params.is_from_follower)

    def unpark(self, operation: "DelayedFetch") -> None:
        for request in self._partitions:
            if request.hosted is not None:
                request.hosted.unwatch_fetch(request)
