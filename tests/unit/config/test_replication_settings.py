import pytest

from broker.config.replication_settings import LEADER_SELECTOR, RACK_AWARE_REPLICA_SELECTOR, ReplicationSettings
from broker.config.setting import ConfigError


def test_defaults_of_topics_made_without_saying() -> None:
    settings = ReplicationSettings({})
    assert (settings.num_partitions, settings.default_replication_factor) == (1, 1)
    assert (settings.auto_create_topics_enable, settings.delete_topic_enable) == (True, True)
    assert settings.unclean_leader_election_enable is False


def test_min_insync_replicas_is_at_least_one() -> None:
    with pytest.raises(ConfigError, match=r"min\.insync\.replicas='0': valid values are \[1,\.\.\.\]\."):
        ReplicationSettings({"min.insync.replicas": "0"})


def test_replica_selectors_are_kafkas_two() -> None:
    assert ReplicationSettings({}).replica_selector_class is None
    for name in (LEADER_SELECTOR, RACK_AWARE_REPLICA_SELECTOR):
        assert ReplicationSettings({"replica.selector.class": name}).replica_selector_class == name
    with pytest.raises(ConfigError, match="valid values are"):
        ReplicationSettings({"replica.selector.class": "com.example.MySelector"})
