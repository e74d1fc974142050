from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.config.price_book import SHIPPED
from broker.config.setting import ConfigError
from broker.cost_model.bill import (
    Architecture,
    Item,
    bill_of,
    break_even_mbps,
    object_life_seconds,
    requests_per_segment,
    saving,
    traffic_at,
)
from broker.cost_model.plan import Plan
from broker.wal.retention.object_retention import ObjectRetentionMode
from broker.wal.upload.upload_queue import UploadLimits

GB = 1 << 30
MONTH = 2_592_000
PLAN = Plan(mbps=100, partitions=60, upload=UploadLimits(interval_ms=15))


def bills(plan: Plan = PLAN) -> dict[Architecture, dict[Item, float]]:
    traffic = traffic_at(plan, SHIPPED)
    return {each: dict(bill_of(traffic, each, SHIPPED).items) for each in Architecture}


def test_replication_by_hand() -> None:
    """100 MB/s, an object every 15 ms of three brokers: the requests and bytes of KIP-1176's kind of bill."""
    written = PLAN.log_bytes_per_second
    classic, wal = bills()[Architecture.CLASSIC], bills()[Architecture.WAL]
    assert classic[Item.REPLICATION] == pytest.approx(written * 2 * 0.02 / GB * MONTH)
    assert wal[Item.PUT] == pytest.approx(3 / 0.015 * MONTH * 0.00113 / 1000, rel=1e-6)
    assert wal[Item.PUT] == pytest.approx(585.8, abs=0.1)
    assert wal[Item.GET] == pytest.approx(2 * 3 / 0.015 * MONTH * 0.00003 / 1000, rel=1e-6)
    assert wal[Item.RETRIEVAL] == pytest.approx(written * 2 * 0.0006 / GB * MONTH)
    assert wal[Item.UPLOAD] == pytest.approx(written * 0.0032 / GB * MONTH, rel=0.03), "and the objects' tables"
    assert wal[Item.REPLICATION] == classic[Item.PUT] == classic[Item.METADATA] == 0


def test_old_records_by_hand() -> None:
    by_architecture = bills(replace(PLAN, retention_hours=100, local_retention_hours=1))
    gigabytes_per_hour = PLAN.log_bytes_per_second * 3600 / GB
    untiered, tiered = by_architecture[Architecture.WAL], by_architecture[Architecture.WAL_TIERED]
    assert untiered[Item.DISKS] == pytest.approx(100 * gigabytes_per_hour * 3 * 0.08)
    assert tiered[Item.DISKS] == pytest.approx(gigabytes_per_hour * 3 * 0.08)
    assert tiered[Item.TIER_KEPT] == pytest.approx(100 * gigabytes_per_hour * 0.023)
    assert untiered[Item.TIER_KEPT] == untiered[Item.TIER_REQUESTS] == 0
    for item in (Item.DISKS, Item.TIER_KEPT, Item.TIER_REQUESTS, Item.PRODUCERS, Item.CONSUMERS):
        assert tiered[item] == by_architecture[Architecture.CLASSIC_TIERED][item], "buckets change nothing there"


def test_requests_of_a_segment() -> None:
    assert requests_per_segment(1 << 20) == 5
    assert requests_per_segment(1 << 30) == 4 + 128 + 2


def test_how_long_objects_stay() -> None:
    objects = traffic_at(PLAN, SHIPPED).objects
    assert object_life_seconds(PLAN, objects, is_tiered=False) == 2 * 3600 + 600 + 30
    short = replace(PLAN, retention_hours=1.0)
    assert object_life_seconds(short, objects, is_tiered=False) == 3600 + 600 + 30
    replicated = replace(PLAN, object_retention=ObjectRetentionMode.REPLICATED)
    assert object_life_seconds(replicated, objects, is_tiered=False) == 600 + 30
    full_seconds = (1 << 30) * 60 / PLAN.log_bytes_per_second
    part = objects.partitions / (objects.partitions + 1)
    assert object_life_seconds(PLAN, objects, is_tiered=True) == pytest.approx(full_seconds * part + 30)


def test_a_bill_adds_up() -> None:
    bill = bill_of(traffic_at(PLAN, SHIPPED), Architecture.WAL_TIERED, SHIPPED)
    assert bill.total == pytest.approx(sum(bill.items.values()))
    old = (Item.PRODUCERS, Item.CONSUMERS, Item.DISKS, Item.TIER_REQUESTS, Item.TIER_KEPT)
    assert bill.replication == pytest.approx(bill.total - sum(bill.items[item] for item in old))


def test_saving_is_the_difference_of_the_bills() -> None:
    traffic = traffic_at(PLAN, SHIPPED)
    classic, wal = (bill_of(traffic, each, SHIPPED) for each in (Architecture.CLASSIC, Architecture.WAL))
    assert saving(PLAN, SHIPPED) == pytest.approx(classic.replication - wal.replication)
    assert saving(PLAN, SHIPPED) > 0


@settings(max_examples=12)
@given(
    partitions=st.integers(12, 2000),
    interval_ms=st.integers(5, 100),
    is_tiered=st.booleans(),
    store=st.sampled_from(["s3-express", "s3-standard"]),
)
def test_below_the_break_even_buckets_cost_more_and_above_it_less(
    partitions: int, interval_ms: int, is_tiered: bool, store: str
) -> None:
    plan = Plan(partitions=partitions, upload=UploadLimits(interval_ms=interval_ms, linger_ms=100), store=store)
    load = break_even_mbps(plan, SHIPPED, is_tiered=is_tiered)
    if load is None:
        assert saving(replace(plan, mbps=1e6), SHIPPED, is_tiered=is_tiered) <= 0
        return
    assert saving(replace(plan, mbps=load * 1.001), SHIPPED, is_tiered=is_tiered) > 0
    assert saving(replace(plan, mbps=load * 0.999), SHIPPED, is_tiered=is_tiered) < 0


def test_more_brokers_move_the_break_even_up() -> None:
    """At a given load each more makes as many objects, and more brokers ask for each."""
    loads = [break_even_mbps(Plan(brokers=each, partitions=120, slice_events=False), SHIPPED) for each in (3, 6, 9)]
    assert None not in loads
    assert loads == sorted(loads)  # type: ignore[type-var]


@settings(max_examples=20)
@given(mbps=st.floats(0.1, 500), factor=st.floats(1.05, 5), partitions=st.integers(1, 1000))
def test_more_load_never_costs_less(mbps: float, factor: float, partitions: int) -> None:
    plan = Plan(mbps=mbps, partitions=partitions)
    less, more = bills(plan), bills(replace(plan, mbps=mbps * factor))
    for each in Architecture:
        assert sum(more[each].values()) > sum(less[each].values())
    assert more[Architecture.WAL][Item.PUT] >= less[Architecture.WAL][Item.PUT] * (1 - 1e-9)


def test_where_zones_are_free_buckets_never_pay() -> None:
    assert break_even_mbps(replace(PLAN, zones=1), SHIPPED) is None
    assert break_even_mbps(replace(PLAN, replication_factor=1), SHIPPED) is None


def test_free_buckets_pay_at_any_load() -> None:
    free = replace(SHIPPED.stores["s3-express"], put_per_1000=0, get_per_1000=0, upload_per_gb=0, retrieval_per_gb=0)
    book = replace(SHIPPED, stores={"free": replace(free, kept_per_gb_month=0)})
    assert break_even_mbps(Plan(store="free", slice_events=False, partitions=3, producer_linger_ms=1000), book) == 0.01


def test_a_store_without_prices_is_told() -> None:
    with pytest.raises(ConfigError, match="store=tape: the prices have s3-express, s3-standard"):
        traffic_at(replace(PLAN, store="tape"), SHIPPED)
