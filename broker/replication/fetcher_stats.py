"""What fetchers count (Kafka's FetcherStats): by leader, so that the numbers outlive the fetcher."""

from collections import deque
from typing import Final

RATE_WINDOW_SECONDS: Final = 60.0
RATE_SLICE_SECONDS: Final = 5.0  # so many slices are kept, and no more, however often it fetches


class FetchRate:
    """Fetches a second over the last minute, or over its life while that is shorter.  Times are those of the loop."""

    def __init__(self, now: float) -> None:
        self._started = now
        self._slices: deque[tuple[float, int]] = deque()  # (begin, count), ascending

    def mark(self, now: float) -> None:
        if self._slices and now - self._slices[-1][0] < RATE_SLICE_SECONDS:
            begin, count = self._slices[-1]
            self._slices[-1] = (begin, count + 1)
            return
        self._slices.append((now, 1))
        self._drop_before(now - RATE_WINDOW_SECONDS)

    def per_second(self, now: float) -> float:
        self._drop_before(now - RATE_WINDOW_SECONDS)
        age = min(now - self._started, RATE_WINDOW_SECONDS)
        return sum(count for _, count in self._slices) / max(age, 1.0)

    def _drop_before(self, moment: float) -> None:
        while self._slices and self._slices[0][0] < moment:
            self._slices.popleft()


class FetcherStats:
    """Fetches sent to one leader, and the bytes of records that came back."""

    __slots__ = ("bytes", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.bytes = 0
