"""UploadPace: how often objects are made: by policy, price, and what the bucket and the machine can take."""

import math
from dataclasses import replace
from enum import Enum
from typing import Final

from broker.wal.cost.cost_meter import Traffic
from broker.wal.upload.upload_queue import UploadLimits

THROTTLED_INTERVAL_MAX_MS: Final = 100
_RECOVERY: Final = 0.9  # of the interval, with each object the bucket takes
PUNCTUAL_MS: Final = 2.0  # late: a loop that has nothing else to do, whose clock ticks in milliseconds
LATENESS_FACTOR: Final = 25.0  # an interval is so much longer: 100 ms for 4 ms late
LATE_SIZE_FACTOR: Final = 4  # an object holds at most so much more than the settings say, as its interval is longer
_LATENESS_WEIGHT: Final = 0.1  # of the newest, in the average


class CostPolicy(Enum):
    """`remote.wal.cost.policy`: records leave quickly, as quickly as is no dearer than without a bucket, or cheaply.

    Whoever waits with acks=all never waits for price.
    """

    LATENCY = "latency"
    BALANCED = "balanced"
    ECONOMY = "economy"


class UploadPace:
    """The limits to give to the queue: those of the settings, with linger and interval of this moment."""

    def __init__(self, limits: UploadLimits, policy: CostPolicy, economy_linger_ms: int) -> None:
        self._limits = limits
        self._policy = policy
        self._economy_linger_ms = max(economy_linger_ms, limits.linger_ms)
        self._interval_ms = float(limits.interval_ms)
        self._late_ms = 0.0  # on average

    @property
    def interval_ms(self) -> int:
        return math.ceil(self._interval_ms)

    def woken(self, late_ms: float) -> None:
        """The loop came so much later than it was asked to: it, or the machine, has more to do than there is time."""
        self._late_ms += _LATENESS_WEIGHT * (late_ms - self._late_ms)

    def throttled(self) -> None:
        """The bucket asked for fewer requests: rarer and larger objects."""
        self._interval_ms = min(self._interval_ms * 2, max(THROTTLED_INTERVAL_MAX_MS, self._limits.interval_ms))

    def stored(self) -> None:
        """The bucket took an object."""
        self._interval_ms = max(self._interval_ms * _RECOVERY, self._limits.interval_ms)

    def limits(self, traffic: Traffic) -> UploadLimits:
        limits = self._limits
        late_interval_ms = self._late_interval_ms(traffic)
        size_factor = min(max(late_interval_ms // limits.interval_ms, 1), LATE_SIZE_FACTOR)
        return replace(
            limits,
            interval_ms=max(self.interval_ms, late_interval_ms),
            linger_ms=self._linger_ms(traffic),
            max_bytes=limits.max_bytes * size_factor,
            partition_max_bytes=limits.partition_max_bytes * size_factor,
        )

    def _late_interval_ms(self, traffic: Traffic) -> int:
        """Rarer and larger objects cost less for each byte.  Records wait no longer for them than for price."""
        if self._late_ms <= PUNCTUAL_MS or self._policy is CostPolicy.LATENCY or traffic.someone_waits_for_all:
            return 0
        return min(math.ceil(LATENESS_FACTOR * self._late_ms), self._economy_linger_ms)

    def _linger_ms(self, traffic: Traffic) -> int:
        if self._policy is CostPolicy.LATENCY or traffic.someone_waits_for_all:
            return self._limits.linger_ms
        if self._policy is CostPolicy.ECONOMY:
            return self._economy_linger_ms
        if traffic.classic_price_per_second <= 0:
            return self._economy_linger_ms if traffic.object_price > 0 else self._limits.linger_ms
        break_even_ms = math.ceil(1000 * traffic.object_price / traffic.classic_price_per_second)
        return min(max(break_even_ms, self._limits.linger_ms), self._economy_linger_ms)
