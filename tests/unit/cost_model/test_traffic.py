from dataclasses import replace

import pytest

from broker.config.price_book import SHIPPED
from broker.cost_model.plan import Acks, Plan
from broker.cost_model.traffic import broker_bytes, traffic_of
from broker.wal.cost.prices import GB, StorePrices

PLAN = Plan(mbps=30, partitions=60, consumers=2)


def test_requests_and_bytes_of_three_brokers() -> None:
    traffic = traffic_of(PLAN)
    written = PLAN.log_bytes_per_second
    assert traffic.puts == pytest.approx(3 * traffic.objects.per_second)
    assert traffic.gets == pytest.approx(2 * traffic.puts)
    assert traffic.replicated_bytes == traffic.retrieved_bytes == traffic.cross_zone_bytes == 2 * written
    assert traffic.uploaded_bytes == pytest.approx(written + traffic.puts * traffic.metadata.table_bytes)
    assert traffic.produced_cross_zone_bytes == pytest.approx(written * 2 / 3)


def test_metadata_between_zones_by_hand() -> None:
    """Two thirds are told to another zone, two copies go there, and three brokers read two thirds of it from there."""
    traffic = traffic_of(PLAN)
    told, read = traffic.metadata.bytes, traffic.metadata.bytes_read
    assert traffic.metadata_cross_zone_bytes == pytest.approx(told * 2 / 3 + told * 2 + 3 * read * 2 / 3)
    assert traffic_of(replace(PLAN, zones=1)).metadata_cross_zone_bytes == 0


def test_consumers_that_know_racks_read_in_their_zone_where_it_has_a_replica() -> None:
    written = PLAN.log_bytes_per_second
    assert traffic_of(PLAN).consumed_cross_zone_bytes == pytest.approx(2 * written * 2 / 3)
    aware = replace(PLAN, rack_aware_consumers=True)
    assert traffic_of(aware).consumed_cross_zone_bytes == 0
    assert traffic_of(replace(aware, replication_factor=2)).consumed_cross_zone_bytes == pytest.approx(2 * written / 3)


def test_without_followers_nothing_is_uploaded() -> None:
    traffic = traffic_of(replace(PLAN, replication_factor=1))
    assert (traffic.puts, traffic.gets, traffic.uploaded_bytes, traffic.retrieved_bytes) == (0, 0, 0, 0)


def test_bytes_of_a_broker() -> None:
    traffic = traffic_of(PLAN)
    written = PLAN.log_bytes_per_second / 3
    classic, wal = (broker_bytes(traffic, through_buckets=each) for each in (False, True))
    assert (classic.produced, classic.consumed, classic.to_followers, classic.from_leaders) == pytest.approx(
        (written, 2 * written, 2 * written, 2 * written)
    )
    assert classic.uploaded == classic.metadata_read == 0
    assert (wal.to_followers, wal.from_leaders, wal.retrieved) == pytest.approx((0, 0, 2 * written))
    assert wal.metadata_written == pytest.approx(traffic.metadata.bytes)


def test_prices_make_objects_rarer_where_nobody_waits() -> None:
    plan = Plan(mbps=0.3, acks=Acks.ONE)
    express = StorePrices.of(SHIPPED.stores["s3-express"])
    dear = traffic_of(plan, express, SHIPPED.cross_zone_per_gb / GB)
    assert dear.objects.linger_ms > traffic_of(replace(plan, acks=Acks.ALL), express, 1e-9).objects.linger_ms == 20
