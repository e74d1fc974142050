import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cost_model.objects import distinct, expected_min_of_poisson, interval_seconds, objects_of, slices_of
from broker.cost_model.plan import Acks, Plan
from broker.wal.upload.upload_pace import CostPolicy
from broker.wal.upload.upload_queue import UploadLimits

LIMITS = UploadLimits(interval_ms=10, linger_ms=20, min_bytes=100_000, max_bytes=500_000)


@pytest.mark.parametrize(
    ("batches", "batch_bytes", "expected_ms"),
    [
        (1, 1000, 1000 + 20),  # the first after a second, then the linger
        (1000, 1000, 1 + 20),  # 100 of them would take 100 ms
        (2000, 10_000, 10),  # 100,000 bytes within 5 ms: the interval
        (100_000, 10_000, 0.5),  # 500,000 bytes within 0.5 ms
        (10, 200_000, 100),  # any batch is enough
    ],
)
def test_intervals_by_hand(batches: float, batch_bytes: float, expected_ms: float) -> None:
    assert 1000 * interval_seconds(batches, batch_bytes, LIMITS) == pytest.approx(expected_ms, rel=1e-6)


def test_the_expectation_of_the_lesser() -> None:
    assert expected_min_of_poisson(3.0, 0) == 0
    assert expected_min_of_poisson(3.0, 1) == pytest.approx(1 - math.exp(-3))
    assert expected_min_of_poisson(1.0, 2) == pytest.approx((1 - math.exp(-1)) + (1 - 2 * math.exp(-1)))
    assert expected_min_of_poisson(0.0, 5) == 0
    assert expected_min_of_poisson(5.0, 1000) == pytest.approx(5.0)
    assert expected_min_of_poisson(1e6, 7) == 7
    assert expected_min_of_poisson(800.0, 10_000) == 800.0


def test_partitions_in_an_object() -> None:
    assert distinct(5, 1) == 1
    assert distinct(1, 100) == 1
    assert distinct(2, 2) == pytest.approx(1 + (1 - math.exp(-0.5)))
    assert distinct(1e9, 40) == pytest.approx(40)


def test_a_partition_with_more_than_a_slice_takes_has_several() -> None:
    """200 MB/s to one partition: 500,000 bytes in 2.5 ms, in slices of 131,072."""
    plan = Plan(mbps=200, partitions=1, brokers=1, zones=1, replication_factor=1, upload=LIMITS)
    objects = objects_of(plan)
    assert objects.partitions == 1
    assert objects.slices == 4, "31 batches, of which a slice takes 8"
    assert objects.record_bytes == pytest.approx(plan.log_bytes_per_second * objects.interval_ms / 1000)


def test_slices_of_a_partition_by_hand() -> None:
    assert slices_of(31, 8, is_alone=True) == 4
    assert slices_of(32, 8, is_alone=True) == 4
    assert slices_of(1, 8, is_alone=False) == 1
    assert slices_of(3, 1, is_alone=False) == pytest.approx(3)
    # One batch, and others with a mean of one: a second slice from the third batch on.
    assert slices_of(2, 2, is_alone=False) == pytest.approx(2 * math.exp(-1) + 2 * (1 - 2 * math.exp(-1)), abs=0.03)
    assert slices_of(1000, 8, is_alone=False) == 125


def test_policies_let_objects_wait_for_their_price() -> None:
    """An object for a dollar, and a byte between zones for a thousandth: it pays after 1000 bytes of each second."""
    plan = Plan(mbps=0.01, acks=Acks.ONE)
    assert objects_of(replace(plan, policy=CostPolicy.LATENCY), 1.0, 1e-3).linger_ms == 20
    assert objects_of(replace(plan, policy=CostPolicy.ECONOMY), 1.0, 1e-3).linger_ms == 100
    assert objects_of(replace(plan, policy=CostPolicy.BALANCED), 1.0, 1e-3).linger_ms == 100
    assert objects_of(replace(plan, policy=CostPolicy.BALANCED), 1.0, 1.0).linger_ms == 20
    assert objects_of(replace(plan, acks=Acks.ALL, policy=CostPolicy.ECONOMY), 1.0, 1e-3).linger_ms == 20, (
        "whoever waits with acks=all does not wait for price"
    )


@given(
    batches=st.floats(0.1, 1e5),
    batch_bytes=st.floats(100, 400_000),
    factor=st.floats(1.01, 100),
)
def test_more_batches_never_make_objects_rarer(batches: float, batch_bytes: float, factor: float) -> None:
    slow, fast = (interval_seconds(each, batch_bytes, LIMITS) for each in (batches, batches * factor))
    assert fast <= slow * (1 + 1e-9)
    assert slow <= 1 / batches + max(LIMITS.linger_ms, LIMITS.interval_ms) / 1000 + 1e-9
