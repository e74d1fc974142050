import pytest

from broker.config.group_settings import GroupSettings
from broker.config.setting import ConfigError


def test_defaults_of_groups() -> None:
    settings = GroupSettings({})
    assert settings.group_initial_rebalance_delay_ms == 3000
    assert settings.offsets_topic_num_partitions == 50
    assert settings.offsets_topic_segment_bytes == 100 * 1024 * 1024
    assert settings.offsets_retention_minutes == 7 * 24 * 60


def test_only_known_codecs_for_offsets() -> None:
    assert GroupSettings({"offsets.topic.compression.codec": "4"}).offsets_topic_compression_codec == 4
    with pytest.raises(ConfigError, match=r"offsets\.topic\.compression\.codec='5': valid values are \[0,\.\.\.,4\]"):
        GroupSettings({"offsets.topic.compression.codec": "5"})


def test_replication_factor_is_a_short() -> None:
    with pytest.raises(ConfigError, match="does not fit 16 bits"):
        GroupSettings({"offsets.topic.replication.factor": "40000"})
