import pytest

from broker.config.setting import ConfigError
from broker.config.wherry_settings import WherrySettings


def test_without_a_word_costs_follow_the_bucket_and_faults_the_listener() -> None:
    settings = WherrySettings({})
    assert settings.wherry_price_list == "auto"
    assert settings.wherry_price_cross_zone_dollars_per_gb == 0.02
    assert settings.wherry_fault_switch_enable is False
    assert settings.wherry_remote_log_read_ahead_chunks == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("wherry.price.list", "gcs"),
        ("wherry.price.cross.zone.dollars.per.gb", "-0.01"),
        ("wherry.remote.log.read.ahead.chunks", "9"),
    ],
)
def test_wrong_values_are_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        WherrySettings({name: value})
