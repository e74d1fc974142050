import pytest

from broker.wal.cost.cost_meter import Traffic
from broker.wal.upload.upload_pace import CostPolicy, UploadPace
from broker.wal.upload.upload_queue import UploadLimits

LIMITS = UploadLimits(interval_ms=10, linger_ms=20)


def pace(policy: str = "balanced", economy_linger_ms: int = 100) -> UploadPace:
    return UploadPace(LIMITS, CostPolicy(policy), economy_linger_ms)


def linger(policy: str, *, price: float = 1.0, classic: float = 1.0, waits: bool = False) -> int:
    return pace(policy).limits(Traffic(price, classic, waits)).linger_ms


def test_latency_never_waits_for_price() -> None:
    assert linger("latency", price=1e9) == 20


def test_economy_always_does_unless_somebody_waits_for_all() -> None:
    assert linger("economy", price=0, classic=1e9) == 100
    assert linger("economy", waits=True) == 20


@pytest.mark.parametrize(
    ("price", "classic", "expected"),
    [
        (0.001, 1.0, 20),  # even at the shortest linger the bucket is cheaper
        (0.02, 1.0, 20),
        (0.0201, 1.0, 21),
        (0.05, 1.0, 50),  # twenty objects a second cost as much as the bytes would
        (1.0, 1.0, 100),
        (1.0, 0.0, 100),  # nothing to compare with: a record now and then
        (0.0, 0.0, 20),
    ],
)
def test_balanced_waits_until_it_is_no_dearer(price: float, classic: float, expected: int) -> None:
    assert linger("balanced", price=price, classic=classic) == expected
    assert linger("balanced", price=price, classic=classic, waits=True) == 20


def test_an_economy_linger_below_the_linger_has_no_effect() -> None:
    assert pace("economy", 5).limits(Traffic(1, 1, False)).linger_ms == 20


def test_a_throttling_bucket_gets_rarer_objects_until_it_takes_them() -> None:
    it = pace()
    intervals = []
    for _ in range(5):
        it.throttled()
        intervals.append(it.interval_ms)
    assert intervals == [20, 40, 80, 100, 100]
    assert it.limits(Traffic(0, 1, False)).interval_ms == 100
    it.stored()
    assert it.interval_ms == 90
    for _ in range(30):
        it.stored()
    assert it.interval_ms == 10
    assert it.limits(Traffic(0, 1, False)) == LIMITS


def test_an_interval_that_is_long_already_is_not_shortened() -> None:
    it = UploadPace(UploadLimits(interval_ms=500), CostPolicy.LATENCY, 100)
    it.throttled()
    assert it.interval_ms == 500


@pytest.mark.parametrize(
    ("late_ms", "policy", "waits", "expected"),
    [
        (2.0, "balanced", False, 10),  # as late as anybody is
        (2.2, "balanced", False, 55),
        (3.2, "balanced", False, 80),
        (300.0, "balanced", False, 100),  # no longer than for price
        (3.2, "economy", False, 80),
        (8.0, "balanced", True, 10),
        (8.0, "latency", False, 10),
    ],
)
def test_a_loop_that_is_late_gets_rarer_objects(late_ms: float, policy: str, waits: bool, expected: int) -> None:
    it = pace(policy)
    for _ in range(100):
        it.woken(late_ms)
    limits = it.limits(Traffic(0, 1, waits))
    assert limits.interval_ms == expected
    factor = min(expected // 10, 4)
    assert (limits.max_bytes, limits.partition_max_bytes) == (factor * 524_288, factor * 131_072)
    for _ in range(100):
        it.woken(0)
    assert it.limits(Traffic(0, 1, waits)).interval_ms == 10


def test_being_late_once_is_not_being_late() -> None:
    it = pace()
    it.woken(15)
    assert it.limits(Traffic(0, 1, False)) == LIMITS
