import pytest

from broker.common.errors import InvalidConfigError
from broker.common.identifiers import NEVER_TIERED_TOPICS
from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.config.remote_log_rules import check_end_of_tiering, check_remote_log_topic, local_retention_problems
from broker.config.remote_log_settings import STORAGE_MANAGERS, RemoteLogSettings
from broker.config.setting import ConfigError
from broker.config.topic_config import TopicConfig
from broker.tiering.remote_storage_manager import SHORT_NAMES
from tests.support.tiered_topics import DISABLED, FIT, MISFITS, TIERED, TIERING, WITHOUT_DELETION

WHOLE = {**DEFAULT_SINGLE_NODE, **TIERING}
CONFIG = BrokerConfig(WHOLE)


def sentences(properties: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(properties)
    return list(refused.value.sentences)


def without(missing: str) -> dict[str, str]:
    return {name: text for name, text in WHOLE.items() if name != missing}


def test_what_is_missing_is_named() -> None:
    assert sentences(without("remote.log.storage.manager.class.name")) == [
        "remote.log.storage.manager.class.name is missing: remote.log.storage.system.enable=true needs it; it may be "
        "LocalTieredStorage, S3RemoteStorageManager or a class of your own."
    ]
    assert sentences(without("rsm.config.bucket")) == [
        "rsm.config.bucket is missing: LocalTieredStorage needs it; valid values are s3://bucket or file:///directory."
    ]
    assert sentences({**without("rsm.config.bucket"), "remote.log.storage.manager.impl.prefix": "mine."}) == [
        "mine.bucket is missing: LocalTieredStorage needs it; valid values are s3://bucket or file:///directory."
    ]


def test_a_class_of_ones_own_may_need_no_bucket() -> None:
    BrokerConfig({**without("rsm.config.bucket"), "remote.log.storage.manager.class.name": "my.module.Storage"})


def test_all_classes_of_ours_need_a_bucket() -> None:
    assert set(STORAGE_MANAGERS) == set(SHORT_NAMES)


def test_nothing_is_needed_without_tiering_or_on_a_controller() -> None:
    assert not BrokerConfig({**DEFAULT_SINGLE_NODE}).remote_log_storage_system_enable
    controller = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9190",
        "listeners": "CONTROLLER://127.0.0.1:9190",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": "data",
        "remote.log.storage.system.enable": "true",
    }
    assert BrokerConfig(controller).remote_log_storage_system_enable


def test_the_metadata_topic_is_reached_through_a_listener_of_brokers() -> None:
    listeners = {
        "listeners": "PLAINTEXT://127.0.0.1:9092,INSIDE://127.0.0.1:9093,CONTROLLER://127.0.0.1:9190",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
    }
    name = "remote.log.metadata.manager.listener.name"
    assert BrokerConfig(WHOLE).remote_log_metadata_listener_name == "PLAINTEXT"
    assert BrokerConfig({**WHOLE, **listeners, name: "inside"}).remote_log_metadata_listener_name == "INSIDE"
    for unknown in ("OUTSIDE", "CONTROLLER"):
        assert sentences({**WHOLE, **listeners, name: unknown}) == [
            f"{name}='{unknown}': it must be a listener of this broker: [PLAINTEXT, INSIDE]."
        ]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"log.retention.ms": "1000", "log.local.retention.ms": "1001"},
            "log.local.retention.ms=1001: it must be at most log.retention.ms=1000.",
        ),
        (
            {"log.retention.hours": "1", "log.local.retention.ms": "-1"},
            "log.local.retention.ms=-1: it cannot be without limit, as log.retention.ms=3600000 is not.",
        ),
        (
            {"log.retention.bytes": "1000", "log.local.retention.bytes": "1001"},
            "log.local.retention.bytes=1001: it must be at most log.retention.bytes=1000.",
        ),
        (
            {"log.retention.bytes": "1000", "log.local.retention.bytes": "-1"},
            "log.local.retention.bytes=-1: it cannot be without limit, as log.retention.bytes=1000 is not.",
        ),
    ],
)
def test_local_retention_of_brokers_fits_their_retention(given: dict[str, str], sentence: str) -> None:
    assert sentences({**WHOLE, **given}) == [sentence]
    not_tiering = BrokerConfig({**DEFAULT_SINGLE_NODE, **given})  # a file of Kafka's starts
    with pytest.raises(InvalidConfigError) as refused:
        not_tiering.check_retention()  # and a change to such values is refused nevertheless
    assert str(refused.value) == sentence


def test_local_retention_of_what_has_no_end_may_be_anything() -> None:
    for local in ("-2", "-1", "0", "5000"):
        config = RemoteLogSettings({"log.local.retention.ms": local, "log.local.retention.bytes": local})
        assert local_retention_problems(config, retention_ms=-1, retention_bytes=-1) == []


@pytest.mark.parametrize("given", [given for _, given in FIT if given.get("remote.storage.enable") == "true"])
def test_topics_that_may_be_tiered(given: dict[str, str]) -> None:
    check_remote_log_topic(CONFIG, "t", TopicConfig.effective(CONFIG, given))
    check_remote_log_topic(CONFIG, None, TopicConfig.effective(CONFIG, given))


@pytest.mark.parametrize(("given", "sentence"), MISFITS)
def test_topics_that_may_not_be_tiered_so(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidConfigError, match=sentence):
        check_remote_log_topic(CONFIG, "t", TopicConfig.effective(CONFIG, given))


def test_topics_are_tiered_only_where_nodes_have_it_on() -> None:
    config = BrokerConfig(DEFAULT_SINGLE_NODE)
    with pytest.raises(InvalidConfigError, match=DISABLED):
        check_remote_log_topic(config, "t", TopicConfig.effective(config, TIERED))


@pytest.mark.parametrize("topic", sorted(NEVER_TIERED_TOPICS))
def test_internal_topics_and_those_of_metadata_are_never_tiered(topic: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"^The topic {topic} is internal"):
        check_remote_log_topic(CONFIG, topic, TopicConfig.effective(CONFIG, TIERED))


def test_tiering_ends_only_with_what_is_in_the_bucket() -> None:
    kept = TopicConfig.effective(CONFIG, {})
    deleted = TopicConfig.effective(CONFIG, {"remote.log.delete.on.disable": "true"})
    for before in ({}, {"remote.storage.enable": "false"}):
        check_end_of_tiering(before, kept)
    for text in ("true", " TRUE "):
        with pytest.raises(InvalidConfigError, match=WITHOUT_DELETION):
            check_end_of_tiering({"remote.storage.enable": text}, kept)
        check_end_of_tiering({"remote.storage.enable": text}, deleted)
