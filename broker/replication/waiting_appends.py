"""The acks=all requests that wait for one partition's high watermark."""

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from broker.common.errors import ErrorCode

if TYPE_CHECKING:
    from broker.replication.delayed_produce import DelayedProduce


class WaitingAppends:
    """Ordered by the offset they need: a move of the high watermark looks at those it satisfies and no others."""

    __slots__ = ("_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, DelayedProduce, int]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, required_offset: int, operation: "DelayedProduce", index: int) -> None:
        """Tell `operation.on_partition_done(index, error)` once the high watermark is there, or never will be."""
        heap = self._heap
        while heap and heap[0][2].is_completed:
            heappop(heap)  # timed out: those wait longest, so the heap stays about as small as what is parked
        self._sequence += 1
        heappush(heap, (required_offset, self._sequence, operation, index))

    def complete_up_to(self, high_watermark: int, error: ErrorCode) -> None:
        heap = self._heap
        while heap and heap[0][0] <= high_watermark:
            _, _, operation, index = heappop(heap)
            operation.on_partition_done(index, error)

    def fail_all(self, error: ErrorCode) -> None:
        """In the order in which they came."""
        heap, self._heap = self._heap, []
        for _, _, operation, index in sorted(heap, key=lambda each: each[1]):
            operation.on_partition_done(index, error)
