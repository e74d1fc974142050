import pytest

from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.config.remote_log_settings import RemoteLogSettings
from broker.config.setting import ConfigError, UpdateMode

KAFKA_MANAGER = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"

# Those of managers, which Kafka's own table has not; tests/unit/config/test_broker_config.py compares the others.
MANAGERS_DEFAULTS = {
    "rsm.config.bucket": None,
    "rsm.config.key.prefix": "tiered",
    "rsm.config.endpoint.url": None,
    "rsm.config.region": None,
    "rsm.config.access.key": None,
    "rsm.config.secret.key": None,
    "rsm.config.path.style": "false",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "50",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
    "rlmm.config.remote.log.metadata.topic.retention.ms": "-1",
    "rlmm.config.remote.log.metadata.consume.wait.ms": "120000",
    "rlmm.config.remote.log.metadata.initialization.retry.max.timeout.ms": "120000",
    "rlmm.config.remote.log.metadata.initialization.retry.interval.ms": "100",
}


def broker(properties: dict[str, str]) -> BrokerConfig:
    return BrokerConfig({**DEFAULT_SINGLE_NODE, **properties})


def test_names_and_defaults_of_the_managers_settings() -> None:
    own = {
        setting.name: setting.default_text
        for setting in RemoteLogSettings.settings()
        if setting.name.startswith(("rsm.", "rlmm."))
    }
    assert own == MANAGERS_DEFAULTS


def test_what_managers_are_made_with_is_not_changed_while_brokers_run() -> None:
    dynamic = {setting.name for setting in RemoteLogSettings.settings() if setting.update is UpdateMode.CLUSTER_WIDE}
    assert not any(
        name.startswith(("rsm.", "rlmm.", "remote.log.storage.", "remote.log.metadata.")) for name in dynamic
    )
    assert {"remote.log.manager.copy.max.bytes.per.second", "log.local.retention.ms"} <= dynamic


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("remote.log.storage.manager.class.name", ("LocalTieredStorage", "my.module.Storage"), ("",)),
        ("remote.log.storage.manager.impl.prefix", ("mine.",), ("",)),
        ("remote.log.metadata.manager.class.name", (KAFKA_MANAGER, "TopicBasedRemoteLogMetadataManager"), ("", "x.Y")),
        ("remote.log.metadata.manager.impl.prefix", ("mine.",), ("",)),
        ("remote.log.metadata.manager.listener.name", ("INTERNAL",), ("",)),
        ("remote.log.metadata.custom.metadata.max.bytes", ("0",), ("-1",)),
        ("remote.log.manager.copier.thread.pool.size", ("-1", "1"), ("0", "-2")),
        ("remote.log.manager.expiration.thread.pool.size", ("-1", "1"), ("0", "-2")),
        ("remote.log.manager.task.retry.jitter", ("0", "0.5"), ("0.51", "-0.1")),
        ("log.local.retention.ms", ("-2", "-1", "0"), ("-3",)),
        ("log.local.retention.bytes", ("-2", "-1", "0"), ("-3",)),
        ("rsm.config.bucket", ("s3://b", "file:///var/tiered"), ("b", "s3://b/p")),
        ("rsm.config.key.prefix", ("a", "a/b.c/", "tiered"), ("", "/a", "a//b", "../a", "a b")),
        ("rsm.config.endpoint.url", ("http://127.0.0.1:8333",), ("127.0.0.1:8333",)),
        ("rlmm.config.remote.log.metadata.topic.num.partitions", ("1",), ("0",)),
        ("rlmm.config.remote.log.metadata.topic.replication.factor", ("1",), ("0",)),
        ("rlmm.config.remote.log.metadata.topic.retention.ms", ("-1", "1"), ("0", "-2")),
    ],
)
def test_what_is_accepted(name: str, good: tuple[str, ...], bad: tuple[str, ...]) -> None:
    for text in good:
        RemoteLogSettings({name: text})
    for text in bad:
        with pytest.raises(ConfigError, match="valid values are"):
            RemoteLogSettings({name: text})


def test_keys_are_never_shown() -> None:
    for name in ("rsm.config.access.key", "rsm.config.secret.key"):
        setting = RemoteLogSettings.setting(name)
        assert setting is not None
        assert setting.is_sensitive
        assert setting.format("a secret") == "[hidden]"


def test_pools_may_be_as_large_as_the_one_of_before() -> None:
    default = RemoteLogSettings({"remote.log.manager.thread.pool.size": "7"})
    assert default.remote_log_manager_copier_thread_pool_size_effective == 10
    assert default.remote_log_manager_expiration_thread_pool_size_effective == 10
    names = ("copier", "expiration")
    given = {f"remote.log.manager.{name}.thread.pool.size": "-1" for name in names}
    older = RemoteLogSettings({"remote.log.manager.thread.pool.size": "7", **given})
    assert older.remote_log_manager_copier_thread_pool_size_effective == 7
    assert older.remote_log_manager_expiration_thread_pool_size_effective == 7


def test_what_managers_are_given() -> None:
    config = broker(
        {
            "rsm.config.bucket": "s3://b",
            "rsm.config.colour": "red",
            "rlmm.config.remote.log.metadata.common.client.client.id": "x",
        }
    )
    assert config.rsm_properties() == {"bucket": "s3://b", "colour": "red", "broker.id": "1"}
    assert config.rlmm_properties() == {
        "remote.log.metadata.common.client.client.id": "x",
        "broker.id": "1",
        "log.dir": "data/server",
    }
    assert config.unknown_names == ()


def test_other_prefixes_name_the_same_settings() -> None:
    config = broker(
        {
            "remote.log.storage.manager.impl.prefix": "mine.",
            "remote.log.metadata.manager.impl.prefix": "ours.",
            "mine.bucket": "s3://b",
            "mine.colour": "red",
            "rsm.config.region": "not read",
            "ours.remote.log.metadata.topic.num.partitions": "3",
        }
    )
    assert config.rsm_config_bucket == "s3://b"
    assert config.rsm_config_region is None
    assert config.rlmm_config_remote_log_metadata_topic_num_partitions == 3
    assert config.rsm_properties() == {"bucket": "s3://b", "colour": "red", "broker.id": "1"}
    assert config.unknown_names == ()


@pytest.mark.parametrize(
    ("class_name", "unknown"),
    [
        ("LocalTieredStorage", ("rsm.config.chunk.size", "rsm.config.regoin")),
        ("S3RemoteStorageManager", ("rsm.config.chunk.size", "rsm.config.regoin")),
        ("my.plugin.Storage", ()),  # who knows what it reads
    ],
)
def test_our_managers_know_their_settings(class_name: str, unknown: tuple[str, ...]) -> None:
    names = {
        "remote.log.storage.manager.class.name": class_name,
        "rsm.config.bucket": "s3://b",
        "rsm.config.regoin": "us-east-1",
        "rsm.config.chunk.size": "5",
        "rlmm.config.remote.log.metadata.common.client.client.id": "x",
    }
    assert broker(names).unknown_names == unknown


def test_our_managers_know_their_settings_under_another_prefix() -> None:
    config = broker(
        {
            "remote.log.storage.manager.class.name": "S3RemoteStorageManager",
            "remote.log.storage.manager.impl.prefix": "remote.",
            "remote.bucket": "s3://b",
            "remote.regoin": "us-east-1",
            "remote.log.reader.threads": "3",
            "remote.log.storage.manager.class.path": "/x.jar",
        }
    )
    assert config.unknown_names == ("remote.regoin",)


def test_the_jvms_class_paths_are_accepted() -> None:
    config = broker({"remote.log.storage.manager.class.path": "/x.jar", "remote.log.metadata.manager.class.path": "/y"})
    assert config.unknown_names == ()
