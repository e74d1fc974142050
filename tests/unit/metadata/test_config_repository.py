import pytest

from broker.common.errors import InvalidConfigError
from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.config.describe import ConfigSource
from broker.metadata.config_repository import ConfigRepository
from broker.metadata.metadata_cache import MetadataCache
from broker.schemas.cluster_metadata import ConfigRecord
from tests.unit.metadata.image_support import config_record, full_image, image_of


def broker_config(name: str, value: str, broker: str) -> ConfigRecord:
    return config_record(name, value, broker, 4)


@pytest.fixture
def cache() -> MetadataCache:
    cache = MetadataCache()
    cache.set_image(full_image())
    return cache


@pytest.fixture
def repository(cache: MetadataCache) -> ConfigRepository:
    return ConfigRepository(BrokerConfig({**DEFAULT_SINGLE_NODE, "log.segment.bytes": "3000000"}), cache)


def publish(cache: MetadataCache, *records: ConfigRecord) -> None:
    cache.set_image(image_of(*records, base=cache.image))


def test_topic_over_broker_over_cluster_over_file(cache: MetadataCache, repository: ConfigRepository) -> None:
    assert repository.topic_config("u").segment_bytes == 3_000_000
    publish(cache, broker_config("log.segment.bytes", "4000000", ""))
    assert repository.topic_config("u").segment_bytes == 4_000_000
    publish(cache, broker_config("log.segment.bytes", "5000000", "1"))
    publish(cache, broker_config("log.segment.bytes", "9000000", "2"))  # another broker's
    assert repository.topic_config("u").segment_bytes == 5_000_000
    publish(cache, config_record("segment.bytes", "6000000", "u"))
    assert repository.topic_config("u").segment_bytes == 6_000_000
    assert repository.broker_config().log_segment_bytes == 5_000_000


def test_the_broker_config_is_the_same_object_until_it_changes(
    cache: MetadataCache, repository: ConfigRepository
) -> None:
    before = repository.broker_config()
    publish(cache, config_record("flush.ms", "5"))
    assert repository.broker_config() is before
    publish(cache, broker_config("log.segment.bytes", "4000000", ""))
    assert repository.broker_config() is not before


def test_topics_with_equal_settings_share_one_config(cache: MetadataCache, repository: ConfigRepository) -> None:
    publish(
        cache,
        config_record("retention.ms", "7", "a"),
        config_record("retention.ms", "7", "b"),
    )
    assert repository.topic_config("a") is repository.topic_config("b")
    assert repository.topic_config("c") is repository.topic_config("d")
    assert repository.topic_config("a").retention_ms == 7
    before = repository.topic_config("c")
    publish(cache, broker_config("log.segment.bytes", "4000000", ""))
    assert repository.topic_config("c") is not before
    assert (repository.topic_config("a").segment_bytes, repository.topic_config("c").segment_bytes) == (4_000_000,) * 2


def test_listed_topics_go_through_a_bucket(cache: MetadataCache, repository: ConfigRepository) -> None:
    assert not repository.topic_config("u").remote_wal_enable
    publish(cache, broker_config("remote.wal.topics", "u,o.*", ""))
    publish(cache, config_record("remote.wal.enable", "false", "other"))
    assert repository.topic_config("u").remote_wal_enable
    assert repository.topic_config("orders").remote_wal_enable
    assert repository.topic_config("u") is repository.topic_config("orders")
    assert not repository.topic_config("other").remote_wal_enable
    assert not repository.topic_config("v").remote_wal_enable
    publish(cache, broker_config("remote.wal.topics", "v", ""))
    assert not repository.topic_config("u").remote_wal_enable
    assert repository.topic_config("v").remote_wal_enable


def test_stored_values_that_cannot_be_are_left_aside(cache: MetadataCache, repository: ConfigRepository) -> None:
    publish(cache, broker_config("log.segment.bytes", "many", "1"))
    assert repository.broker_config().log_segment_bytes == 3_000_000


def test_a_topics_values_that_other_controllers_let_in_are_left_aside(
    cache: MetadataCache, repository: ConfigRepository
) -> None:
    """Controllers of 4.0 allow segments below 1 MiB: a topic that has them must not stop the broker's metadata."""
    publish(cache, config_record("segment.bytes", "16384", "u"), config_record("retention.ms", "7", "u"))
    found = repository.topic_config("u")
    assert (found.segment_bytes, found.retention_ms) == (3_000_000, 7)
    assert "segment.bytes" in {entry.name for entry in repository.describe_topic("u")}


def test_descriptions_tell_sources(cache: MetadataCache, repository: ConfigRepository) -> None:
    publish(cache, broker_config("log.segment.bytes", "4000000", "1"))
    topic = {entry.name: entry for entry in repository.describe_topic("t")}
    assert (topic["retention.ms"].value, topic["retention.ms"].source) == ("1000", ConfigSource.TOPIC_CONFIG)
    assert topic["segment.bytes"].source is ConfigSource.DYNAMIC_BROKER_CONFIG
    broker = {entry.name: entry for entry in repository.describe_broker()}
    assert broker["log.segment.bytes"].value == "4000000"
    (default,) = repository.describe_broker_default()
    assert (default.name, default.source) == ("log.retention.ms", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)


def test_what_this_broker_cannot_run_with_is_refused(cache: MetadataCache, repository: ConfigRepository) -> None:
    publish(cache, broker_config("log.local.retention.ms", "5000", ""))
    repository.check_broker_change("1", {"log.retention.ms": "5000"})
    repository.check_broker_change("2", {"log.retention.ms": "4999"})  # another broker's
    with pytest.raises(InvalidConfigError, match=r"^log\.local\.retention\.ms=5000: it must be at most"):
        repository.check_broker_change("1", {"log.retention.ms": "4999"})
    with pytest.raises(InvalidConfigError, match=r"^log\.local\.retention\.ms=-1: it cannot be without limit"):
        repository.check_broker_change("", {"log.local.retention.ms": "-1"})
    repository.check_broker_change("", {"log.local.retention.ms": "-1", "log.retention.ms": "-1"})
    publish(cache, broker_config("log.retention.ms", "6000", "1"))
    with pytest.raises(InvalidConfigError):
        repository.check_broker_change("", {"log.local.retention.ms": "6001"})
    with pytest.raises(InvalidConfigError, match=r"broker\.heartbeat\.interval\.ms"):
        repository.check_broker_change("1", {"broker.heartbeat.interval.ms": "60000"})


def test_dynamic_settings_are_those_stored(cache: MetadataCache, repository: ConfigRepository) -> None:
    publish(cache, broker_config("log.retention.ms", "1", ""), broker_config("log.retention.ms", "2", "1"))
    assert repository.dynamic_properties("")["log.retention.ms"] == "1"
    assert repository.dynamic_properties("1")["log.retention.ms"] == "2"
    assert repository.dynamic_properties("3") == {}
