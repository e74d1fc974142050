import pytest

from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.config.remote_wal_settings import RemoteWalSettings
from broker.config.setting import ConfigError, UpdateMode

EXPECTED_DEFAULTS = {
    "remote.wal.storage.system.enable": "false",
    "remote.wal.topics": "",
    "remote.wal.storage.manager.class.name": None,
    "remote.wal.storage.manager.impl.prefix": "rwsm.config.",
    "remote.wal.metadata.manager.impl.prefix": "rwlmm.config.",
    "rwsm.config.bucket": None,
    "rwsm.config.endpoint.url": None,
    "rwsm.config.region": None,
    "rwsm.config.access.key": None,
    "rwsm.config.secret.key": None,
    "rwsm.config.path.style": "false",
    "rwsm.config.az.id": None,
    "rwsm.config.key.prefix": "",
    "rwlmm.config.remote.wal.log.metadata.topic.num.partitions": "50",
    "rwlmm.config.remote.wal.log.metadata.topic.replication.factor": "3",
    "rwlmm.config.remote.wal.log.metadata.topic.retention.ms": "7200000",
    "rwlmm.config.remote.wal.log.metadata.producer.acks": "all",
    "remote.wal.combine.interval.ms": "10",
    "remote.wal.combine.max.bytes": "524288",
    "remote.wal.combine.min.bytes": "102400",
    "remote.wal.combine.max.linger.ms": "20",
    "remote.wal.combine.economy.linger.ms": "100",
    "remote.wal.combine.partition.max.bytes": "131072",
    "remote.wal.cost.policy": "balanced",
    "remote.wal.metadata.slice.events.enable": "true",
    "remote.wal.object.retention.mode": "local",
    "remote.wal.object.min.retention.ms": "600000",
    "remote.wal.orphan.min.age.ms": "600000",
    "remote.wal.gc.interval.ms": "60000",
    "remote.wal.upload.max.inflight": "4",
    "remote.wal.upload.timeout.ms": "2000",
    "remote.wal.upload.retry.backoff.ms": "20",
    "remote.wal.upload.retry.max.ms": "1000",
    "remote.wal.fetch.threads": "16",
    "remote.wal.fetch.timeout.ms": "2000",
    "remote.wal.fetch.lag.wait.ms": "5",
    "remote.wal.fallback.enable": "true",
    "remote.wal.fallback.lag.ms": "5000",
    "remote.wal.republish.mode": "untiered",
    "remote.wal.republish.max.bytes.per.second": "52428800",
}


def test_names_and_defaults() -> None:
    assert {setting.name: setting.default_text for setting in RemoteWalSettings.settings()} == EXPECTED_DEFAULTS


def test_only_the_list_of_topics_changes_while_brokers_run() -> None:
    dynamic = [setting.name for setting in RemoteWalSettings.settings() if setting.update is not UpdateMode.READ_ONLY]
    assert dynamic == ["remote.wal.topics"]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("rwsm.config.bucket", ("s3://a-bucket", "s3://b--use1-az4--x-s3/", "file:///var/wal"), ("bucket", "gs://b")),
        ("rwsm.config.bucket", ("file:///",), ("s3://", "s3://bucket/prefix", "file://host/dir", "s3://b?x=1")),
        ("rwsm.config.endpoint.url", ("http://127.0.0.1:8333", "https://s3"), ("127.0.0.1:8333", "https://")),
        ("rwsm.config.key.prefix", ("", "one/", "one/two.2/"), ("one", "/one/", "one//", "../", "a b/")),
        ("remote.wal.topics", ("", "a,b.c", "orders-.*,x"), ("a,,b", "(", "a,*")),
        ("remote.wal.cost.policy", ("latency", "balanced", "economy"), ("cheap",)),
        ("remote.wal.object.retention.mode", ("local", "replicated"), ("ever",)),
        ("remote.wal.republish.mode", ("untiered", "local-retention", "none"), ("all",)),
        ("remote.wal.orphan.min.age.ms", ("360000",), ("359999",)),
        ("rwlmm.config.remote.wal.log.metadata.producer.acks", ("all", "-1", "1"), ("0",)),
        ("remote.wal.fetch.threads", ("1",), ("0",)),
    ],
)
def test_what_is_accepted(name: str, good: tuple[str, ...], bad: tuple[str, ...]) -> None:
    for text in good:
        RemoteWalSettings({name: text})
    for text in bad:
        with pytest.raises(ConfigError, match="valid values are"):
            RemoteWalSettings({name: text})


def test_keys_are_never_shown() -> None:
    for name in ("rwsm.config.access.key", "rwsm.config.secret.key"):
        setting = RemoteWalSettings.setting(name)
        assert setting is not None
        assert setting.is_sensitive
        assert setting.format("a secret") == "[hidden]"


def test_a_name_in_the_list_stands_for_itself_and_anything_else_is_an_expression() -> None:
    settings = RemoteWalSettings({"remote.wal.topics": "a.b, orders-.*, (x|y)z"})
    matched = [
        name for name in ("a.b", "axb", "orders-", "orders-1", "my-orders-1", "xz", "xzz") if _is(settings, name)
    ]
    assert matched == ["a.b", "orders-", "orders-1", "xz"]
    assert not RemoteWalSettings({}).is_remote_wal_topic("a")


def _is(settings: RemoteWalSettings, topic: str) -> bool:
    return settings.is_remote_wal_topic(topic)


def test_other_prefixes_name_the_same_settings() -> None:
    config = BrokerConfig(
        {
            **DEFAULT_SINGLE_NODE,
            "remote.wal.storage.manager.impl.prefix": "mine.",
            "remote.wal.metadata.manager.impl.prefix": "ours.",
            "mine.bucket": "s3://b",
            "mine.colour": "red",
            "rwsm.config.region": "not read",
            "ours.remote.wal.log.metadata.topic.num.partitions": "3",
        }
    )
    assert config.rwsm_config_bucket == "s3://b"
    assert config.rwsm_config_region is None
    assert config.rwlmm_config_remote_wal_log_metadata_topic_num_partitions == 3
    assert config.storage_manager_properties == {"bucket": "s3://b", "colour": "red"}
    assert config.unknown_names == ()


def test_a_wrong_value_under_another_prefix_is_refused() -> None:
    given = {"remote.wal.storage.manager.impl.prefix": "mine.", "mine.bucket": "b"}
    with pytest.raises(ConfigError, match=r"bucket='b': valid values are s3://bucket or file:///directory\."):
        BrokerConfig({**DEFAULT_SINGLE_NODE, **given})
