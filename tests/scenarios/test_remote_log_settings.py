"""Settings of tiered storage that change while a broker runs: stored by the controller, in force and described."""

import pytest

from broker.config.describe import ConfigSource, ConfigSynonym
from broker.config.remote_log_settings import RemoteLogSettings
from broker.config.setting import UpdateMode
from broker.metadata.configs_image import CLUSTER_DEFAULT, ConfigResourceType
from tests.unit.server.link_support import TOPIC_ID, topic_records
from tests.unit.server.test_dynamic_config_publisher import Setup, config

BROKER, TOPIC = ConfigResourceType.BROKER, ConfigResourceType.TOPIC
OWN = "1"

# Which attribute tells of it, of all that may change.
DYNAMIC = {
    "log.local.retention.bytes": "log_local_retention_bytes",
    "log.local.retention.ms": "log_local_retention_ms",
    "remote.fetch.max.wait.ms": "remote_fetch_max_wait_ms",
    "remote.list.offsets.request.timeout.ms": "remote_list_offsets_request_timeout_ms",
    "remote.log.index.file.cache.total.size.bytes": "remote_log_index_file_cache_total_size_bytes",
    "remote.log.manager.copier.thread.pool.size": "remote_log_manager_copier_thread_pool_size_effective",
    "remote.log.manager.copy.max.bytes.per.second": "remote_log_manager_copy_max_bytes_per_second",
    "remote.log.manager.expiration.thread.pool.size": "remote_log_manager_expiration_thread_pool_size_effective",
    "remote.log.manager.fetch.max.bytes.per.second": "remote_log_manager_fetch_max_bytes_per_second",
    "remote.log.reader.threads": "remote_log_reader_threads",
}


def test_these_are_all_that_may_change() -> None:
    dynamic = {each.name for each in RemoteLogSettings.settings() if each.update is not UpdateMode.READ_ONLY}
    assert dynamic == DYNAMIC.keys()


@pytest.mark.parametrize(("name", "attribute"), DYNAMIC.items())
def test_a_change_is_in_force_and_described_with_where_it_comes_from(name: str, attribute: str) -> None:
    setup = Setup()
    default = getattr(setup.holder.current, attribute)
    shown_default = ConfigSynonym(name, str(default), ConfigSource.DEFAULT_CONFIG)
    of_all = ConfigSynonym(name, "77", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    of_this = ConfigSynonym(name, "78", ConfigSource.DYNAMIC_BROKER_CONFIG)
    for broker, text, synonyms in (
        (CLUSTER_DEFAULT, "77", (of_all, shown_default)),
        (OWN, "78", (of_this, of_all, shown_default)),
        (OWN, None, (of_all, shown_default)),
        (CLUSTER_DEFAULT, None, (shown_default,)),
    ):
        setup.publish(config(BROKER, broker, name, text))
        (entry,) = (each for each in setup.repository.describe_broker() if each.name == name)
        assert str(getattr(setup.holder.current, attribute)) == entry.value == synonyms[0].value
        assert (entry.source, entry.synonyms, entry.is_read_only) == (synonyms[0].source, synonyms, False)


@pytest.mark.parametrize(
    ("name", "of_brokers", "attribute"),
    [
        ("local.retention.ms", "log.local.retention.ms", "local_retention_ms_effective"),
        ("local.retention.bytes", "log.local.retention.bytes", "local_retention_bytes_effective"),
    ],
)
def test_a_brokers_local_retention_reaches_its_topics(name: str, of_brokers: str, attribute: str) -> None:
    setup = Setup()
    setup.publish(*topic_records("t", TOPIC_ID, (1,)), config(TOPIC, "t", name.removeprefix("local."), "1000"))
    assert getattr(setup.repository.topic_config("t"), attribute) == 1000
    setup.publish(config(BROKER, CLUSTER_DEFAULT, of_brokers, "77"))
    assert getattr(setup.repository.topic_config("t"), attribute) == 77
    setup.publish(config(TOPIC, "t", name, "78"))
    assert getattr(setup.repository.topic_config("t"), attribute) == 78
    (entry,) = (each for each in setup.repository.describe_topic("t") if each.name == name)
    assert entry.synonyms == (
        ConfigSynonym(name, "78", ConfigSource.TOPIC_CONFIG),
        ConfigSynonym(of_brokers, "77", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ConfigSynonym(of_brokers, "-2", ConfigSource.DEFAULT_CONFIG),
    )


@pytest.mark.parametrize("name", ["remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable"])
def test_what_a_topic_says_is_in_force(name: str) -> None:
    setup = Setup()
    attribute = name.replace(".", "_")
    setup.publish(*topic_records("t", TOPIC_ID, (1,)))
    for text, source in (
        (None, ConfigSource.DEFAULT_CONFIG),
        ("true", ConfigSource.TOPIC_CONFIG),
        ("false", ConfigSource.TOPIC_CONFIG),
    ):
        setup.publish(config(TOPIC, "t", name, text))
        (entry,) = (each for each in setup.repository.describe_topic("t") if each.name == name)
        assert getattr(setup.repository.topic_config("t"), attribute) is (text == "true")
        assert (entry.value, entry.source) == (text or "false", source)


def test_no_secret_is_described() -> None:
    setup = Setup({"rsm.config.secret.key": "hush", "rsm.config.access.key": "hush", "rsm.config.token": "hush"})
    for entry in setup.repository.describe_broker():
        assert "hush" not in (entry.value or "")
        assert all("hush" not in (synonym.value or "") for synonym in entry.synonyms)
        if entry.name in ("rsm.config.secret.key", "rsm.config.access.key"):
            assert (entry.is_sensitive, entry.source) == (True, ConfigSource.STATIC_BROKER_CONFIG)
