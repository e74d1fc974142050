from dataclasses import replace

import pytest

from broker.config.setting import ConfigError
from broker.cost_model.plan import Plan, cross_zone_followers
from broker.wal.retention.object_retention import ObjectRetentionMode, RetentionSettings
from broker.wal.upload.combiner import limits_of
from broker.wal.upload.upload_pace import CostPolicy
from tests.support.builders import broker_config


def test_a_plan_without_options_has_the_brokers_defaults() -> None:
    plan, settings = Plan(), broker_config()
    assert plan.upload == limits_of(settings)
    assert plan.policy is CostPolicy(settings.remote_wal_cost_policy)
    assert plan.economy_linger_ms == settings.remote_wal_combine_economy_linger_ms
    assert plan.slice_events == settings.remote_wal_metadata_slice_events_enable
    assert plan.metadata_partitions == settings.rwlmm_config_remote_wal_log_metadata_topic_num_partitions
    assert plan.metadata_replication_factor == settings.rwlmm_config_remote_wal_log_metadata_topic_replication_factor
    assert plan.metadata_retention_hours * 3_600_000 == RetentionSettings().metadata_retention_ms
    assert plan.object_retention is ObjectRetentionMode(settings.remote_wal_object_retention_mode)
    assert plan.object_retention_min_hours * 3_600_000 == settings.remote_wal_object_min_retention_ms
    assert plan.segment_bytes == settings.log_segment_bytes


def test_batches_by_hand() -> None:
    """6.25 records a second and partition, 1000 ms of linger: 7.25 in a batch; 10 records fill one."""
    plan = Plan(mbps=0.1, record_bytes=1000, partitions=16, producer_linger_ms=1000, batch_bytes_max=10_090)
    assert plan.records_per_second == 100
    assert plan.records_per_batch == 7.25
    assert plan.batch_bytes == 7.25 * 1009 + 61
    assert plan.batches_per_second == pytest.approx(100 / 7.25)
    assert plan.log_bytes_per_second == pytest.approx(100 * 1009 + 61 * 100 / 7.25)
    assert replace(plan, producers=2).records_per_batch == 1 + 6.25 / 2
    assert replace(plan, mbps=1.0).records_per_batch == 10
    assert replace(plan, producer_linger_ms=0).records_per_batch == 1
    assert replace(plan, batch_bytes_max=1).records_per_batch == 1, "a record that is larger travels alone"


@pytest.mark.parametrize(
    ("replication_factor", "zones", "expected"), [(3, 3, 2), (3, 1, 0), (3, 2, 1.5), (2, 3, 1), (1, 3, 0), (4, 2, 2)]
)
def test_followers_in_other_zones(replication_factor: int, zones: int, expected: float) -> None:
    assert cross_zone_followers(replication_factor, zones) == expected


def test_what_a_broker_leads_and_hosts() -> None:
    plan = Plan(brokers=6, partitions=60, replication_factor=3, zones=3)
    assert (plan.led_partitions, plan.hosted_partitions, plan.followers) == (10, 30, 2)
    assert plan.other_zones == pytest.approx(2 / 3)
    assert Plan(zones=1).other_zones == 0


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ({"mbps": 0}, "mbps=0: it must be above 0."),
        ({"mbps": float("inf")}, "mbps=inf: it must be above 0."),
        ({"consumers": -1}, "consumers=-1: it must not be negative."),
        ({"brokers": 2, "zones": 2}, "replication-factor=3: there are only 2 brokers."),
        ({"zones": 4}, "zones=4: there are only 3 brokers."),
        ({"record_bytes": 1 << 20}, "record-bytes=1048576: an object takes 524288."),
    ],
)
def test_impossible_plans_are_told(numbers: dict[str, float], sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Plan(**numbers)  # type: ignore[arg-type]
    assert sentence in raised.value.sentences


def test_nothing_may_be_read() -> None:
    assert Plan(consumers=0, producer_linger_ms=0).consumers == 0
