"""How often a broker makes an object, and what is in it: what `UploadQueue` does, in expectation.

Batches come at random (Poisson) to one broker, which leads `led` partitions that are all alike.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from broker.cost_model.plan import Acks, Plan
from broker.wal.cost.cost_meter import Traffic
from broker.wal.upload.upload_pace import UploadPace
from broker.wal.upload.upload_queue import UploadLimits

_POISSON_MAX: Final = 500.0  # a mean up to which terms of a distribution are added up
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Objects:
    """Of one broker.  `partitions` and `slices` are in one object; a partition has more than one slice when it has more
    bytes than `remote.wal.combine.partition.max.bytes`.  `slice_bytes` is without the object's table."""

    per_second: float
    interval_ms: float
    partitions: float
    slices: float
    slice_bytes: float
    linger_ms: int

    @property
    def record_bytes(self) -> float:
        """Of all slices of an object."""
        return self.slices * self.slice_bytes


def objects_of(plan: Plan, object_price: float = 0.0, cross_zone_price: float = 0.0) -> Objects:
    """Of one of the plan's brokers.

    The prices, in dollars of all requests of an object and of a byte between zones, decide about the linger where
    `remote.wal.cost.policy` lets them.
    """
    batches = plan.batches_per_second / plan.brokers
    limits = _limits(plan, object_price, cross_zone_price)
    interval_ms = 1000 * interval_seconds(batches, plan.batch_bytes, limits)
    batches_per_object = batches * interval_ms / 1000
    led = plan.led_partitions
    partitions = distinct(batches_per_object, led)
    batches_per_slice = max(1, math.floor(limits.partition_max_bytes / plan.batch_bytes))
    slices = partitions * slices_of(batches_per_object / partitions, batches_per_slice, is_alone=led <= 1)
    return Objects(
        per_second=1000 / interval_ms,
        interval_ms=interval_ms,
        partitions=partitions,
        slices=slices,
        slice_bytes=batches_per_object * plan.batch_bytes / slices,
        linger_ms=limits.linger_ms,
    )


def interval_seconds(batches: float, batch_bytes: float, limits: UploadLimits) -> float:
    """From the begin of one object to that of the next, with so many batches a second.

    The first batch comes after 1 / batches.  Then the object waits for its linger, or until so many batches have come
    that it has `min_bytes`; not before the interval since the last one is over, unless it is full by then.
    """
    full = math.ceil(limits.max_bytes / batch_bytes) / batches
    tick = min(limits.interval_ms / 1000, full)
    more = max(math.ceil(limits.min_bytes / batch_bytes) - 1, 0)  # behind the first
    wait = expected_min_of_poisson(batches * limits.linger_ms / 1000, more) / batches
    return max(tick, 1 / batches + wait)


def expected_min_of_poisson(mean: float, bound: int) -> float:
    """E[min(N, bound)] of a Poisson-distributed N: how many batches come before the linger or the bytes are over.

    Divided by the rate it is E[min(linger, time of the bound-th arrival)].
    """
    if mean > _POISSON_MAX:  # close to its mean
        return min(mean, float(bound))
    expected, tail, term = 0.0, 1.0, math.exp(-mean)
    for count in range(bound):  # E[min(N, b)] = sum of P(N > k) for k below b
        tail -= term
        expected += max(tail, 0.0)
        if tail <= 1e-12:
            break
        term *= mean / (count + 1)
    return expected


def distinct(batches_per_object: float, led: float) -> float:
    """Partitions in an object that begins with one batch and takes the others of `batches_per_object` at random."""
    if led <= 1:
        return 1.0
    others = max(batches_per_object - 1, 0.0)
    return 1 + (led - 1) * -math.expm1(-others / led)


def slices_of(batches: float, batches_per_slice: int, *, is_alone: bool) -> float:
    """Of a partition that has so many batches in an object, on average.

    The only one of its broker always has about as many; others have one, and more of them at random.
    """
    if is_alone or batches > _POISSON_MAX:
        return float(max(1, math.ceil(batches / batches_per_slice - _ROUNDING)))
    term = math.exp(-(others := max(batches - 1, 0.0)))
    expected, count, below = 0.0, 0, 0.0
    while count == 0 or (below < 1 - _ROUNDING and count < 10 * _POISSON_MAX):
        expected += term * math.ceil((count + 1) / batches_per_slice)
        below += term
        count += 1
        term *= others / count
    return max(1.0, expected)


def _limits(plan: Plan, object_price: float, cross_zone_price: float) -> UploadLimits:
    pace = UploadPace(plan.upload, plan.policy, plan.economy_linger_ms)
    classic = plan.log_bytes_per_second / plan.brokers * plan.cross_zone_followers * cross_zone_price
    chosen = pace.limits(Traffic(object_price, classic, plan.acks is Acks.ALL and plan.followers > 0))
    return replace(chosen, interval_ms=plan.upload.interval_ms)
