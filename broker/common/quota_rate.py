"""How fast something happens, over a window of samples, and how long to wait when that is too fast."""

import math
from collections import deque
from typing import Final

MILLISECONDS: Final = 1000
DELAY_MS_MAX: Final = 0x7FFFFFFF  # throttle_time_ms is an int32


class _Sample:
    """What happened from `began_ms` on, up to one sample's length; `last_ms` is when it was last recorded to."""

    __slots__ = ("began_ms", "last_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.begin(now_ms)

    def begin(self, now_ms: int) -> None:
        self.began_ms = self.last_ms = now_ms
        self.value = 0.0


class QuotaRate:
    """Per second, over the newest `sample_count` samples (Kafka's Rate of a SampledStat).

    The window is the time since the oldest sample that counts began, and at least all samples but one: what has only
    just begun is no burst.  One sample more than that is kept, because one that reaches into the window counts whole.
    """

    __slots__ = ("_sample_count", "_sample_ms", "_samples")

    def __init__(self, sample_ms: int, sample_count: int) -> None:
        self._sample_ms = sample_ms
        self._sample_count = sample_count
        self._samples: deque[_Sample] = deque(maxlen=sample_count + 1)

    def record(self, value: float, now_ms: int) -> None:
        """Add to what happens now; a negative value takes back what was recorded."""
        samples = self._samples
        if not samples or now_ms - samples[-1].began_ms >= self._sample_ms:
            samples.append(_Sample(now_ms))
        sample = samples[-1]
        sample.value += value
        sample.last_ms = now_ms

    def measure(self, now_ms: int) -> tuple[float, int]:
        """The rate per second, and the window it was measured over in milliseconds."""
        oldest_ms = now_ms
        total = 0.0
        for sample in self._samples:
            if now_ms - sample.last_ms >= self._sample_count * self._sample_ms:
                sample.begin(now_ms)
            total += sample.value
            oldest_ms = min(oldest_ms, sample.began_ms)
        window_ms = now_ms - oldest_ms
        missing = self._sample_count - 1 - window_ms // self._sample_ms
        if missing > 0:
            window_ms += missing * self._sample_ms
        window_ms = max(window_ms, 1)
        return total * MILLISECONDS / window_ms, window_ms


def throttle_ms(rate: float, limit: float, window_ms: int) -> int:
    """How long nothing more may happen for the rate to be down at its limit again (Kafka's QuotaUtils); 0 below it."""
    if rate <= limit:
        return 0
    if limit <= 0:  # controllers refuse it, old ones did not
        return DELAY_MS_MAX
    return math.floor(min((rate - limit) / limit * window_ms + 0.5, DELAY_MS_MAX))
