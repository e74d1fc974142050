"""The acks=all requests that wait for one partition's high watermark."""

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from broker.common.errors import ErrorCode

if TYPE_CHECKING:
    from broker.replication.delayed_produce import DelayedProduce


SWEEP_SIZE_MIN: Final = 128


class WaitingAppends:
    """Ordered by the offset they need: a move of the high watermark looks at those it satisfies and no others.

    Of those that timed out there are never more than of those that wait, and SWEEP_SIZE_MIN.
    """

    __slots__ = ("_heap", "_sequence", "_sweep_at")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, DelayedProduce, int]] = []
        self._sequence = 0
        self._sweep_at = SWEEP_SIZE_MIN

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, required_offset: int, operation: "DelayedProduce", index: int) -> None:
        """Tell `operation.on_partition_done(index, error)` once the high watermark is there, or never will be."""
        heap = self._heap
        while heap and heap[0][2].is_completed:
            heappop(heap)  # timed out, as those that wait longest do first
        if len(heap) >= self._sweep_at:  # unless one with more patience is before them
            heap[:] = [each for each in heap if not each[2].is_completed]
            heapify(heap)
            self._sweep_at = max(2 * len(heap), SWEEP_SIZE_MIN)
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
