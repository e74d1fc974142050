import pytest

from broker.config.log_settings import LogSettings
from broker.config.setting import ConfigError
from broker.config.value_types import INT64_MAX


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-5"}, -1),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_retention_is_milliseconds_over_minutes_over_hours(properties: dict[str, str], retention_ms: int) -> None:
    assert LogSettings(properties).log_retention_ms_effective == retention_ms


def test_roll_and_its_jitter_are_milliseconds_over_hours() -> None:
    assert LogSettings({}).log_roll_ms_effective == 604_800_000
    assert LogSettings({"log.roll.hours": "2"}).log_roll_ms_effective == 7_200_000
    assert LogSettings({"log.roll.hours": "2", "log.roll.ms": "9"}).log_roll_ms_effective == 9
    assert LogSettings({}).log_roll_jitter_ms_effective == 0
    assert LogSettings({"log.roll.jitter.hours": "1"}).log_roll_jitter_ms_effective == 3_600_000
    assert LogSettings({"log.roll.jitter.hours": "1", "log.roll.jitter.ms": "4"}).log_roll_jitter_ms_effective == 4


def test_flush_interval_falls_back_to_the_schedulers() -> None:
    assert LogSettings({}).log_flush_interval_ms_effective == INT64_MAX
    assert LogSettings({"log.flush.scheduler.interval.ms": "7"}).log_flush_interval_ms_effective == 7
    both = {"log.flush.scheduler.interval.ms": "7", "log.flush.interval.ms": "5"}
    assert LogSettings(both).log_flush_interval_ms_effective == 5


def test_cleanup_policy_is_a_list_of_known_policies() -> None:
    assert LogSettings({"log.cleanup.policy": "compact, delete"}).log_cleanup_policy == ("compact", "delete")
    assert LogSettings({"log.cleanup.policy": ""}).log_cleanup_policy == ()
    with pytest.raises(ConfigError, match=r"log\.cleanup\.policy='shred': valid values are \[compact, delete\]\."):
        LogSettings({"log.cleanup.policy": "shred"})
